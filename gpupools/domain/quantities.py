"""Kubernetes quantities (``16Gi``, ``500m``, ``4``) as whole numbers and back; it knows few resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from gpupools.errors import Invalid

CPU = "cpu"
BYTES = frozenset({"memory", "ephemeral-storage", "storage"})

_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
}
_POWERS = {suffix: f"e{power}" if power else "" for power, suffix in zip(range(-9, 19, 3), _DECIMAL, strict=True)}
# A three-digit exponent is far beyond what the API server keeps (2**63), and a longer one would eat memory.
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?[0-9]{1,2}))?"
)
_LONGEST = 64
LARGEST = 2**63 - 1  # all that Kubernetes counts with; what is larger counts as this
_INTEGER = re.compile(r"[+-]?[0-9]+")
_ALLOWED = "a Kubernetes quantity such as 4, 500m, 16Gi or 1e3"


@lru_cache(maxsize=4096)
def exact_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity in its base unit; raise Invalid for anything else."""
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        shown = text[:_LONGEST]
        raise Invalid.field("quantity", f"{shown!r} is not a quantity.", code="quantity", found=shown, allowed=_ALLOWED)
    number = Fraction(found["number"])
    if found["power"]:
        return number * Fraction(10) ** int(found["power"])
    suffix = found["suffix"] or ""
    return number * (_BINARY[suffix] if suffix in _BINARY else _DECIMAL[suffix])


@lru_cache(maxsize=4096)
def _whole(text: str, milli: bool) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST:  # nearly all quantities of nodes and pods
        return min(int(text) * 1000 if milli else int(text), LARGEST)
    value = exact_quantity(text) * (1000 if milli else 1)
    return max(-LARGEST, min(-(-value.numerator // value.denominator), LARGEST))


def parse_quantity(value: str | int | float | None, *, milli: bool = False) -> int:
    """Return a quantity as a whole number of base units, or of thousandths, at most ``LARGEST``; fractions round up.

    Numbers are taken as YAML and JSON give them. Raises Invalid (field ``quantity``).
    """
    return _whole(quantity_text(value), milli)


def quantity_text(value: str | int | float | None) -> str:
    """Return a quantity of a YAML or JSON document as text: null is 0, and blanks stay, for they make it none."""
    return value if isinstance(value, str) else "0" if value is None else str(value)


def is_integer(text: str) -> bool:
    """Whether a text is a whole number in ASCII digits, however large."""
    return _INTEGER.fullmatch(text) is not None


def integer(text: str) -> int | None:
    """Return the whole number that Kubernetes' own programs read in a label or an annotation.

    None for anything else, among it what does not fit into 64 bits and what only Python takes (``1_0``, ``４``).
    """
    digits = text.lstrip("+-0")
    if not is_integer(text) or len(digits) > len(str(LARGEST)):
        return None
    number = int(digits or "0") * (-1 if text.startswith("-") else 1)
    return number if -LARGEST - 1 <= number <= LARGEST else None


def parse_resources(raw: Mapping[str, str | int | float | None] | None, *, field: str = "") -> dict[str, int]:
    """Read a resource list: cpu in millicores, everything else in its base unit.

    Raises Invalid whose field is ``<field>[<resource>]``.
    """
    resources = {}
    for name, value in (raw or {}).items():
        try:
            resources[name] = parse_quantity(value, milli=name == CPU)
        except Invalid as error:
            where = f"{field}[{name}]"
            found = error.errors[0].found
            raise Invalid.field(
                where,
                f"{where}: {found!r} is not a quantity.",
                code="quantity",
                found=found,
                allowed=_ALLOWED,
            ) from None
    return resources


def format_quantity(resource: str, value: int) -> str:
    """Write a value of ``GpuNode.allocatable`` as a quantity: ``500m``, ``16Gi``, ``4``."""
    if resource == CPU:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if resource in BYTES or resource.startswith("hugepages-"):
        for suffix, factor in reversed(_BINARY.items()):
            if value and value % factor == 0:
                return f"{value // factor}{suffix}"
    return str(value)


def canonical(value: str | int | float) -> str:
    """Write a quantity as the API server repeats it: 0.5 is ``500m``, 1000 ``1k``, 1024Ki ``1Mi``, 1e4 ``10e3``."""
    text = quantity_text(value)
    exact = exact_quantity(text)
    if exact == 0:
        return "0"
    if text.endswith("i") and exact.denominator == 1:
        for suffix, factor in reversed(_BINARY.items()):
            if exact.numerator % factor == 0:
                return f"{exact.numerator // factor}{suffix}"
        return str(exact.numerator)
    by_power = text[-1:].isdigit() and "e" in text.lower()
    for suffix, unit in reversed(_DECIMAL.items()):
        count = exact / unit
        if count.denominator == 1:
            return f"{count.numerator}{_POWERS[suffix] if by_power else suffix}"
    nanos = exact * 10**9
    return f"{-(-nanos.numerator // nanos.denominator)}{'e-9' if by_power else 'n'}"
