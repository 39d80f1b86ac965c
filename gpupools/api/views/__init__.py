"""The views of the REST API, one module per noun."""
