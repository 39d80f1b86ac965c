"""Cutting long lists into pages, and the order of names in them; the page's number is in the address."""

from __future__ import annotations

import re
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that orders names as people count: n-2 before n-10. The dashboard's script orders the same way."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part)


def page_of(request: HttpRequest, entries: Any, per_page: int) -> Page[Any]:
    """Return the page that the address names; a number out of range becomes the nearest."""
    return Paginator(entries, per_page).get_page(request.GET.get("page"))
