"""The GPU dashboard: every node, every card, drawn once by the server and kept live by the script."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from gpupools.domain.modes import MODES, ModeFacts
from gpupools.services import allocation, nodes
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.shell import show


@require_safe
@page
def dashboard(request: HttpRequest, cluster: str) -> HttpResponse:
    """Show what every card holds, as of the current numbers; the socket goes on from there."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    snapshot = allocation.view(here, actor.namespaces(here))
    totals = snapshot["totals"]
    context = {
        "nav": "dashboard",
        "live": True,
        "snapshot": snapshot,
        "all": totals["all"] if totals else None,
        "tiles": _tiles(totals["modes"] if totals else []),
        "mode_facts": {mode.value: _for_script(facts) for mode, facts in MODES.items()},
        "node_url": reverse("web:node", args=(here.name, "__node__")),
        "pod_url": reverse("web:pod", args=(here.name, "__namespace__", "__pod__")),
        "tables": nodes.tables(actor, here) if totals else None,
    }
    return show(request, "dashboard.html", context)


def _tiles(sums: list[dict[str, Any]]) -> list[tuple[str, ModeFacts | None, dict[str, Any] | None]]:
    by_mode = {each["mode"] or "unknown": each for each in sums}
    known = [(mode.value, facts, by_mode.get(mode.value)) for mode, facts in MODES.items()]
    return [*known, ("unknown", None, by_mode.get("unknown"))]


def _for_script(facts: ModeFacts) -> dict[str, Any]:
    return {"code": facts.code, "title": facts.title, "shared": facts.shared}


@require_safe
@page
def text(request: HttpRequest, cluster: str) -> HttpResponse:
    """Answer the same numbers as text, laid out as ``kubectl inspect cgpu`` does."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    found = nodes.tables(actor, here)
    return HttpResponse(f"{found.shared}\n{found.whole}", content_type="text/plain; charset=utf-8")
