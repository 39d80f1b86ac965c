"""What the REST API reads and shows. Shapes only; every rule is in services and domain."""
