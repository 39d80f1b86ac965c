"""Writes the credentials of every cluster anew with the present key, so that the keys before it can go."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from gpupools.errors import Unreachable
from gpupools.services import credentials


class Command(BaseCommand):
    """``manage.py rotatecredentials``: set a new key, name the old one among the old keys, restart, run this."""

    help = (
        "Encrypt the clusters' credentials anew with GPUPOOLS_CREDENTIALS_KEY. Keys in GPUPOOLS_OLD_CREDENTIALS_KEYS "
        "still read; when this has run without an error they can be taken out."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate, and name what no key reads."""
        try:
            done = credentials.rotate()
        except Unreachable as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"Written anew: {', '.join(done.written) or 'nothing'}.")
        if done.unreadable:
            raise CommandError(
                f"No key reads the credentials of {', '.join(done.unreadable)}: name the key that they were written "
                "with in GPUPOOLS_OLD_CREDENTIALS_KEYS, or give these clusters new credentials."
            )
