"""Wiring of the console: settings, addresses, server and task queue entry points. Nobody imports it."""
