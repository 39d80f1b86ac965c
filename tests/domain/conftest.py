"""Property tests of the rules: the same examples in every run, and none kept between runs.

The rules know no Django, browser or event loop, so their tests do without the fixtures that plugins give every test.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import settings

settings.register_profile("domain", derandomize=True, database=None, max_examples=25, deadline=None)
settings.load_profile("domain")


def pytest_sessionstart() -> None:
    """Let what plugins have loaded stay: to look through it again and again takes half of the collection."""
    gc.freeze()


@cache
def named_by(function: Callable[..., object]) -> frozenset[str]:
    """Return the names of a test's arguments."""
    return frozenset(inspect.signature(function).parameters)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave a test the fixtures that it names itself: those of plugins take longer than most of these tests."""
    if isinstance(item, pytest.Function):
        named = named_by(item.function)
        item.fixturenames[:] = [name for name in item.fixturenames if name in named]
