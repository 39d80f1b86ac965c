"""What modes depend on in a cluster: overview, install, uninstall, check. What pushes do is in componentpushes.py."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from gpupools import clusters
from gpupools.domain import componentmanifests
from gpupools.domain.changes import OPEN
from gpupools.domain.components import (
    CATALOGUE,
    FOREIGN,
    NAMESPACE,
    AddonSeen,
    ComponentVerdict,
    ForeignComponent,
    verdict,
)
from gpupools.domain.modes import Component, Mode
from gpupools.domain.requests import Kind
from gpupools.errors import Conflict, Invalid, Refused, Unreachable
from gpupools.models import Cluster, ComponentState, ModeChange, NodePool, OperationRequest, Push, Role
from gpupools.services import audit, bell, componentguards, pushes, radii, requestrules
from gpupools.services.access import Actor
from gpupools.services.credentials import connection_of
from gpupools.services.gateways import kubernetes_of
from gpupools.services.requestrules import Wish

logger = logging.getLogger(__name__)

INSTALL, UNINSTALL, UPGRADE = "component.install", "component.uninstall", "component.upgrade"
UNKNOWN = "unknown"
# registry.example.com:5000/path: a host or host:port, then path parts; neither scheme, tag nor digest.
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
LONGEST_PREFIX = 200


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """A component as the AI suite page shows it. ``state`` is ``unknown`` before the first check.

    ``pools`` are the names of pools that depend on it, ``busy`` the kind of push on its way, ``error`` what the
    last push failed with.
    """

    name: Component
    title: str
    purpose: str
    without_it: str
    modes: tuple[Mode, ...]
    restart_kills: bool
    state: str
    version: str
    desired: int | None
    ready: int | None
    found_by: str
    detail: str
    checked_at: datetime | None
    pools: tuple[str, ...]
    busy: str
    error: str

    @property
    def present(self) -> bool:
        """Whether nodes may count on it: installed, wholly or in part."""
        return self.state in {"installed", "degraded"}

    @property
    def missed(self) -> bool:
        """Whether pools depend on it and it is known not to be there."""
        return bool(self.pools) and self.state in {"absent", "failed"}


def target_of(name: str) -> str:
    """Return what the queue calls a component."""
    return f"component:{name}"


def foreign() -> tuple[ForeignComponent, ...]:
    """Return the components that tutorials name and that are another vendor's, with what to use instead."""
    return FOREIGN


def overview(cluster: Cluster) -> list[ComponentRow]:
    """Return every component of the catalogue with its last checked state in a cluster."""
    states = {state.name: state for state in ComponentState.objects.filter(cluster=cluster)}
    return [_row(cluster, name, states.get(name), _last_push(cluster, name)) for name in CATALOGUE]


def present(cluster: Cluster) -> dict[str, bool]:
    """Tell for each component of the catalogue whether nodes may count on it, by the last check."""
    found = ComponentState.objects.filter(
        cluster=cluster, state__in=(ComponentState.State.INSTALLED, ComponentState.State.DEGRADED)
    )
    names = set(found.values_list("name", flat=True))
    return {name.value: name.value in names for name in CATALOGUE}


def checked_prefix(image_prefix: str) -> str:
    """Return the start of image names, without a slash at its end. Raises Invalid on ``image_prefix``."""
    image_prefix = image_prefix.strip().rstrip("/")
    if image_prefix and (len(image_prefix) > LONGEST_PREFIX or not _PREFIX.fullmatch(image_prefix)):
        raise Invalid.field(
            "image_prefix",
            "This is not the start of an image's name.",
            found=image_prefix[:80],
            allowed="registry.example.com/path, without scheme, tag and digest",
        )
    return image_prefix


