#!/usr/bin/env python
"""Command line of the console: `manage.py up` runs everything, the rest are single commands."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
