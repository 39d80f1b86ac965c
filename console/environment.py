"""Readers of environment variables: each gives a value of the right type or refuses to start.

A refusal names the variable, what was found in it and what is allowed; a secret's value is never shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


def refuse(name: str, *, found: str, allowed: str) -> ImproperlyConfigured:
    """Build the refusal of one variable."""
    return ImproperlyConfigured(f"{name}: found {found!r}; allowed is {allowed}.")


def envstr(name: str, default: str, *, choices: Sequence[str] = ()) -> str:
    """Read a text; an empty variable counts as unset. With choices, only those."""
    value = os.environ.get(name, "").strip() or default
    if choices and value not in choices:
        raise refuse(name, found=value, allowed=f"one of {', '.join(choices)}")
    return value


def envbool(name: str, default: bool) -> bool:
    """Read a switch: true/false, yes/no, on/off or 1/0, in any case."""
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return default
    if value in TRUE_WORDS:
        return True
    if value in FALSE_WORDS:
        return False
    raise refuse(name, found=value, allowed="true or false")


def envint(name: str, default: int, *, lowest: int, highest: int) -> int:
    """Read a whole number between two bounds, both included."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    allowed = f"a whole number from {lowest} to {highest}"
    # int() alone would also take "1_000", "+5" and digits of other scripts.
    if not (value.isascii() and value.removeprefix("-").isdigit()):
        raise refuse(name, found=value, allowed=allowed)
    number = int(value)
    if not lowest <= number <= highest:
        raise refuse(name, found=value, allowed=allowed)
    return number


def envlist(name: str, default: Sequence[str]) -> list[str]:
    """Read a comma-separated list; blanks around the commas and empty entries do not count."""
    value = os.environ.get(name, "").strip()
    if not value:
        return list(default)
    return [entry for part in value.split(",") if (entry := part.strip())]


def envwords(name: str, default: Sequence[str], *, choices: Sequence[str]) -> tuple[str, ...]:
    """Read a comma-separated list of known words; the word ``none`` alone makes it empty, and unset is the default."""
    words = envlist(name, default)
    if words == ["none"]:
        return ()
    if unknown := next((word for word in words if word not in choices), None):
        raise refuse(name, found=unknown, allowed=f"none, or a list out of {', '.join(choices)}")
    return tuple(word for word in choices if word in words)


def envorigins(name: str) -> list[str]:
    """Read a list of origins, each a scheme and a host: ``https://console.example.com``."""
    origins = envlist(name, ())
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path or parts.query:
            raise refuse(name, found=origin, allowed="a list such as https://console.example.com,http://10.0.0.5:8000")
    return origins


def envzone(name: str, default: str) -> str:
    """Read the name of a time zone, such as ``Asia/Shanghai``."""
    value = envstr(name, default)
    try:
        ZoneInfo(value)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise refuse(name, found=value, allowed="a name of the tz database, such as UTC or Asia/Shanghai") from error
    return value


def envpath(name: str, default: Path) -> Path:
    """Read a folder's or file's path; a relative one counts from the working folder."""
    return Path(envstr(name, str(default))).expanduser().absolute()


def envsecret(name: str, *, kept_in: Path | None = None) -> str:
    """Read a secret from NAME, from the file that NAME_FILE names, or from the file it is kept in.

    Returns "" where there is none; naming both NAME and NAME_FILE is refused, as is an unreadable file.
    """
    value = os.environ.get(name, "").strip()
    file_name = os.environ.get(f"{name}_FILE", "").strip()
    if value and file_name:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; allowed is one of them.")
    if value:
        return value
    if file_name:
        try:
            return Path(file_name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise refuse(f"{name}_FILE", found=file_name, allowed="the name of a readable text file") from error
    if kept_in is not None and kept_in.is_file():
        try:
            return kept_in.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ImproperlyConfigured(f"{name} is kept in {kept_in}, which cannot be read.") from error
    return ""


def envredis(name: str, default: str, *, kept_in: Path | None = None) -> str:
    """Read the address of a Redis or Valkey server, from NAME or the file that a running console keeps it in.

    The password in it is not shown when it is refused.
    """
    value = envstr(name, envsecret(name, kept_in=kept_in) or default)
    parts = urlsplit(value)
    try:
        ok = parts.scheme in {"redis", "rediss"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        ok = False
    database = parts.path.removeprefix("/")
    if not ok or (database and not database.isdigit()):
        raise refuse(
            name,
            found=without_password(value),
            allowed="redis://[:PASSWORD@]HOST[:PORT][/NUMBER], or rediss://",
        )
    return value


def envdatabase(name: str, default: Path) -> dict[str, Any]:
    """Read a database address into Django's settings; without one, an SQLite file.

    SQLite: write-ahead log and immediate transactions, without which concurrent writers lose to
    "database is locked". PostgreSQL: a pool per process, since persistent connections leak under ASGI.
    """
    value = envstr(name, f"sqlite:///{default}")
    allowed = "sqlite:////absolute/file or postgresql://USER:PASSWORD@HOST[:PORT]/NAME"
    parts = urlsplit(value)
    try:
        port = parts.port
    except ValueError as error:
        raise refuse(name, found=without_password(value), allowed=allowed) from error
    if parts.scheme == "sqlite":
        path = unquote(parts.path.removeprefix("/"))
        if parts.netloc or not path:
            raise refuse(name, found=value, allowed=allowed)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
        raise refuse(name, found=without_password(value), allowed=allowed)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"pool": {"min_size": 2, "max_size": 10, "timeout": 10}, **dict(parse_qsl(parts.query))},
    }


def without_password(url: str) -> str:
    """Return an address fit for showing: its password, if any, as ``***``."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    user, _, _ = parts.netloc.rpartition("@")[0].partition(":")
    return parts._replace(netloc=f"{user}:***@{parts.netloc.rpartition('@')[2]}").geturl()