@transaction.atomic
def install(actor: Actor, cluster: Cluster, name: str, *, image_prefix: str = "", manifests: str = "") -> Push:
    """Install a component: as an add-on on ACK, elsewhere (or where ACK has no such add-on) from manifests.

    ``image_prefix`` says where the images of the catalogue's manifests are; ``manifests`` are an administrator's own
    instead. One of the two is required on plain Kubernetes.
    """
    actor.require(Role.ADMIN if manifests.strip() else Role.OPERATOR, cluster)
    component = known(name)
    image_prefix = checked_prefix(image_prefix)
    documents = (
        componentmanifests.parse(manifests, component, max_bytes=settings.GPUPOOLS_MAX_MANIFEST_BYTES)
        if manifests.strip()
        else []
    )
    if not documents and not image_prefix and cluster.provider == Cluster.Provider.KUBERNETES:
        raise Invalid.field(
            "image_prefix",
            "Say which registry has the component's images: nobody but ACK publishes them.",
            code="required",
            allowed="registry.example.com/path",
        )
    state = ComponentState.objects.filter(cluster=cluster, name=component).first()
    if state is not None and state.state == ComponentState.State.INSTALLED:
        raise Conflict(f"{component.value} is installed already.", code="installed", component=component.value)
    if state is not None and state.state == ComponentState.State.DEGRADED:
        _check_harms_nobody(cluster, component)
    push = pushes.enqueue(
        actor,
        kind=INSTALL,
        cluster=cluster,
        target=target_of(component),
        payload={"component": component.value, "image_prefix": image_prefix, "documents": documents},
    )
    _set(cluster, ComponentVerdict(component.value, ComponentState.State.INSTALLING))
    audit.record(actor, "component.install", named(cluster, component), cluster=cluster, image_prefix=image_prefix,
                 objects=[" ".join(filter(None, componentmanifests.identity(each))) for each in documents])  # fmt: skip
    return push


def _check_harms_nobody(cluster: Cluster, component: Component) -> None:
    """Refuse to apply anew, as an installation, what pods compute through: that is an upgrade, with its approval."""
    if clients := componentguards.clients(cluster, component):
        many = "1 pod computes" if len(clients) == 1 else f"{len(clients)} pods compute"
        raise Conflict(
            f"{component.value} runs in part and {many} through it. Upgrade it instead: its restart ends them, which "
            "is approved there.",
            code="kills-pods",
            pods=list(clients),
        )


def uninstall(
    actor: Actor, cluster: Cluster, name: str, *, reason: str, approved_pods: Sequence[str] = ()
) -> Push | OperationRequest:
    """Uninstall a component. Refused with Conflict, naming them, while pools or open mode changes depend on it.

    By policy it is a request, which is returned, with the pods that end. Where no second person is wanted, it is
    refused (code ``kills-pods``) while pods compute through it that no administrator has approved to end.
    """
    actor.require(Role.OPERATOR, cluster)
    component = known(name)
    if not reason.strip():
        raise Invalid.field("reason", "Say why the component is uninstalled.", code="required")
    state = _check_removable(cluster, component)
    if requestrules.needed_for(Kind.COMPONENT_UNINSTALL):
        radius = radii.of_component(cluster, component, pools=dependents(cluster, component))
        version = state.version if state is not None and state.version else "installed"
        diff = [(component.value, version, "not installed")]
        wish = Wish(Kind.COMPONENT_UNINSTALL, cluster, component.value, radius, {"component": component.value}, diff)
        return requestrules.ask(actor, wish, reason=reason.strip())
    approved = componentguards.approve(actor, cluster, component, approved_pods, deed="Uninstalling")
    return remove(actor, cluster, component, approved_pods=approved, reason=reason.strip())


def _check_removable(cluster: Cluster, component: Component) -> ComponentState | None:
    if pools := dependents(cluster, component):
        raise Conflict(
            f"{', '.join(pools)} depend on {component.value}: without it, {CATALOGUE[component].without_it[0].lower()}"
            f"{CATALOGUE[component].without_it[1:]}",
            code="in-use",
            pools=list(pools),
        )
    state = ComponentState.objects.filter(cluster=cluster, name=component).first()
    if state is not None and state.state == ComponentState.State.ABSENT:
        raise Conflict(f"{component.value} is not installed.", code="absent", component=component.value)
    return state


@transaction.atomic
def remove(
    actor: Actor, cluster: Cluster, component: Component, *, approved_pods: Sequence[str], **because: object
) -> Push:
    """Queue an uninstallation by which these pods may end; an installation that still waits is superseded."""
    _check_removable(cluster, component)
    pushes.supersede(cluster, target_of(component), kinds=(INSTALL, UPGRADE), by="an uninstallation")
    push = pushes.enqueue(
        actor,
        kind=UNINSTALL,
        cluster=cluster,
        target=target_of(component),
        payload={"component": component.value, "approved_pods": list(approved_pods)},
    )
    _set(cluster, ComponentVerdict(component.value, ComponentState.State.REMOVING))
    audit.record(
        actor,
        "component.uninstall",
        named(cluster, component),
        cluster=cluster,
        approved_pods=list(approved_pods),
        **because,
    )
    return push


