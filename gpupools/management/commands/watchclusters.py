"""Follow every connected cluster and publish what its cards hold, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from gpupools.services import watching


class Command(BaseCommand):
    """The watcher process. Several may run: a lease per cluster lets one of them publish."""

    help = "Follow every connected cluster and publish what its cards hold."

    def handle(self, *args: Any, **options: Any) -> None:
        """Watch until told to stop."""
        stopping = threading.Event()

        def stop(number: int, frame: FrameType | None) -> None:
            stopping.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        watching.watch_all(stopping)
