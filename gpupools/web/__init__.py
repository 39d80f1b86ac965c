"""The HTML door: parse, call a service, show."""
