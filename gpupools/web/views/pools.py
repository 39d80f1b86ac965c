"""Node pools: list, create, look at one, edit its labels and taints. Scaling and deleting is in poolcuts.py."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from gpupools.domain.changes import State
from gpupools.domain.instances import INSTANCE_TYPES
from gpupools.domain.labels import EFFECTS
from gpupools.domain.modes import ACK_POOL_LABEL, CHOOSABLE, MODES, Mode, PlacementPolicy, mode_labels
from gpupools.errors import Missing
from gpupools.models import Cluster, NodePool, Role
from gpupools.services import diagnosing, nodes, pools
from gpupools.services.access import Actor
from gpupools.web.door import actor_of, cluster_of, page, taker
from gpupools.web.forms import ConsoleForm, LabelsField, TaintsField, WordsField, attempt, status_of
from gpupools.web.lines import Fresh, PoolLine, mode_choices, node_lines, pool_lines
from gpupools.web.shell import show

POLICY_TEXTS = {
    PlacementPolicy.BINPACK.value: gettext_lazy("Fill one card before the next. Leaves whole cards free."),
    PlacementPolicy.SPREAD.value: gettext_lazy("Fill all cards evenly. One broken card hits fewer pods."),
}


class PoolForm(ConsoleForm):
    """A node pool that does not exist yet."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=200,
        help_text=gettext_lazy("Lower-case letters, digits and '-', at most 63."),
    )
    mode = forms.ChoiceField(
        label=gettext_lazy("Scheduling mode"),
        choices=[(mode.value, mode.value) for mode in CHOOSABLE],
        widget=forms.RadioSelect,
    )
    policy = forms.ChoiceField(
        label=gettext_lazy("Placement policy"),
        required=False,
        initial=PlacementPolicy.BINPACK.value,
        choices=[(policy.value, policy.value) for policy in PlacementPolicy],
        widget=forms.RadioSelect,
    )
    instance_types = forms.MultipleChoiceField(
        label=gettext_lazy("Instance types"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        choices=[(each.name, each.name) for each in INSTANCE_TYPES],
    )
    other_types = WordsField(
        label=gettext_lazy("Other instance types"),
        required=False,
        help_text=gettext_lazy("Any ECS instance type with GPUs, separated by blanks or commas."),
    )
    desired_size = forms.IntegerField(label=gettext_lazy("Nodes"), required=False, initial=1, min_value=0)
    node_names = forms.MultipleChoiceField(
        label=gettext_lazy("Nodes of this pool"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("A pool is made of nodes that exist. They get the pool's labels and taints."),
    )
    labels = LabelsField(
        label=gettext_lazy("Node labels"),
        required=False,
        help_text=gettext_lazy("Free labels; mode and policy are chosen above. ACK refuses aliyun…, acs:… and http…"),
    )
    taints = TaintsField(
        label=gettext_lazy("Taints"),
        required=False,
        help_text=gettext_lazy("For instance nvidia.com/gpu = present : NoSchedule keeps ordinary pods off the cards."),
    )
    vswitch_ids = WordsField(
        label=gettext_lazy("vSwitch ids"),
        required=False,
        help_text=gettext_lazy("Empty: those of the cluster. Separated by blanks or commas."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason for the mode change"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Needed when a chosen node is in another mode: an administrator must approve."),
    )

    def __init__(self, *args: Any, free: list[Any], makes_machines: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.makes_machines = makes_machines
        self.fields["node_names"].choices = [(line.facts.name, line.facts.name) for line in free]

    def clean(self) -> None:
        """Say together with everything else what the service would only say once the rest is right."""
        typed = self.cleaned_data
        if not self.makes_machines:
            return
        if "desired_size" in typed and typed["desired_size"] is None:
            self.add_error("desired_size", _("Say how many nodes; 0 makes an empty pool."))
        if not typed.get("instance_types") and not typed.get("other_types"):
            message = _("Choose at least one instance type: ACK makes the machines of this pool.")
            self.add_error("instance_types", message)

    def wishes(self, cluster: Cluster) -> dict[str, Any]:
        """Return what the service asks for: only what means something for this provider and mode."""
        typed = self.cleaned_data
        here: dict[str, Any] = {key: typed[key] for key in ("name", "mode", "labels", "taints", "reason")}
        here["policy"] = typed["policy"] if MODES[Mode(typed["mode"])].shared else None
        if cluster.provider == Cluster.Provider.ACK:
            here["instance_types"] = [*typed["instance_types"], *typed["other_types"]]
            here["desired_size"] = typed["desired_size"]
            here["vswitch_ids"] = typed["vswitch_ids"]
        else:
            here["node_names"] = typed["node_names"]
        return here


class EditForm(ConsoleForm):
    """Free labels and taints of a pool; its mode has a way of its own."""

    labels = LabelsField(label=gettext_lazy("Node labels"), required=False)
    taints = TaintsField(label=gettext_lazy("Taints"), required=False)
    update_nodes = forms.BooleanField(
        label=gettext_lazy("Update labels and taints of existing nodes"),
        required=False,
        initial=True,
        help_text=gettext_lazy("Without it only new nodes get them."),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)


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


def line_of(actor: Actor, pool: NodePool) -> tuple[PoolLine, Fresh]:
    """Put one pool beside its nodes and numbers."""
    listing = nodes.listing(actor, pool.cluster)
    lines = node_lines(actor, pool.cluster, listing)
    (line,) = pool_lines([pool], pool.cluster, lines, known=listing.taken_at is not None)
    return line, Fresh(listing.taken_at)


@require_safe
@page
def index(request: HttpRequest, cluster: str) -> HttpResponse:
    """List the node pools of a cluster."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    listing = nodes.listing(actor, here)
    known = listing.taken_at is not None
    every = NodePool.objects.filter(cluster=here)
    with_gone = "gone" in request.GET
    shown = every if with_gone else every.exclude(state=NodePool.State.GONE)
    lines = pool_lines(shown, here, node_lines(actor, here, listing), known=known)
    loose = sum(facts.node.is_gpu and not facts.pool for facts in listing.rows)
    context = {
        "nav": "pools",
        "lines": lines,
        "fresh": Fresh(listing.taken_at),
        "loose": loose,
        "known": known,
        "gone": every.filter(state=NodePool.State.GONE).count(),
        "with_gone": with_gone,
    }
    return show(request, "pools.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def create(request: HttpRequest, cluster: str) -> HttpResponse:
    """Make a node pool: typed mode, policy, instance types or nodes, labels, taints."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.OPERATOR, here)
    free, loose = [], []
    if here.provider == Cluster.Provider.KUBERNETES:
        loose = [line for line in node_lines(actor, here, nodes.listing(actor, here)) if not line.facts.pool]
        free = [line for line in loose if ACK_POOL_LABEL not in line.facts.node.labels]
    form = PoolForm(request.POST or None, free=free, makes_machines=here.provider == Cluster.Provider.ACK)
    if request.method == "POST":
        made = attempt(form, lambda: pools.create(actor, here, **form.wishes(here)))
        if made:
            messages.success(request, _("Node pool %(name)s is being created.") % {"name": made.name})
            return redirect("web:pool", here.name, made.name)
    context = {
        "nav": "pools",
        "form": form,
        "modes": mode_choices(here),
        "policies": POLICY_TEXTS,
        "free": free,
        "of_ack": len(loose) - len(free),
        "instance_types": INSTANCE_TYPES,
        "effects": EFFECTS,
        "chosen_types": form["instance_types"].value() or (),
        "chosen_nodes": form["node_names"].value() or (),
    }
    return show(request, "pool_create.html", context, status=status_of(form))


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
        "effects": EFFECTS,
        "edit_form": EditForm(
            initial={
                "labels": list(pool.labels.items()),
                "taints": [_as_tuple(each) for each in pool.taints],
                "version": pool.version,
                "update_nodes": True,
            }
        ),
        "scale_form": ScaleForm(initial={**pool.auto_scaling, "desired_size": pool.desired_size}),
        "mode_labels": mode_labels(Mode(pool.mode), policy) if pool.mode else {},
        "changes": pool.changes.select_related("requested_by")[:10],
        "requests": pool.operation_requests.filter(state=State.PENDING.value),
        **forms_given,
    }
    return show(request, "pool.html", context, status=status)


def _as_tuple(taint: dict[str, str]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint.get("effect", "")


@taker("web:pool", "cluster", "name")
def edit(request: HttpRequest, cluster: str, name: str) -> HttpResponse:
    """Write free labels and taints."""
    pool = pool_of(request, cluster, name)
    form = EditForm(request.POST)
    if attempt(form, lambda: pools.edit(actor_of(request), pool, **form.cleaned_data)):
        messages.success(request, _("The labels and taints of %(name)s are being written.") % {"name": pool.name})
        return redirect("web:pool", cluster, name)
    return show_pool(request, pool, status=400, edit_form=form)
