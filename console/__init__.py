"""Wiring of the console: settings, addresses, server and task queue entry points. Nobody imports it."""

# Loaded with the package, so that every process that rings for a task finds this queue and no other.
from console.celery import app as celery_app

__all__ = ["celery_app"]
