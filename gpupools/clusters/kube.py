"""A cluster's API server through the official client: reads as values, writes that may be repeated.

Every write carries its operation's id into the object, as an annotation, and looks for it there first. It patches
only what it owns and never puts a whole object back. It knows no database and nothing of node pools.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gpupools.clusters import paths, translate
from gpupools.clusters.answers import Review, Rules, Secrets, Version
from gpupools.clusters.channel import APPLY_PATCH, MERGE_PATCH, Channel, Query
from gpupools.clusters.listing import list_all
from gpupools.clusters.port import ApplyResult, Connection
from gpupools.domain import wire
from gpupools.domain.abilities import Ability, abilities
from gpupools.domain.disruptions import Budget, BudgetList
from gpupools.domain.gpus import GpuNode, Pod, Taint, Workload
from gpupools.domain.modes import FIELD_MANAGER, OP_LABEL
from gpupools.domain.releases import SECRET_TYPE, HelmRelease, latest, release
from gpupools.domain.reports import CardReport, by_node, with_reports
from gpupools.errors import Conflict, Invalid, Refused, Unreachable

MOST_LOG_BYTES = 1024 * 1024
_TRIES = 6  # of a patch against a node that its kubelet keeps changing
_log = logging.getLogger(__name__)

Shape = TypeVar("Shape")


class _Object(msgspec.Struct):
    metadata: wire.Metadata = wire.Metadata()

    @property
    def op_id(self) -> str:
        return (self.metadata.annotations or {}).get(OP_LABEL, "")

    def result(self, outcome: str) -> ApplyResult:
        return ApplyResult(outcome, self.metadata.uid or "", self.metadata.resource_version or "")


class KubeClient:
    """One API server; implements ``port.Kubernetes``. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._channel = Channel(connection)

    def __enter__(self) -> KubeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._channel.close()

    # -- Reading

    def version(self) -> str:
        """Return the server's version, such as ``v1.32.1``."""
        version = _decode(self._channel.request("GET", "/version"), Version)
        return version.git_version

    def nodes(self) -> list[GpuNode]:
        """Return all nodes, with the reports on their cards that ACK keeps beside them."""
        reports = self._card_reports()
        nodes = (seen.value for seen in self._list(translate.KINDS["Node"]))
        return [with_reports(n, reports.get(n.name, ())) for n in nodes if isinstance(n, GpuNode)]

    def node(self, name: str) -> GpuNode | None:
        """Return one node, or None when it is not there."""
        data = self._get(f"/api/v1/nodes/{paths.segment(name)}")
        seen = translate.one(translate.KINDS["Node"], data) if data is not None else None
        if seen is None or not isinstance(seen.value, GpuNode):
            return None
        return with_reports(seen.value, self._card_reports().get(name, ()))

    def pods(self, *, node: str = "", namespace: str = "") -> list[Pod]:
        """Return the pods of the cluster, of one node or of one namespace, finished ones too."""
        kind = translate.KINDS["Pod"]
        path = f"/api/v1/namespaces/{paths.segment(namespace)}/pods" if namespace else kind.path
        query = (("fieldSelector", f"spec.nodeName={node}"),) if node else ()
        return [seen.value for seen in self._list(kind, path, query) if isinstance(seen.value, Pod)]

    def workloads(self) -> list[Workload]:
        """Return all Jobs and DaemonSets."""
        found = [seen.value for name in ("Job", "DaemonSet") for seen in self._list(translate.KINDS[name])]
        return [value for value in found if isinstance(value, Workload)]

    def pod_log(self, namespace: str, name: str, *, container: str = "", tail_lines: int = 500) -> str:
        """Return the last lines of a container's log, at most 1 MiB."""
        query = [("tailLines", str(tail_lines)), ("limitBytes", str(MOST_LOG_BYTES))]
        if container:
            query.append(("container", container))
        data = self._channel.request("GET", paths.single("Pod", namespace, name, "log"), query=query)
        return data[:MOST_LOG_BYTES].decode(errors="replace")

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Ask whether our identity may do something cluster-wide; a server without that API counts as allowed."""
        plural, _, part = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": plural, **({"subresource": part} if part else {})}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        try:
            data = self._channel.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        except Refused as error:
            if error.data.get("status") in {404, 405}:
                return True
            raise
        return _decode(data, Review).status.allowed

    def abilities(self) -> list[Ability]:
        """Ask what our identity may do, and return which functions of the console that leaves.

        The review names the rights in one namespace, and those in the whole cluster with them: what it names is asked
        again where it may be the namespace's alone, and so is what an incomplete review does not name.
        """
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "kube-system"},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        verdict = _decode(self._channel.request("POST", path, body=body), Rules).status
        grants = [rule.grant() for rule in verdict.resource_rules or ()]
        return abilities(grants, ask=(lambda need: self.may(*need)) if verdict.incomplete else None)

    # -- Writing

    def create(self, manifest: Mapping[str, Any], *, op_id: str, dry_run: bool = False) -> ApplyResult:
        """Create a named object once; see the port."""
        body, path, name = _stamped(manifest, op_id)
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")]
        if dry_run:
            query.append(("dryRun", "All"))
        try:
            return self._object(self._channel.request("POST", path, query=query, body=body)).result("created")
        except Conflict as error:
            if error.code != "already-exists":
                raise
        there = self._existing(f"{path}/{paths.segment(name)}")
        if there is None:  # it went between the two requests; the next try can create it
            raise Unreachable(f"{body['kind']} {name} is just being deleted.", retry_after_seconds=2)
        if there.op_id != op_id:
            raise Conflict(
                f"There is a {body['kind']} named {name} already, which this request did not make.",
                code="already-exists",
            )
        return there.result("already")

    def apply(self, manifest: Mapping[str, Any], *, op_id: str) -> ApplyResult:
        """Apply on the server as ``gpupools``; fields that another manager owns raise Conflict."""
        body, collection, name = _stamped(manifest, op_id)
        path = f"{collection}/{paths.segment(name)}"
        before = self._existing(path)
        if before is not None and before.op_id == op_id:
            return before.result("already")
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), ("force", "false")]
        data = self._channel.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)
        after = self._object(data)
        if before is None:
            return after.result("created")
        same = before.metadata.resource_version == after.metadata.resource_version
        return after.result("unchanged" if same else "changed")

    def rehearse(self, manifest: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Apply without writing; see the port. Fields that another manager owns raise Conflict."""
        body, collection, name = _stamped(manifest, "rehearsal")
        path = f"{collection}/{paths.segment(name)}"
        before = self._get(path)
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"), ("force", "false"), ("dryRun", "All")]
        after = self._channel.request("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)
        return None if before is None else _decode(before, dict), _decode(after, dict)

    def helm_releases(self, namespace: str) -> dict[str, HelmRelease]:
        """Return the Helm releases of a namespace at their latest revision, by name.

        Without the right to list secrets there is none to be seen, which is not an error.
        """
        path = f"/api/v1/namespaces/{paths.segment(namespace)}/secrets"
        query = [("fieldSelector", f"type={SECRET_TYPE}"), ("labelSelector", "owner=helm")]
        try:
            listed = _decode(self._channel.request("GET", path, query=query), Secrets)
        except Refused as error:
            _log.info("Helm releases cannot be read: %s", error.code)
            return {}
        found = (
            release(
                each.metadata.name or "",
                status=(each.metadata.labels or {}).get("status", ""),
                payload=(each.data or {}).get("release", ""),
            )
            for each in listed.items or ()
        )
        return latest(each for each in found if each is not None)

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Delete in the background; False when it was not there."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        path = paths.single(kind, namespace, name)
        return self._found(lambda: self._channel.request("DELETE", path, body=body))

    def evict(self, namespace: str, name: str) -> bool:
        """Evict a pod; False when it was not there. A disruption budget that says no raises Conflict, naming it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        path = paths.single("Pod", namespace, name, "eviction")
        return self._found(lambda: self._channel.request("POST", path, body=body))

    def budgets(self) -> list[Budget]:
        """Return the disruption budgets of all namespaces."""
        return list(
            _decode(self._channel.request("GET", "/apis/policy/v1/poddisruptionbudgets"), BudgetList).items or ()
        )

    def label_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        taints_add: Sequence[Taint] = (),
        taints_remove: Sequence[Taint] = (),
        op_id: str,
        annotations: Mapping[str, str | None] | None = None,
    ) -> ApplyResult:
        """Write these label and annotation keys (None removes) and taints; see the port."""
        notes = annotations or {}

        def patch(node: wire.NodeObject) -> dict[str, Any]:
            meta = node.metadata
            changes: dict[str, Any] = {}
            metadata = {
                part: due
                for part, wanted, now in (
                    ("labels", labels, meta.labels or {}),
                    ("annotations", notes, meta.annotations or {}),
                )
                if (due := {key: value for key, value in wanted.items() if now.get(key) != value})
            }
            if metadata:
                changes["metadata"] = metadata
            now_taints = _taints(node)
            due_taints = _with_taints(now_taints, taints_add, taints_remove)
            if due_taints != now_taints:
                changes["spec"] = {"taints": due_taints or None}
            return changes

        return self._patch_node(name, patch, op_id)

    def cordon(self, name: str, *, unschedulable: bool, op_id: str) -> ApplyResult:
        """Close a node to new pods, or open it again."""

        def patch(node: wire.NodeObject) -> dict[str, Any]:
            now = bool(node.spec and node.spec.unschedulable)
            return {} if now == unschedulable else {"spec": {"unschedulable": unschedulable or None}}

        return self._patch_node(name, patch, op_id)

    # -- Inside

    def _patch_node(self, name: str, patch: Callable[[wire.NodeObject], dict[str, Any]], op_id: str) -> ApplyResult:
        """Patch what is due against the version read, and read again when the node moved in between."""
        path = f"/api/v1/nodes/{paths.segment(name)}"
        for _ in range(_TRIES):
            data = self._get(path)
            if data is None:
                raise Refused(f"The cluster has no node {name}.", code="not-found", status=404)
            there = self._object(data)
            due = patch(_decode(data, wire.NodeObject))
            if not due:
                return there.result("already" if there.op_id == op_id else "unchanged")
            metadata = due.setdefault("metadata", {})
            metadata["resourceVersion"] = there.metadata.resource_version
            metadata.setdefault("annotations", {})[OP_LABEL] = op_id
            query = [("fieldManager", FIELD_MANAGER)]
            try:
                data = self._channel.request("PATCH", path, query=query, body=due, content_type=MERGE_PATCH)
            except Conflict:
                continue
            return self._object(data).result("changed")
        raise Unreachable(f"The node {name} changes faster than it can be patched.", retry_after_seconds=2)

    def _list(self, kind: translate.Kind, path: str = "", query: Query = ()) -> list[translate.Seen]:
        """Read all pages. A list whose continuation expired is begun again, once."""
        try:
            return list_all(self._channel, kind, path=path, query=query).seen
        except Refused as error:
            if error.data.get("status") != 410:
                raise
        return list_all(self._channel, kind, path=path, query=query).seen

    def _card_reports(self) -> dict[str, list[CardReport]]:
        try:
            found = self._list(translate.KINDS[translate.REPORTS])
        except Refused as error:
            # Without the right to read them the first free cards are taken, as ACK does without a report.
            _log.info("reports on cards cannot be read: %s", error.code)
            return {}
        return by_node(seen.value for seen in found if isinstance(seen.value, CardReport))

    def _get(self, path: str) -> bytes | None:
        try:
            return self._channel.request("GET", path)
        except Refused as error:
            if error.data.get("status") == 404:
                return None
            raise

    def _existing(self, path: str) -> _Object | None:
        data = self._get(path)
        return None if data is None else self._object(data)

    def _object(self, data: bytes) -> _Object:
        return _decode(data, _Object)

    def _found(self, send: Callable[[], bytes]) -> bool:
        try:
            send()
        except Refused as error:
            if error.data.get("status") == 404:
                return False
            raise
        return True


def _stamped(manifest: Mapping[str, Any], op_id: str) -> tuple[dict[str, Any], str, str]:
    """Return a copy that carries the operation's id, the path of its collection, and its name."""
    body = copy.deepcopy(dict(manifest))
    metadata = body.setdefault("metadata", {})
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise Invalid.field("metadata.name", "An object is named before it is sent.", allowed="a name")
    metadata["annotations"] = {**(metadata.get("annotations") or {}), OP_LABEL: op_id}
    kind, api_version = str(body.get("kind", "")), str(body.get("apiVersion", ""))
    return body, paths.collection(kind, str(metadata.get("namespace") or "default"), api_version), name


def _taints(node: wire.NodeObject) -> list[dict[str, str]]:
    raw = (node.spec.taints if node.spec else None) or []
    return [_taint(Taint(taint.key, taint.value or "", taint.effect or "")) for taint in raw]


def _taint(taint: Taint) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _with_taints(now: list[dict[str, str]], add: Sequence[Taint], remove: Sequence[Taint]) -> list[dict[str, str]]:
    """Return the taints as they shall be. Kubernetes tells two taints apart by key and effect."""
    gone = {(taint.key, taint.effect) for taint in remove}
    new = {(taint.key, taint.effect): _taint(taint) for taint in add}
    kept = [
        new.pop((taint["key"], taint["effect"]), taint)
        for taint in now
        if (taint["key"], taint["effect"]) not in gone or (taint["key"], taint["effect"]) in new
    ]
    return [*kept, *new.values()]


def _not_an_api() -> Unreachable:
    return Unreachable("The server answered with something that is not a Kubernetes object.")


def _decode(data: bytes, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.DecodeError:
        raise _not_an_api() from None
