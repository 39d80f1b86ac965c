"""Node pools: the list, and one pool beside its nodes. What is done to pools is in poolcreate, pooledit, poolcuts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from gpupools.domain.cgpupolicy import POLICIES
from gpupools.domain.changes import State
from gpupools.domain.instances import BY_NAME
from gpupools.domain.modes import Mode, PlacementPolicy, mode_labels
from gpupools.errors import Missing
from gpupools.models import NodePool, OperationRequest
from gpupools.services import diagnosing, nodes, pooladvice
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm
from gpupools.web.lines import CGPU_MODES, Fresh, PoolLine, heads, in_order, node_lines, pool_lines
from gpupools.web.paging import page_of
from gpupools.web.shell import show

NODES_PER_PAGE = 50
POLICY_TEXTS = {
    PlacementPolicy.BINPACK.value: gettext_lazy("Fill one card before the next. Leaves whole cards free."),
    PlacementPolicy.SPREAD.value: gettext_lazy("Fill all cards evenly. One broken card hits fewer pods."),
}


class ScaleForm(ConsoleForm):
    """How many machines an ACK pool shall have."""

    desired_size = forms.IntegerField(label=gettext_lazy("Wanted nodes"), min_value=0)
    enable = forms.BooleanField(label=gettext_lazy("Let ACK scale the pool by itself"), required=False)
    min_instances = forms.IntegerField(label=gettext_lazy("Not below"), required=False, min_value=0)
    max_instances = forms.IntegerField(label=gettext_lazy("Not above"), required=False, min_value=0)

    def wishes(self) -> dict[str, Any]:
        """Return what the service asks for."""
        typed = self.cleaned_data
        bounds = {key: typed[key] or 0 for key in ("min_instances", "max_instances")}
        return {"desired_size": typed["desired_size"], "auto_scaling": {"enable": typed["enable"], **bounds}}


def pool_of(request: HttpRequest, cluster: str, name: str) -> NodePool:
    """Return the pool of the address; raises Missing."""
    here = cluster_of(request, cluster)
    found = NodePool.objects.select_related("cluster").filter(cluster=here, name=name).first()
    if found is None:
        raise Missing(_("Cluster %(cluster)s has no node pool %(name)s.") % {"cluster": here.name, "name": name})
    return found


def waiting_for(actor: Actor, pool: NodePool) -> QuerySet[OperationRequest]:
    """Return the operations on a pool that are asked for and wait for a second person."""
    rows = pool.operation_requests.visible_to(actor).select_related("requested_by")
    return rows.filter(state=State.PENDING.value)


def line_of(actor: Actor, pool: NodePool) -> tuple[PoolLine, Fresh]:
    """Put one pool beside its nodes and numbers."""
    listing = nodes.listing(actor, pool.cluster)
    lines = node_lines(actor, pool.cluster, listing)
    (line,) = pool_lines([pool], pool.cluster, lines, known=listing.taken_at is not None)
    return line, Fresh(listing.taken_at)


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List the node pools of a cluster, narrowed by a text, a mode and a state, in the order that a head asks for."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    listing = nodes.listing(actor, here)
    known = listing.taken_at is not None
    rows = NodePool.objects.filter(cluster=here)
    with_gone = "gone" in request.GET
    shown = rows if with_gone else rows.exclude(state=NodePool.State.GONE)
    every = pool_lines(shown, here, node_lines(actor, here, listing), known=known)
    wanted = {key: request.GET.get(key, "").strip() for key in ("q", "mode", "state")}
    order = request.GET.get("sort", "")
    lines = in_order([line for line in every if _matches(line, **wanted)], order)
    context = {
        "nav": "pools",
        "lines": lines,
        "advice": {str(pk): found for pk, found in pooladvice.of_all(actor, here).items()},
        "total": len(every),
        "node_total": sum(line.actual or 0 for line in lines),
        "wanted": wanted,
        "order": order,
        "heads": heads(order),
        "modes": sorted({line.pool.mode for line in every if line.pool.mode}),
        "states": sorted({(line.pool.state, line.pool.get_state_display()) for line in every}),
        "fresh": Fresh(listing.taken_at),
        "loose": sum(facts.node.is_gpu and not facts.pool for facts in listing.rows),
        "known": known,
        "gone": rows.filter(state=NodePool.State.GONE).count(),
        "with_gone": with_gone,
    }
    return show(request, "pools.html", context)


def _matches(line: PoolLine, *, q: str, mode: str, state: str) -> bool:
    if mode and mode != line.pool.mode and mode not in line.found_modes:
        return False
    if state and state != line.pool.state:
        return False
    labels = (f"{key}={value}" for key, value in line.pool.labels.items())
    text = " ".join((line.pool.name, line.pool.pool_id, *line.pool.instance_types, *labels)).lower()
    return all(word in text for word in q.lower().split())


@require_safe
@page
def detail(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Show a pool: wanted and actual, nodes, labels, drift, changes."""
    return show_pool(request, pool_of(request, cluster, name))


def show_pool(request: HttpRequest, pool: NodePool, *, status: int = 200, **forms_given: ConsoleForm) -> HttpResponse:
    """Show a pool, with forms as they were refused."""
    line, fresh = line_of(actor_of(request), pool)
    policy = PlacementPolicy(pool.policy) if pool.policy else None
    context = {
        "nav": "pools",
        "line": line,
        "pool": pool,
        "fresh": fresh,
        "diagnosis": diagnosing.report(actor_of(request), pool.cluster, pool=pool.name),
        "scale_form": ScaleForm(initial={**pool.auto_scaling, "desired_size": pool.desired_size}),
        "page_obj": page_of(request, line.lines, NODES_PER_PAGE),
        # Nodes in several modes are a diagnosis already, with each of them named.
        "advice": [each for each in pooladvice.of(actor_of(request), pool) if each.code != "mixed-modes"],
        "cgpu_policy": pooladvice.cgpu_policy(pool.cluster) if pool.mode in CGPU_MODES else None,
        "compute_policies": POLICIES,
        "card_types": [BY_NAME[name] for name in pool.instance_types if name in BY_NAME],
        "mode_labels": mode_labels(Mode(pool.mode), policy) if pool.mode else {},
        "changes": pool.changes.select_related("requested_by")[:10],
        "requests": waiting_for(actor_of(request), pool),
        **forms_given,
    }
    return show(request, "pool.html", context, status=status)
