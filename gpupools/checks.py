"""System checks of settings that contradict each other or are unsafe, with stable ids.

Each reads Django's settings only, and is silent on the embedded defaults that `manage.py up` runs on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

SHORTEST_SECRET_KEY = 50
FEWEST_DIFFERENT_CHARACTERS = 8


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def served_beyond_this_machine() -> bool:
    """Whether anybody but this machine's own users is meant to reach the console."""
    hosts: Iterable[str] = (*settings.ALLOWED_HOSTS, settings.GPUPOOLS_HOST)
    return not all(is_loopback(host) for host in hosts)


def uses_sqlite() -> bool:
    """Whether rows are in a file of this machine."""
    return settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")


def is_embedded() -> bool:
    """Whether the console stands alone on this machine, as `manage.py up` runs it without any variable."""
    return uses_sqlite() and not served_beyond_this_machine()


def debug_is_private(**_: object) -> list[CheckMessage]:
    """E001: debug pages show settings and source."""
    if settings.DEBUG and served_beyond_this_machine():
        return [
            Error(
                "Debug pages are on while the console is served beyond this machine.",
                hint="Set GPUPOOLS_DEBUG=false, or name only loopback hosts in GPUPOOLS_ALLOWED_HOSTS.",
                id="gpupools.E001",
            )
        ]
    return []


def secret_key_is_kept(**_: object) -> list[CheckMessage]:
    """E002: a key made up at start signs sessions that no other process and no restart can read."""
    if settings.GPUPOOLS_SECRET_KEY_IS_TEMPORARY and not is_embedded():
        return [
            Error(
                "No secret key is set.",
                hint="Set GPUPOOLS_SECRET_KEY or GPUPOOLS_SECRET_KEY_FILE to 50 or more random characters.",
                id="gpupools.E002",
            )
        ]
    return []


def secret_key_is_long(**_: object) -> list[CheckMessage]:
    """E003: a short key can be guessed, and with it every session forged."""
    key = settings.SECRET_KEY
    if len(key) < SHORTEST_SECRET_KEY or len(set(key)) < FEWEST_DIFFERENT_CHARACTERS:
        return [
            Error(
                f"The secret key is weak: {len(key)} characters, {len(set(key))} of them different.",
                hint=f"GPUPOOLS_SECRET_KEY needs {SHORTEST_SECRET_KEY} or more random characters.",
                id="gpupools.E003",
            )
        ]
    return []


def credentials_key_is_kept(**_: object) -> list[CheckMessage]:
    """E004: without it no cluster can be connected."""
    if not settings.GPUPOOLS_CREDENTIALS_KEY and not is_embedded():
        return [
            Error(
                "No key for the clusters' credentials is set.",
                hint="Set GPUPOOLS_CREDENTIALS_KEY or GPUPOOLS_CREDENTIALS_KEY_FILE to a Fernet key.",
                id="gpupools.E004",
            )
        ]
    return []


def credentials_key_is_a_key(**_: object) -> list[CheckMessage]:
    """E005: 32 random bytes, as URL-safe base64."""
    if not settings.GPUPOOLS_CREDENTIALS_KEY:
        return []
    try:
        Fernet(settings.GPUPOOLS_CREDENTIALS_KEY.encode())
    except ValueError:
        return [
            Error(
                "The key for the clusters' credentials is not a Fernet key.",
                hint="GPUPOOLS_CREDENTIALS_KEY is 32 random bytes as URL-safe base64, 44 characters: "
                "head -c 32 /dev/urandom | base64 | tr +/ -_",
                id="gpupools.E005",
            )
        ]
    return []


def denied_addresses_are_readable(**_: object) -> list[CheckMessage]:
    """E007: a mistyped network would deny nothing."""
    wrong = []
    for text in settings.GPUPOOLS_DENIED_ADDRESSES:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            if "/" in text or not any(letter.isalpha() for letter in text):
                wrong.append(text)
    if wrong:
        return [
            Error(
                f"GPUPOOLS_DENIED_ADDRESSES holds what is neither a network nor a host: {', '.join(wrong)}.",
                hint="Write networks as 10.0.0.0/8, hosts by their name, domains with a dot before them.",
                id="gpupools.E007",
            )
        ]
    return []


def insecure_tls_is_known(**_: object) -> list[CheckMessage]:
    """W008: clusters whose certificates nobody checks."""
    if settings.GPUPOOLS_ALLOW_INSECURE_TLS and served_beyond_this_machine():
        return [
            Warning(
                "Clusters may be connected without a check of their certificates.",
                hint="Give their certificate-authority-data instead, and set GPUPOOLS_ALLOW_INSECURE_TLS=false.",
                id="gpupools.W008",
            )
        ]
    return []


