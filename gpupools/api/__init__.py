"""The REST door: parse, call a service, show."""