def dependents(cluster: Cluster, component: Component) -> tuple[str, ...]:
    """Return the names of pools whose mode needs a component, or is to become one that does."""
    modes = [mode.value for mode in CATALOGUE[component].modes]
    pools = NodePool.objects.filter(cluster=cluster, mode__in=modes).exclude(state=NodePool.State.GONE)
    changing = ModeChange.objects.filter(
        pool__cluster=cluster, target_mode__in=modes, state__in=[state.value for state in OPEN]
    )
    return tuple(sorted({*pools.values_list("name", flat=True), *changing.values_list("pool__name", flat=True)}))


def check(cluster: Cluster) -> None:
    """Look at add-ons and DaemonSets and keep a verdict per component.

    Raises Unreachable or Refused when the cluster does not say; what was known stays, with its age.
    """
    connection = connection_of(cluster)
    with kubernetes_of(cluster) as kubernetes:
        workloads = kubernetes.workloads()
        releases = kubernetes.helm_releases(NAMESPACE)
    provider = clusters.addons(connection)
    addons = [AddonSeen(each.name, each.version, each.state) for each in provider.addons()] if provider else []
    moving = dict(
        Push.objects.filter(cluster=cluster, state=Push.State.QUEUED, target__startswith=target_of("")).values_list(
            "target", "kind"
        )
    )
    with transaction.atomic():
        changed = [
            _set(cluster, _moving(verdict(name, workloads, addons, releases), moving.get(target_of(name), "")))
            for name in CATALOGUE
        ]
        if any(changed):
            bell.ring_cluster(cluster.pk)


def check_all() -> None:
    """Check every cluster that answers; one that does not is the probe's business."""
    for cluster in Cluster.objects.exclude(state=Cluster.State.UNREACHABLE):
        try:
            check(cluster)
        except (Unreachable, Refused) as error:
            logger.warning("The components of %s were not checked: %s", cluster.name, error.message)


def known(name: str) -> Component:
    """Return a component of the catalogue. Raises Invalid, for another vendor's with what to use instead."""
    if name in CATALOGUE:
        return Component(name)
    instead = next((each.instead for each in FOREIGN if each.name == name), "")
    raise Invalid.field(
        "name",
        instead or "There is no such component.",
        code="foreign" if instead else "unknown",
        found=name[:80],
        allowed=", ".join(CATALOGUE),
    )


def _moving(found: ComponentVerdict, kind: str) -> ComponentVerdict:
    """While an operation is on its way, its name is the better word for what is half there."""
    if kind in (INSTALL, UPGRADE) and not (found.state == "installed" and found.desired):
        return _as(found, ComponentState.State.INSTALLING)
    if kind == UNINSTALL and found.state != "absent":
        return _as(found, ComponentState.State.REMOVING)
    return found


def _as(found: ComponentVerdict, state: str) -> ComponentVerdict:
    return msgspec.structs.replace(found, state=state)


def store(cluster: Cluster, found: ComponentVerdict, *, moving: str = "") -> None:
    """Keep a verdict that a push has come to; ``moving`` is the push's kind while it goes on."""
    _set(cluster, _moving(found, moving))


def _set(cluster: Cluster, found: ComponentVerdict) -> bool:
    columns = {
        "state": found.state,
        "version": found.version[:64],
        "desired": found.desired,
        "ready": found.ready,
        "found_by": found.found_by[:64],
        "detail": found.detail[:500],
    }
    before = ComponentState.objects.filter(cluster=cluster, name=found.name).values(*columns).first()
    ComponentState.objects.update_or_create(
        cluster=cluster, name=found.name, defaults={**columns, "checked_at": timezone.now()}
    )
    return bool(before != columns)


def _last_push(cluster: Cluster, name: Component) -> Push | None:
    return Push.objects.filter(cluster=cluster, target=target_of(name)).order_by("-pk").first()


def _row(cluster: Cluster, name: Component, state: ComponentState | None, push: Push | None) -> ComponentRow:
    facts = CATALOGUE[name]
    return ComponentRow(
        name=name,
        title=facts.title,
        purpose=facts.purpose,
        without_it=facts.without_it,
        modes=facts.modes,
        restart_kills=facts.restart_kills,
        state=state.state if state else UNKNOWN,
        version=state.version if state else "",
        desired=state.desired if state else None,
        ready=state.ready if state else None,
        found_by=state.found_by if state else "",
        detail=state.detail if state else "",
        checked_at=state.checked_at if state else None,
        pools=dependents(cluster, name),
        busy=push.kind if push and push.state == Push.State.QUEUED else "",
        error=push.error if push and push.state == Push.State.FAILED else "",
    )


def named(cluster: Cluster, component: Component) -> audit.Named:
    """Return how the audit names a component of a cluster."""
    return audit.Named("component", component.value, f"{component.value} on {cluster.name}")