def hosts_are_named(**_: object) -> list[CheckMessage]:
    """E006: any Host header would be believed, also by live pages when they check who opens them."""
    if "*" in settings.ALLOWED_HOSTS:
        return [
            Error(
                "Every host name is allowed.",
                hint="Name the console's own hosts in GPUPOOLS_ALLOWED_HOSTS.",
                id="gpupools.E006",
            )
        ]
    return []


def bound_host_is_allowed(**_: object) -> list[CheckMessage]:
    """W001: a console that listens for others and answers 400 to all of them."""
    if not is_loopback(settings.GPUPOOLS_HOST) and all(is_loopback(host) for host in settings.ALLOWED_HOSTS):
        return [
            Warning(
                f"The console listens on {settings.GPUPOOLS_HOST}, but no host name of it is allowed.",
                hint="Name the host that people type in GPUPOOLS_ALLOWED_HOSTS.",
                id="gpupools.W001",
            )
        ]
    return []


def loopback_clusters_are_local(**_: object) -> list[CheckMessage]:
    """W002: whoever may connect a cluster could then reach this machine's own services."""
    if settings.GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS and served_beyond_this_machine():
        return [
            Warning(
                "Clusters on loopback addresses are allowed while the console is served beyond this machine.",
                hint="Set GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS=false; only the embedded cluster needs it.",
                id="gpupools.W002",
            )
        ]
    return []


def sqlite_is_on_one_machine(**_: object) -> list[CheckMessage]:
    """W003: a shared broker hints at several machines, which cannot share an SQLite file."""
    broker = urlsplit(settings.REDIS_URL).hostname or ""
    if uses_sqlite() and served_beyond_this_machine() and not is_loopback(broker):
        return [
            Warning(
                "Rows are in an SQLite file while the broker is on another machine.",
                hint="Set DATABASE_URL to PostgreSQL when the console runs on more than one machine.",
                id="gpupools.W003",
            )
        ]
    return []


def cookies_are_safe(**_: object) -> list[CheckMessage]:
    """W004: sessions and passwords would cross the network in the clear."""
    if served_beyond_this_machine() and not settings.GPUPOOLS_HTTPS:
        return [
            Warning(
                "The console is served beyond this machine without HTTPS.",
                hint="Put a proxy that ends TLS in front and set GPUPOOLS_HTTPS=true.",
                id="gpupools.W004",
            )
        ]
    return []


def origins_match_https(**_: object) -> list[CheckMessage]:
    """W005: an http origin is never trusted in practice when every page is https."""
    plain = [origin for origin in settings.CSRF_TRUSTED_ORIGINS if origin.startswith("http://")]
    if settings.GPUPOOLS_HTTPS and plain:
        return [
            Warning(
                f"HTTPS is on, but {', '.join(plain)} is trusted without it.",
                hint="Write https:// origins in GPUPOOLS_TRUSTED_ORIGINS.",
                id="gpupools.W005",
            )
        ]
    return []


def polls_do_not_overlap(**_: object) -> list[CheckMessage]:
    """W006: a cluster that times out would be asked again before the first question has ended."""
    if settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS > settings.GPUPOOLS_POLL_SECONDS:
        return [
            Warning(
                f"A cluster may take {settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS} s to answer, "
                f"but is polled every {settings.GPUPOOLS_POLL_SECONDS} s.",
                hint="Keep GPUPOOLS_CLUSTER_TIMEOUT_SECONDS at or below GPUPOOLS_POLL_SECONDS.",
                id="gpupools.W006",
            )
        ]
    return []


def two_people_decide(**_: object) -> list[CheckMessage]:
    """W007: whoever asks for a mode change or another operation may also approve it."""
    if settings.GPUPOOLS_ALLOW_SELF_APPROVAL:
        return [
            Warning(
                "People may approve their own mode changes and requests.",
                hint="Set GPUPOOLS_ALLOW_SELF_APPROVAL=false as soon as there is a second administrator.",
                id="gpupools.W007",
            )
        ]
    return []


CHECKS: tuple[Callable[..., list[CheckMessage]], ...] = (
    debug_is_private,
    secret_key_is_kept,
    secret_key_is_long,
    credentials_key_is_kept,
    credentials_key_is_a_key,
    denied_addresses_are_readable,
    insecure_tls_is_known,
    hosts_are_named,
    bound_host_is_allowed,
    loopback_clusters_are_local,
    sqlite_is_on_one_machine,
    cookies_are_safe,
    origins_match_https,
    polls_do_not_overlap,
    two_people_decide,
)
