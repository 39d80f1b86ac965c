"""The HTML door: one module per part of the navigation. Parse, call a service, show."""
