#!/usr/bin/env python
"""Command line of the console: `manage.py up` runs everything, the rest are single commands."""

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        _ = settings.INSTALLED_APPS
    except ImproperlyConfigured as error:
        # A person mistyped a variable: the sentence says which, a traceback would hide it.
        sys.exit(f"The console cannot start: {error}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
