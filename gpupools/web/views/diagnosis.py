"""What is wrong in a cluster: known failures with their evidence and what to do."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gpupools.services import diagnosing
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.lines import Fresh
from gpupools.web.paging import page_of
from gpupools.web.shell import show

ROWS_PER_PAGE = 100


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List everything that was recognised, worst first."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    report = diagnosing.report(actor, here)
    context = {
        "nav": "diagnosis",
        "report": report,
        "page_obj": page_of(request, report.found, ROWS_PER_PAGE),
        "fresh": Fresh(report.taken_at),
    }
    return show(request, "diagnosis.html", context)
