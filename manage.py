#!/usr/bin/env python
"""Command line of the console: `manage.py up` runs everything, the rest are single commands."""

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError


def main() -> None:
    """Run the command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        _ = settings.INSTALLED_APPS
    except ImproperlyConfigured as error:
        # A person mistyped a variable: the sentence says which, a traceback would hide it.
        sys.exit(f"The console cannot start: {error}")
    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        # Mostly a data folder that is not there or a server that is down: no fault of ours that a traceback would show.
        sys.exit(f"The console's database cannot be used: {error}. It is {_where()}.")


def _where() -> str:
    database = settings.DATABASES["default"]
    if "sqlite3" in database["ENGINE"]:
        return f"the file {database['NAME']}; GPUPOOLS_DATA_DIR and DATABASE_URL say where"
    return "at the address in DATABASE_URL"


if __name__ == "__main__":
    main()
