"""Caring for components that are there: upgrade, configure, rehearse manifests, look at each node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from gpupools import clusters
from gpupools.domain import componentmanifests
from gpupools.domain.components import CATALOGUE, NodeHealth, node_health
from gpupools.domain.consolesteps import Manual, manual
from gpupools.domain.differences import Line, differences
from gpupools.domain.modes import Component
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, Invalid, Refused
from gpupools.models import Cluster, ComponentState, OperationRequest, Push, Role
from gpupools.services import (
    allocation,
    audit,
    componentguards,
    componentpushes,
    components,
    pushes,
    radii,
    requestrules,
)
from gpupools.services.access import Actor
from gpupools.services.credentials import connection_of
from gpupools.services.gateways import kubernetes_of
from gpupools.services.requestrules import Wish

LONGEST_CONFIG = 16 * 1024


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What applying one object would do: ``created``, ``changed``, ``unchanged`` or ``refused``, and the values."""

    kind: str
    name: str
    outcome: str
    lines: tuple[Line, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an upgrade would lead to; empty where the provider offers none. ``configuration`` as the provider has it."""

    version: str = ""
    configuration: str = ""


def rehearse(
    actor: Actor, cluster: Cluster, name: str, *, manifests: str = "", image_prefix: str = ""
) -> list[Rehearsal]:
    """Show what uploaded manifests, or the catalogue's, would change in the cluster. Nothing is written."""
    actor.require(Role.ADMIN if manifests else Role.OPERATOR, cluster)
    component = components.known(name)
    documents = (
        componentmanifests.parse(manifests, component, max_bytes=settings.GPUPOOLS_MAX_MANIFEST_BYTES)
        if manifests
        else componentpushes.manifests(component, image_prefix=components.checked_prefix(image_prefix))
    )
    found = []
    with kubernetes_of(cluster) as kubernetes:
        for document in documents:
            kind, _, label = componentmanifests.identity(document)
            try:
                before, after = kubernetes.rehearse(document)
            except (Conflict, Refused, Invalid) as error:
                found.append(Rehearsal(kind, label, "refused", problem=error.message))
                continue
            lines = tuple(differences(before, after))
            outcome = "created" if before is None else "changed" if lines else "unchanged"
            found.append(Rehearsal(kind, label, outcome, lines))
    return found


def offer(actor: Actor, cluster: Cluster, name: str) -> Offer:
    """Ask the provider which version an upgrade leads to and how the add-on is configured."""
    actor.require(Role.OPERATOR, cluster)
    component = components.known(name)
    provider = clusters.addons(connection_of(cluster))
    if provider is None:
        return Offer()
    try:
        return Offer(provider.newest(component.value), provider.configuration(component.value))
    except Refused as error:
        if error.code != componentpushes.NOT_AN_ADDON:
            raise
        return Offer()


def upgrade(
    actor: Actor,
    cluster: Cluster,
    name: str,
    *,
    version: str = "",
    config: str = "",
    image_prefix: str = "",
    manifests: str = "",
    approved_pods: Sequence[str] = (),
    reason: str,
) -> Push | OperationRequest:
    """Upgrade a component or configure it: an add-on to ``version`` (empty: the newest) with ``config``, a JSON text.

    Where it was installed by manifests, they are applied anew: the catalogue's from ``image_prefix``, or uploaded ones.
    Of a component whose restart ends pods, it is by policy a request, which is returned. Where no second person is
    wanted, raises Conflict (code ``kills-pods``) unless the pods that end with its own are approved.
    """
    actor.require(Role.ADMIN if manifests else Role.OPERATOR, cluster)
    component = components.known(name)
    if not reason.strip():
        raise Invalid.field("reason", "Say why the component is upgraded.", code="required")
    state = ComponentState.objects.filter(cluster=cluster, name=component).first()
    if state is not None and state.state == ComponentState.State.ABSENT:
        raise Conflict(f"{component.value} is not installed.", code="absent", component=component.value)
    payload = {
        "component": component.value,
        "version": version.strip()[:64],
        "config": _checked_config(config),
        "image_prefix": components.checked_prefix(image_prefix) if image_prefix.strip() else "",
        "documents": componentmanifests.parse(manifests, component, max_bytes=settings.GPUPOOLS_MAX_MANIFEST_BYTES)
        if manifests.strip()
        else [],
    }
    if CATALOGUE[component].restart_kills:
        # Whoever decides sees the version that it leads to, and not whatever is the newest by then.
        payload["version"] = payload["version"] or offer(actor, cluster, name).version
        if state is not None and payload["version"] and payload["version"] == state.version:
            _check_differs(payload, lambda: offer(actor, cluster, name).configuration, component)
    if CATALOGUE[component].restart_kills and requestrules.needed_for(Kind.MPS_UPGRADE):
        radius = radii.of_component(cluster, component, pools=components.dependents(cluster, component))
        diff = _diff(payload, state)
        wish = Wish(Kind.MPS_UPGRADE, cluster, component.value, radius, payload, diff)
        return requestrules.ask(actor, wish, reason=reason.strip())
    approved = componentguards.approve(actor, cluster, component, approved_pods, deed="Upgrading")
    return renew(actor, cluster, component, payload=payload, approved_pods=approved, reason=reason.strip())


def _check_differs(payload: Mapping[str, Any], configuration: Callable[[], str], component: Component) -> None:
    """Refuse to restart a component, and end its clients, for the version that is there and the configuration that it
    has. Manifests and images of one version may differ.
    """
    if payload["documents"] or payload["image_prefix"]:
        return
    if payload["config"] and json.loads(payload["config"]) != json.loads(configuration() or "{}"):
        return
    version = payload["version"]
    raise Conflict(
        f"{component.value} is at {version} with this configuration already; its clients would end for nothing.",
        code="same",
        component=component.value,
        version=version,
    )


def _diff(payload: Mapping[str, Any], state: ComponentState | None) -> list[tuple[str, str, str]]:
    """Return what an upgrade changes, for people."""
    version = state.version if state is not None else ""
    objects = [" ".join(filter(None, componentmanifests.identity(each))) for each in payload["documents"]]
    lines = [("Version", version, payload["version"])] if payload["version"] else []
    lines += [("Configuration", "", payload["config"])] if payload["config"] else []
    lines += [("Image registry", "", payload["image_prefix"])] if payload["image_prefix"] else []
    return [*lines, *(("Object applied", "", each) for each in objects)]


@transaction.atomic
def renew(
    actor: Actor,
    cluster: Cluster,
    component: Component,
    *,
    payload: Mapping[str, Any],
    approved_pods: Sequence[str],
    **because: object,
) -> Push:
    """Queue an upgrade by which these pods may end. Whoever calls has checked the rules."""
    push = pushes.enqueue(
        actor,
        kind=components.UPGRADE,
        cluster=cluster,
        target=components.target_of(component),
        payload={**payload, "approved_pods": list(approved_pods)},
    )
    audit.record(
        actor,
        "component.upgrade",
        components.named(cluster, component),
        cluster=cluster,
        version=payload["version"],
        approved_pods=list(approved_pods),
        **because,
    )
    return push


def nodes(actor: Actor, cluster: Cluster, name: str) -> list[NodeHealth]:
    """Tell for each node that needs a component whether it works there, and why not; empty before the first picture."""
    actor.require(Role.VIEWER, cluster)
    component = components.known(name)
    picture = allocation.current(cluster)
    if picture is None:
        return []
    return node_health(component, picture.nodes, picture.pods, picture.workloads)


def by_hand(cluster: Cluster, component: Component) -> Manual | None:
    """Return the steps in the ACK console, for clusters that are ACK's."""
    if cluster.provider != Cluster.Provider.ACK:
        return None
    return manual(component, cluster_id=cluster.ack_cluster_id)


def _checked_config(text: str) -> str:
    if not text.strip():
        return ""
    try:
        read = json.loads(text) if len(text) <= LONGEST_CONFIG else None
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise Invalid.field(
            "config", "The configuration is not a JSON object.", code="not-json", allowed="a JSON object, 16 KiB"
        )
    return json.dumps(read)
