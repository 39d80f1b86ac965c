"""Makes faults in a running embedded cluster through its API, as bad luck makes them, and takes them away again.

A Node that is made by hand has no kubelet: it and its pods say what their status was made to say.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from gpupools.clusters.channel import APPLY_PATCH, MERGE_PATCH, Channel
from gpupools.clusters.kube import KubeClient
from gpupools.clusters.port import Connection
from gpupools.domain import allocation
from gpupools.domain.diagnosis import Diagnosis, Difference, Scene, diagnose
from gpupools.domain.modes import MODE_LABEL
from gpupools.errors import Refused

MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"
SECONDS = 40.0
_numbers = itertools.count(1)


class World:
    """One cluster that faults are made in. What it makes is undone by ``close``."""

    def __init__(self, connection: Connection) -> None:
        self.client = KubeClient(connection)
        self._channel = Channel(connection)
        self._undo = ExitStack()

    def close(self) -> None:
        """Undo everything, last first."""
        self._undo.close()
        self.client.close()
        self._channel.close()

    def patch(self, path: str, body: Mapping[str, Any], *, content_type: str = MERGE_PATCH) -> None:
        self._channel.request("PATCH", path, body=body, content_type=content_type)

    def label(self, node: str, **labels: str | None) -> None:
        """Change labels of a node (``mode`` is the mode label), and put them back at the end."""
        wanted = {MODE_LABEL if key == "mode" else key: value for key, value in labels.items()}
        self.marked(node, "labels", wanted)

    def marked(self, node: str, part: str, wanted: Mapping[str, str | None]) -> None:
        """Change labels or annotations of a node, and put them back at the end."""
        there = self.client.node(node)
        assert there is not None
        before = {key: getattr(there, part).get(key) for key in wanted}
        path = f"/api/v1/nodes/{node}"
        self.patch(path, {"metadata": {part: dict(wanted)}})
        self._undo.callback(self.patch, path, {"metadata": {part: before}})

    def node(
        self,
        name: str,
        mode: str | None,
        resources: Mapping[str, int],
        *,
        capacity: Mapping[str, int] | None = None,
        instance_type: str = "metal.own",
        kubelet: str = "v1.34.3",
        ready: bool = True,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """Make a node by hand; it goes at the end."""
        marks = {"node.kubernetes.io/instance-type": instance_type, **(labels or {})}
        if mode is not None:
            marks[MODE_LABEL] = mode
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": marks, "annotations": dict(annotations or {})},
        }
        self._made("/api/v1/nodes", body)
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        self.patch(
            f"/api/v1/nodes/{name}/status",
            {
                "status": {
                    "allocatable": room | {key: str(value) for key, value in resources.items()},
                    "capacity": room | {key: str(value) for key, value in (capacity or resources).items()},
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                    "nodeInfo": _node_info(kubelet),
                }
            },
        )
        return name

    def pod(
        self,
        node: str = "",
        limits: Mapping[str, int] | None = None,
        *,
        status: Mapping[str, Any] | None = None,
        namespace: str = "default",
        name: str = "",
        more: Mapping[str, Any] | None = None,
        containers: int = 1,
        **metadata: Any,
    ) -> str:
        """Make a pod, bound to ``node`` if one is named; it goes at the end. Returns ``namespace/name``."""
        name = name or f"fault-{next(_numbers)}"
        resources = {"limits": {key: str(value) for key, value in (limits or {}).items()}}
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": f"main{index or ''}",
                    "image": "busybox",
                    "command": ["sleep", "36000"],
                    "resources": resources,
                }
                for index in range(containers)
            ],
            **(more or {}),
        }
        if node:
            spec["nodeName"] = node
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": spec,
        }
        self._made(f"/api/v1/namespaces/{namespace}/pods", body)
        if status is not None:
            self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": dict(status)})
        return f"{namespace}/{name}"

    def daemonset(self, name: str, *, namespace: str = "kube-system", image: str = "x:1", node: str = "") -> None:
        """Make a foreign DaemonSet on one node; it goes at the end."""
        labels = {"name": name}
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/hostname": node},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "main", "image": image}],
                    },
                },
            },
        }
        self._made(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body)

    def without(self, daemonset: Mapping[str, Any]) -> None:
        """Delete a DaemonSet of a component, and apply it again at the end."""
        name = daemonset["metadata"]["name"]
        self.client.delete("DaemonSet", "kube-system", name)
        self._undo.callback(self.client.apply, daemonset, op_id=f"again-{next(_numbers)}")

    def image(self, daemonset: str, image: str, *, before: str) -> None:
        """Give a DaemonSet's first container another image, and the one before at the end."""
        path = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{daemonset}"

        def write(text: str) -> None:
            body = {
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": daemonset},
                "spec": {"template": {"spec": {"containers": [{"name": daemonset, "image": text}]}}},
            }  # fmt: skip
            self._channel.request(
                "PATCH", path, query=[("fieldManager", "fault"), ("force", "true")], body=body, content_type=APPLY_PATCH
            )

        write(image)
        self._undo.callback(write, before)

    def _made(self, path: str, body: Mapping[str, Any]) -> None:
        self._channel.request("POST", path, body=body)
        one = f"{path}/{body['metadata']['name']}"
        self._undo.callback(self._gone, one)

    def _gone(self, path: str) -> None:
        try:
            self._channel.request("DELETE", path, body={"gracePeriodSeconds": 0})
        except Refused as error:
            if error.code != "not-found":  # the test, or the cluster, was faster
                raise

    def scene(
        self,
        *,
        spec: str = "",
        pools: Mapping[str, str] | None = None,
        differences: Mapping[str, tuple[Difference, ...]] | None = None,
    ) -> Scene:
        """Read the whole cluster as the console does."""
        nodes, pods, workloads = self.client.nodes(), self.client.pods(), self.client.workloads()
        folds = allocation.fold_all(nodes, pods)
        return Scene(nodes, pods, workloads, folds=folds, spec=spec, pools=pools, differences=differences)

    def named(self, code: str, *, node: str = "", pod: str = "", seconds: float = SECONDS, **facts: Any) -> Diagnosis:
        """Wait until a failure is recognised, and return it."""
        found: list[Diagnosis] = []

        def is_there() -> bool:
            found[:] = diagnose(self.scene(**facts))
            return any(_is(each, code, node, pod) for each in found)

        wait_for(is_there, what=lambda: f"{code} among {[(each.code, each.node, each.pods) for each in found]}",
                 seconds=seconds)  # fmt: skip
        return next(each for each in found if _is(each, code, node, pod))


def _is(each: Diagnosis, code: str, node: str, pod: str) -> bool:
    return each.code == code and node in {"", each.node} and (not pod or pod in each.pods)


def _node_info(kubelet: str) -> dict[str, str]:
    names = ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "machineID", "operatingSystem",
             "osImage", "systemUUID", "kubeProxyVersion")  # fmt: skip
    return {**dict.fromkeys(names, "x"), "kubeletVersion": kubelet}


def wait_for(condition: Callable[[], bool], *, what: Callable[[], str], seconds: float = SECONDS) -> None:
    """Look again until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds:g} s: {what()}")
        time.sleep(0.1)
