"""The GPU dashboard: every node, every card, drawn once by the server and kept live by the script."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from gpupools.domain.modes import MODES, ModeFacts
from gpupools.services import allocation, diagnosing, nodes
from gpupools.services.rows import NodeRow
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.paging import natural, page_of
from gpupools.web.shell import show

# Drawing a node costs a millisecond here; the script draws the rest from the socket's first message.
FIRST_PAINT = 60


@require_safe
@page
def dashboard(request: HttpRequest, cluster: str) -> HttpResponse:
    """Show what every card holds, as of the current numbers; the socket goes on from there."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    snapshot = allocation.view(here, actor.namespaces(here))
    totals = snapshot["totals"]
    every = sorted(snapshot["nodes"], key=lambda row: natural(row["node"]))
    query = request.GET.get("q", "").strip()
    chosen = [row for row in every if _matches(row, query.lower().split(), request.GET.get("mode", ""))]
    page_obj = page_of(request, chosen, FIRST_PAINT)
    context = {
        "nav": "dashboard",
        "live": True,
        "snapshot": {**snapshot, "nodes": list(page_obj)},
        "page_obj": page_obj,
        "diagnosis": diagnosing.report(actor, here),
        "query": query,
        "shown": len(chosen),
        "total": len(every),
        "all": totals["all"] if totals else None,
        "tiles": _tiles(totals["modes"] if totals else []),
        "mode_facts": {mode.value: _for_script(facts) for mode, facts in MODES.items()},
        "node_url": reverse("web:node", args=(here.name, "__node__")),
        "pod_url": reverse("web:pod", args=(here.name, "__namespace__", "__pod__")),
    }
    return show(request, "dashboard.html", context)


def _matches(row: NodeRow, words: list[str], mode: str) -> bool:
    # Without the script the filter is a form; with it, the script goes on from the same address.
    if mode and (row["mode"] or "unknown") != mode:
        return False
    pods = [text for each in (*row["holdings"], *row["unplaced"]) for text in (each["pod"], each["owner"])]
    text = " ".join((row["node"], row["ip"], row["pool"], row["model"], row["mode"] or "", *pods)).lower()
    return all(word in text for word in words)


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
