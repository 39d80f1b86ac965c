"""Creating a node pool: one form, which leads to one pool per mode, and what to know before it is made."""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from gpupools.domain.cgpupolicy import POLICIES
from gpupools.domain.instances import INSTANCE_TYPES
from gpupools.domain.labels import EFFECTS
from gpupools.domain.modes import ACK_POOL_LABEL, CHOOSABLE, MODES, Mode, PlacementPolicy
from gpupools.models import Cluster, NodePool, Role
from gpupools.services import nodes, pooladvice, pools
from gpupools.services.access import Actor
from gpupools.services.pooladvice import NewPool
from gpupools.web.door import actor_of, cluster_of, page
from gpupools.web.forms import ConsoleForm, LabelsField, TaintsField, WordsField, attempt, status_of
from gpupools.web.lines import mode_choices, node_lines
from gpupools.web.shell import show
from gpupools.web.views.pools import POLICY_TEXTS

FAMILIES = tuple((family, tuple(types)) for family, types in groupby(INSTANCE_TYPES, key=lambda each: each.family))


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
        help_text=gettext_lazy(
            "Any ECS instance type with GPUs, separated by blanks or commas. Of a type that is not listed above, card "
            "model, number and memory are unknown until its first node has joined."
        ),
    )
    desired_size = forms.IntegerField(label=gettext_lazy("Nodes"), required=False, initial=1, min_value=0)
    enable = forms.BooleanField(label=gettext_lazy("Let ACK scale the pool by itself"), required=False)
    min_instances = forms.IntegerField(label=gettext_lazy("Not below"), required=False, min_value=0)
    max_instances = forms.IntegerField(label=gettext_lazy("Not above"), required=False, min_value=0)
    type = forms.ChoiceField(
        label=gettext_lazy("Type of auto scaling"),
        required=False,
        choices=[
            ("", gettext_lazy("by the mode")),
            *((each, each) for each in ("gpu", "gpushare", "cpu", "spot")),
        ],
        help_text=gettext_lazy("By the mode: gpushare for shared cards, gpu for whole ones. ACK never changes it."),
    )
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
    read = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

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
        if typed.get("enable") and "max_instances" in typed and typed["max_instances"] is None:
            self.add_error("max_instances", _("Say up to how many nodes ACK may scale the pool."))

    def wishes(self, cluster: Cluster) -> dict[str, Any]:
        """Return what the service asks for: only what means something for this provider and mode."""
        typed = self.cleaned_data
        here: dict[str, Any] = {key: typed[key] for key in ("name", "mode", "labels", "taints", "reason")}
        here["policy"] = typed["policy"] if MODES[Mode(typed["mode"])].shared else None
        if cluster.provider == Cluster.Provider.ACK:
            here["instance_types"] = [*typed["instance_types"], *typed["other_types"]]
            here["desired_size"] = typed["desired_size"]
            here["vswitch_ids"] = typed["vswitch_ids"]
            bounds = {key: typed[key] or 0 for key in ("min_instances", "max_instances")}
            here["auto_scaling"] = {"enable": typed["enable"], "type": typed["type"], **bounds}
        else:
            here["node_names"] = typed["node_names"]
        return here


@require_http_methods(["GET", "HEAD", "POST"])
@page
def create(request: HttpRequest, cluster: str) -> HttpResponse:
    """Make a node pool: typed mode, policy, instance types or nodes, labels, taints, bounds."""
    actor, here = actor_of(request), cluster_of(request, cluster)
    actor.require(Role.OPERATOR, here)
    free, loose = [], []
    if here.provider == Cluster.Provider.KUBERNETES:
        loose = [line for line in node_lines(actor, here, nodes.listing(actor, here)) if not line.facts.pool]
        free = [line for line in loose if ACK_POOL_LABEL not in line.facts.node.labels]
    form = PoolForm(request.POST or None, free=free, makes_machines=here.provider == Cluster.Provider.ACK)
    new = None
    if request.method == "POST":
        made, new = _made(actor, here, form)
        if made:
            messages.success(request, _("Node pool %(name)s is being created.") % {"name": made.name})
            return redirect("web:pool", here.name, made.name)
    context = {
        "nav": "pools",
        "form": form,
        "new": new,
        "read": _digest(new) if new else "",
        "modes": mode_choices(here),
        "policies": POLICY_TEXTS,
        "free": free,
        "with_gpus": [line for line in free if line.row],
        "without_gpus": [line for line in free if not line.row],
        "of_ack": len(loose) - len(free),
        "families": FAMILIES,
        "effects": EFFECTS,
        "chosen_types": form["instance_types"].value() or (),
        "chosen_nodes": form["node_names"].value() or (),
        "cgpu_policy": pooladvice.cgpu_policy(here),
        "compute_policies": POLICIES,
    }
    return show(request, "pool_create.html", context, status=status_of(form))


def _made(actor: Actor, cluster: Cluster, form: PoolForm) -> tuple[NodePool | None, NewPool | None]:
    """Make the pool, unless there is something to know of it that was not read yet: then return that instead."""
    new = attempt(form, lambda: pooladvice.of_new(actor, cluster, **form.wishes(cluster)))
    if new is None:
        return None, None
    if new.advice and form.cleaned_data["read"] != _digest(new):
        return None, new
    return attempt(form, lambda: pools.create(actor, cluster, **form.wishes(cluster))), new


def _digest(new: NewPool) -> str:
    # What was read is what counts: when the form changes so that there is something else to know, it is shown again.
    said = "\n".join(each.message for each in new.advice)
    return hashlib.sha256(said.encode()).hexdigest()[:32]
