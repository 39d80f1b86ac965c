"""System checks of settings: each speaks up for its own case, and all are silent on the embedded defaults."""

import warnings
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.checks import CheckMessage
from django.test import override_settings

from gpupools.checks import CHECKS

POSTGRESQL = {"default": {"ENGINE": "django.db.backends.postgresql"}}
SQLITE = {"default": {"ENGINE": "django.db.backends.sqlite3"}}
EMBEDDED: dict[str, Any] = {
    "ALLOWED_HOSTS": ["localhost", "127.0.0.1", "[::1]"],
    "CSRF_TRUSTED_ORIGINS": [],
    "DATABASES": SQLITE,
    "DEBUG": False,
    "GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS": False,
    "GPUPOOLS_ALLOW_SELF_APPROVAL": False,
    "GPUPOOLS_CLUSTER_TIMEOUT_SECONDS": 10,
    "GPUPOOLS_CREDENTIALS_KEY": "",
    "GPUPOOLS_ALLOW_INSECURE_TLS": False,
    "GPUPOOLS_DENIED_ADDRESSES": ["10.0.0.0/8", "fd00::1", "host.example.com", ".corp.example.com"],
    "GPUPOOLS_HOST": "127.0.0.1",
    "GPUPOOLS_HTTPS": False,
    "GPUPOOLS_POLL_SECONDS": 15,
    "GPUPOOLS_SECRET_KEY_IS_TEMPORARY": True,
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "SECRET_KEY": "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
}
PRODUCTION: dict[str, Any] = {
    **EMBEDDED,
    "ALLOWED_HOSTS": ["console.example.com"],
    "CSRF_TRUSTED_ORIGINS": ["https://console.example.com"],
    "DATABASES": POSTGRESQL,
    "GPUPOOLS_CREDENTIALS_KEY": Fernet.generate_key().decode(),
    "GPUPOOLS_HOST": "0.0.0.0",
    "GPUPOOLS_HTTPS": True,
    "GPUPOOLS_SECRET_KEY_IS_TEMPORARY": False,
    "REDIS_URL": "redis://cache.example.com:6379/0",
}


def said_by_all(base: dict[str, Any], **changed: Any) -> list[CheckMessage]:
    with warnings.catch_warnings():
        # Django warns of overriding DATABASES; the checks read the setting and open no connection.
        warnings.filterwarnings("ignore", message="Overriding setting DATABASES")
        with override_settings(**{**base, **changed}):
            return [message for check in CHECKS for message in check()]


def ids_said(base: dict[str, Any], **changed: Any) -> set[str]:
    return {message.id for message in said_by_all(base, **changed)}


CASES = [
    ("one person who asks and decides", PRODUCTION, {"GPUPOOLS_ALLOW_SELF_APPROVAL": True}, "W007"),
    ("debug beyond this machine", PRODUCTION, {"DEBUG": True}, "E001"),
    ("no secret key in production", PRODUCTION, {"GPUPOOLS_SECRET_KEY_IS_TEMPORARY": True}, "E002"),
    ("a short secret key", EMBEDDED, {"SECRET_KEY": "abcdefghij"}, "E003"),
    ("a secret key of one letter", EMBEDDED, {"SECRET_KEY": "a" * 80}, "E003"),
    ("no credentials key in production", PRODUCTION, {"GPUPOOLS_CREDENTIALS_KEY": ""}, "E004"),
    ("a credentials key that is none", EMBEDDED, {"GPUPOOLS_CREDENTIALS_KEY": "swordfish"}, "E005"),
    ("a network that is none", EMBEDDED, {"GPUPOOLS_DENIED_ADDRESSES": ["10.0.0/8"]}, "E007"),
    ("clusters without certificates", PRODUCTION, {"GPUPOOLS_ALLOW_INSECURE_TLS": True}, "W008"),
    ("every host allowed", PRODUCTION, {"ALLOWED_HOSTS": ["*"]}, "E006"),
    ("listening for others, answering none", EMBEDDED, {"GPUPOOLS_HOST": "0.0.0.0"}, "W001"),
    ("loopback clusters in production", PRODUCTION, {"GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS": True}, "W002"),
    ("SQLite with a shared broker", PRODUCTION, {"DATABASES": SQLITE}, "W003"),
    ("no HTTPS beyond this machine", PRODUCTION, {"GPUPOOLS_HTTPS": False}, "W004"),
    ("a plain origin under HTTPS", PRODUCTION, {"CSRF_TRUSTED_ORIGINS": ["http://console.example.com"]}, "W005"),
    ("a timeout above the poll", EMBEDDED, {"GPUPOOLS_CLUSTER_TIMEOUT_SECONDS": 60}, "W006"),
]


@pytest.mark.parametrize(("base", "changed", "identity"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_check_speaks_up_for(base: dict[str, Any], changed: dict[str, Any], identity: str):
    assert f"gpupools.{identity}" in ids_said(base, **changed)


@pytest.mark.parametrize("base", [EMBEDDED, PRODUCTION], ids=["embedded defaults", "production"])
def test_all_are_silent_on(base: dict[str, Any]):
    assert ids_said(base) == set()


def test_loopback_clusters_are_fine_on_the_embedded_console():
    assert ids_said(EMBEDDED, GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS=True) == set()


def test_debug_is_fine_on_this_machine_alone():
    assert ids_said(EMBEDDED, DEBUG=True) == set()


def test_no_check_shows_a_secret():
    weak = "swordfish"
    messages = said_by_all(PRODUCTION, SECRET_KEY=weak, GPUPOOLS_CREDENTIALS_KEY=weak)
    said = " ".join(f"{message.msg} {message.hint}" for message in messages)
    assert said
    assert weak not in said


def test_every_check_has_a_case():
    assert len(CHECKS) == len({case[3] for case in CASES})
