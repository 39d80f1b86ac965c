"""Built-in job templates and component manifests, as YAML."""
