"""Nodes: the list, and one node with its cards, holders and live checks."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import ACK_POOL_LABEL, GPU_RESOURCES
from gpupools.errors import Missing
from gpupools.models import Cluster, NodePool
from gpupools.services import diagnosing, nodes, pods
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.lines import Fresh, NodeLine, node_lines
from gpupools.web.paging import page_of
from gpupools.web.shell import show

ROWS_PER_PAGE = 200


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List the nodes of a cluster, narrowed by a text and a mode."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    listing = nodes.listing(actor, here)
    query, mode = request.GET.get("q", "").strip(), request.GET.get("mode", "")
    every = node_lines(actor, here, listing)
    chosen = [line for line in every if _matches(line, query.lower(), mode)]
    context = {
        "nav": "nodes",
        "page_obj": page_of(request, chosen, ROWS_PER_PAGE),
        "total": len(every),
        "shown": len(chosen),
        "query": query,
        "mode": mode,
        "modes": sorted({line.facts.mode or "unknown" for line in every if line.row}),
        "fresh": Fresh(listing.taken_at),
        "known": listing.taken_at is not None,
    }
    return show(request, "nodes.html", context)


def _matches(line: NodeLine, query: str, mode: str) -> bool:
    facts = line.facts
    if mode and (facts.mode or "unknown") != mode:
        return False
    text = " ".join((facts.name, facts.node.ip, facts.pool, facts.node.card_model, facts.node.instance_type))
    return all(word in text.lower() for word in query.split())


@require_safe
@page
def detail(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show one node: what it declares, what it reports, what each card holds."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    lines = node_lines(actor, here, nodes.listing(actor, here, name=name))
    if not lines:
        raise Missing(_("Cluster %(cluster)s has no node %(name)s now.") % {"cluster": here.name, "name": name})
    held = pods.listing(actor, here, pods.Filters(node=name))
    facts = lines[0].facts
    context = {
        "nav": "nodes",
        "line": lines[0],
        "facts": facts,
        "row": lines[0].row,
        "pods": held.rows,
        "hidden_pods": _hidden(lines[0]),
        "diagnosis": diagnosing.report(actor, here, node=facts.name),
        "fresh": Fresh(held.taken_at),
        "labels": sorted(facts.node.labels.items()),
        "targets": _targets(here, facts),
        "is_of_ack": here.provider == Cluster.Provider.KUBERNETES and ACK_POOL_LABEL in facts.node.labels,
        "resources": _resources(facts.node),
    }
    return show(request, "node.html", context)


def _targets(cluster: Cluster, facts: nodes.NodeFacts) -> list[NodePool]:
    """Return the pools that the node could go into."""
    others = NodePool.objects.filter(cluster=cluster, state=NodePool.State.ACTIVE).exclude(mode="").order_by("name")
    return [pool for pool in others if facts.pool_row is None or pool.pk != facts.pool_row.pk]


def _hidden(line: NodeLine) -> int:
    """Count the holders whose names the reader may not see."""
    row = line.row
    return sum(not each["namespace"] for each in row["holdings"]) if row else 0


def _resources(node: GpuNode) -> list[tuple[str, tuple[object, object]]]:
    """Return what the node reports of GPU resources, by exact key; a key that is not there stays a dash."""
    return [
        (name, (node.allocatable.get(name, "—"), node.capacity.get(name, "—")))
        for name in GPU_RESOURCES
        if name in node.allocatable or name in node.capacity
    ]
