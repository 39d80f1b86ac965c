"""The data folder of a local console: its modes, its secrets, and the lock that keeps a second one out."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import IO

from cryptography.fernet import Fernet

from gpupools.errors import Conflict, Invalid

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
SECRETS = {
    "GPUPOOLS_SECRET_KEY": ("secret-key", lambda: secrets.token_urlsafe(64)),
    "GPUPOOLS_CREDENTIALS_KEY": ("credentials-key", lambda: Fernet.generate_key().decode()),
}


def prepare(folder: Path) -> None:
    """Make the folder and its subfolders, readable by their owner alone.

    Raises:
        Invalid: the folder cannot be made or written.
    """
    try:
        for path in (folder, folder / "logs", folder / "broker", folder / "cluster"):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(PRIVATE_FOLDER)
    except OSError as error:
        raise Invalid.field(
            "data-dir",
            f"The data folder {folder} cannot be used: {error.strerror}.",
            found=str(folder),
            allowed="a folder that you may write to",
        ) from error


def keep_secrets(folder: Path, environment: dict[str, str]) -> list[str]:
    """Make up the secrets that neither the environment nor the folder has; return the names of new files."""
    made = []
    for variable, (file_name, make_up) in SECRETS.items():
        if environment.get(variable) or environment.get(f"{variable}_FILE"):
            continue
        path = folder / file_name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        except FileExistsError:
            path.chmod(PRIVATE_FILE)
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(make_up() + "\n")
        made.append(file_name)
    return made


class DataLock:
    """Held by the one console that runs on a folder; the system gives it back however that console ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "up.lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Take the lock and leave our process id in it.

        Raises:
            Conflict: another console runs on this folder.
        """
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise Conflict(
                f"A console already runs on {self._path.parent} (process {holder}). Stop it first, "
                "or give this one a folder of its own with --data-dir.",
                code="data-folder-in-use",
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None
