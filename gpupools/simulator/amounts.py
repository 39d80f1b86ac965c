"""Resource amounts as the API server keeps them: read by the domain's rules, written in canonical form."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from gpupools.domain.quantities import exact_quantity, quantity_text
from gpupools.errors import Invalid
from gpupools.simulator.kinds import Object

_BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_STEPS = (
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("", 0),
    ("m", -3),
    ("u", -6),
    ("n", -9),
)

_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BadAmount(Exception):
    """Text that is no quantity; the message is the API server's."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)


def amount(value: str | int | float) -> Fraction:
    """Return the exact value of a quantity; raises BadAmount when it is none."""
    try:
        return exact_quantity(quantity_text(value))
    except Invalid as error:
        raise BadAmount from error


def canonical(value: str | int | float) -> str:
    """Return a quantity as the API server writes it: ``0.5`` is ``500m``, ``1024Mi`` is ``1Gi``, ``4`` is ``4``."""
    return _canonical(quantity_text(value))


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    exact = amount(text)
    if exact == 0:
        return "0"
    if text.endswith("i") and exact.denominator == 1 and abs(exact) >= 1024:
        number, suffix = int(exact), ""
        for name in _BINARY_SUFFIXES:
            if number % 1024:
                break
            number, suffix = number // 1024, name
        return f"{number}{suffix}"
    if text[-1:].isdigit() and "e" in text.lower():
        return _scaled(exact, ((f"e{power}" if power else "", power) for _, power in _DECIMAL_STEPS))
    return _scaled(exact, _DECIMAL_STEPS)


def _scaled(exact: Fraction, steps: Any) -> str:
    """Return the number with the largest suffix that leaves it whole; what is finer than nano rounds up."""
    for suffix, power in steps:
        scaled = exact / Fraction(10) ** power
        if scaled.denominator == 1:
            return f"{scaled.numerator}{suffix}"
    nano = exact * 10**9
    return f"{-(-nano.numerator // nano.denominator)}n"


def tidy(resources: Any) -> None:
    """Write the amounts of a resource list in canonical form, in place."""
    if isinstance(resources, dict):
        for name, value in resources.items():
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                resources[name] = canonical(value)


def tidy_container(container: Object) -> None:
    """Write a container's amounts in canonical form and default its requests from its limits."""
    resources = container.setdefault("resources", {})
    if not isinstance(resources, dict):
        return
    tidy(resources.get("limits"))
    tidy(resources.get("requests"))
    limits = resources.get("limits")
    if isinstance(limits, dict) and limits:
        requests = resources.get("requests") or {}
        resources["requests"] = requests
        for name, value in limits.items():
            requests.setdefault(name, value)


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one (``nvidia.com/gpu``), counted in whole units."""
    domain, slash, _ = name.partition("/")
    if not slash or name.startswith("requests."):
        return False
    return domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
