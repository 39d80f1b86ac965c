"""Cutting long lists into pages; the page's number is in the address."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest


def page_of(request: HttpRequest, entries: Any, per_page: int) -> Page[Any]:
    """Return the page that the address names; a number out of range becomes the nearest."""
    return Paginator(entries, per_page).get_page(request.GET.get("page"))
