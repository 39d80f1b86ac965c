"""Migrations: one initial until the first release, then named by hand, one idea each."""
