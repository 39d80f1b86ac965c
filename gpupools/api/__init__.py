"""The REST door: parse, call a service, show. It writes no rows and talks to no cluster."""
