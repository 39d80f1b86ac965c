"""A page between a click and something that cannot be taken back: what it ends, one button to do it, one to leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from gpupools.errors import Conflict, Invalid, Refused, Unreachable
from gpupools.services.pods import PodRow
from gpupools.web.door import status_of
from gpupools.web.shell import show


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. ``consequences``: one sentence each; ``pods``: those that end; ``keep`` leads back to ``back``."""

    nav: str
    title: str
    consequences: Sequence[str]
    button: str
    back: str
    keep: str
    pods: Sequence[PodRow] = ()
    icon: str = "trash"


def confirm(request: HttpRequest, question: Question, act: Callable[[], Any]) -> HttpResponse | None:
    """Ask on GET; act on POST and return None, or the question again with what stands against it."""
    problem, status = "", 200
    if request.method == "POST":
        try:
            act()
        except (Invalid, Conflict, Refused, Unreachable) as error:
            problem, status = error.message, status_of(error)
        else:
            return None
    return show(request, "confirm.html", {"nav": question.nav, "question": question, "problem": problem}, status=status)
