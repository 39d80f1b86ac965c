"""Names, label keys and label values: what Kubernetes allows, and how it says that something is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"

_LABEL_RE, _SUBDOMAIN_RE = re.compile(_LABEL), re.compile(_SUBDOMAIN)
_QUALIFIED_RE, _VALUE_RE = re.compile(_QUALIFIED), re.compile(_VALUE)

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{_VALUE}')"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def label_problems(name: str) -> Iterator[str]:
    """Say what is wrong with an RFC 1123 label: a namespace's name, a container's."""
    if len(name.encode()) > 63:
        yield _too_long(63)
    if not _LABEL_RE.fullmatch(name):
        yield _LABEL_TEXT


def subdomain_problems(name: str) -> Iterator[str]:
    """Say what is wrong with an RFC 1123 subdomain: most objects' names."""
    if len(name.encode()) > 253:
        yield _too_long(253)
    if not _SUBDOMAIN_RE.fullmatch(name):
        yield _SUBDOMAIN_TEXT


def key_problems(key: str) -> Iterator[str]:
    """Say what is wrong with a qualified name: a label's key, a taint's, a resource's."""
    parts = key.split("/")
    if len(parts) > 2:
        yield (
            f"a qualified name {_NAME_PART_TEXT[len('name part ') :]} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if len(parts) == 2:
        if not parts[0]:
            yield "prefix part must be non-empty"
        else:
            yield from (f"prefix part {text}" for text in subdomain_problems(parts[0]))
    name = parts[-1]
    if not name:
        yield "name part must be non-empty"
    elif len(name.encode()) > 63:
        yield f"name part {_too_long(63)}"
    if not _QUALIFIED_RE.fullmatch(name):
        yield _NAME_PART_TEXT


def value_problems(value: str) -> Iterator[str]:
    """Say what is wrong with a label's value."""
    if len(value.encode()) > 63:
        yield _too_long(63)
    if not _VALUE_RE.fullmatch(value):
        yield _VALUE_TEXT


_CONFIG_KEY = r"[-._a-zA-Z0-9]+"


def config_key_problems(key: str) -> Iterator[str]:
    """Say what is wrong with a key of a ConfigMap or Secret."""
    if len(key.encode()) > 253:
        yield _too_long(253)
    if not re.fullmatch(_CONFIG_KEY, key):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            f"'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
        )
    if key in (".", "..") or key.startswith(".."):
        yield "must not be '.'" if key == "." else "must not start with '..'"


def is_percent(text: str) -> bool:
    """Return whether this is a share in percent."""
    return bool(re.fullmatch(r"[0-9]+%", text))
