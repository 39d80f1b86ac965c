"""A number, opened: the pods that make it up."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from gpupools.errors import Missing
from gpupools.services import explaining
from gpupools.services.explaining import Figure
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.lines import Fresh
from gpupools.web.paging import page_of
from gpupools.web.shell import show

ROWS_PER_PAGE = 200
TITLES = {
    Figure.MEMORY_UNITS_USED: _("GPU memory, units allocated"),
    Figure.MEMORY_UNITS_RELEASING: _("GPU memory, units that terminating pods still hold"),
    Figure.MEMORY_UNITS_PENDING: _("GPU memory, units on no card that can be read"),
    Figure.MEMORY_UNITS_ORPHAN: _("GPU memory, units on cards that are not there or from a former mode"),
    Figure.CORE_PERCENT_USED: _("Compute, per cent of a card allocated"),
    Figure.CARDS_USED: _("Cards in use"),
    Figure.CARDS_RELEASING: _("Cards that only terminating pods still hold"),
}


@require_safe
@page
def explain(request: HttpRequest, cluster: str, figure: str) -> HttpResponse:
    """Show a figure of a card, a node, a pool or the cluster, and its summands."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    if figure not in set(Figure):
        raise Missing(f"There is no figure {figure[:40]}.", code="no-such-figure")
    gpu = request.GET.get("gpu", "")
    if gpu and not (gpu.isascii() and gpu.isdigit() and len(gpu) < 6):
        raise Missing("There is no such card.", code="no-such-card")
    number = explaining.explain(
        actor,
        here,
        Figure(figure),
        node=request.GET.get("node", ""),
        gpu=int(gpu) if gpu else None,
        pool=request.GET.get("pool", ""),
    )
    context = {
        "nav": "dashboard",
        "number": number,
        "title": TITLES[number.figure],
        "titles": [(each.value, title) for each, title in TITLES.items()],
        "page_obj": page_of(request, number.parts, ROWS_PER_PAGE),
        "fresh": Fresh(number.taken_at),
    }
    return show(request, "explain.html", context)
