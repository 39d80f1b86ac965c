"""The official clients against the embedded cluster, and waiting for conditions on watches instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alibabacloud_cs20151215.client import Client
from alibabacloud_tea_openapi.utils_models import Config
from kubernetes import client, config, watch

from tests.simulator.harness import SimulatorProcess

PATIENCE_SECONDS = 40
MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"
MODE = "ack.node.gpu.schedule"
V100_FOUR = "ecs.gn6v-c8g1.8xlarge"  # four cards of 15 units each


class Cluster:
    """One embedded cluster through the official Kubernetes client."""

    def __init__(self, api_client: client.ApiClient, namespace: str = "default") -> None:
        self.namespace = namespace
        self.core = client.CoreV1Api(api_client)
        self.batch = client.BatchV1Api(api_client)
        self.apps = client.AppsV1Api(api_client)

    def wait(self, lister: Callable[..., Any], met: Callable[[Any], bool], what: str, **where: Any) -> Any:
        """Watch until an object meets a condition; return it. ``what`` words the failure."""
        stream = watch.Watch()
        seen = None
        try:
            for event in stream.stream(lister, timeout_seconds=PATIENCE_SECONDS, **where):
                seen = event["object"]
                if event["type"] != "DELETED" and met(seen):
                    return seen
        finally:
            stream.stop()
        raise AssertionError(f"did not happen within {PATIENCE_SECONDS} s: {what}; last seen: {seen}")

    def wait_gone(self, lister: Callable[..., Any], what: str, **where: Any) -> None:
        """Watch until nothing that matches is left."""
        stream = watch.Watch()
        found = lister(**where)
        left = {item.metadata.uid for item in found.items}
        since = {"resource_version": found.metadata.resource_version, "timeout_seconds": PATIENCE_SECONDS}
        try:
            if left:
                for event in stream.stream(lister, **since, **where):
                    if event["type"] == "DELETED":
                        left.discard(event["object"].metadata.uid)
                    if not left:
                        return
        finally:
            stream.stop()
        assert not left, f"still there after {PATIENCE_SECONDS} s: {what}"

    def node_with(self, name: str, met: Callable[[Any], bool], what: str) -> Any:
        """Wait for a node's condition."""
        return self.wait(self.core.list_node, met, what, field_selector=f"metadata.name={name}")

    def node_reports(self, name: str, **amounts: str) -> Any:
        """Wait until a node's allocatable has these amounts (keyword names: mem, count, core, whole, topology)."""
        names = {"mem": MEM, "count": COUNT, "core": CORE, "whole": WHOLE, "topology": TOPOLOGY}
        wanted = {names[key]: value for key, value in amounts.items()}
        return self.node_with(
            name, lambda node: wanted.items() <= node.status.allocatable.items(), f"{name} reports {wanted}"
        )

    def pod_with(self, name: str, met: Callable[[Any], bool], what: str) -> Any:
        """Wait for a pod's condition."""
        selector = f"metadata.name={name}"
        lister = self.core.list_namespaced_pod
        return self.wait(lister, met, what, namespace=self.namespace, field_selector=selector)

    def pod_in_phase(self, name: str, phase: str) -> Any:
        """Wait until a pod is in a phase."""
        return self.pod_with(name, lambda pod: pod.status.phase == phase, f"pod {name} is {phase}")

    def job_with(self, name: str, met: Callable[[Any], bool], what: str) -> Any:
        """Wait for a job's condition."""
        return self.wait(
            self.batch.list_namespaced_job, met, what, namespace=self.namespace, field_selector=f"metadata.name={name}"
        )

    def job_ended(self, name: str, condition: str) -> Any:
        """Wait until a job is Complete or Failed."""
        return self.job_with(
            name,
            lambda job: any(c.type == condition and c.status == "True" for c in job.status.conditions or ()),
            f"job {name} is {condition}",
        )

    def create_pod(self, name: str, *command: str, limits: dict[str, Any] | None = None, **spec: Any) -> Any:
        """Create a pod of one container."""
        return self.core.create_namespaced_pod(self.namespace, a_pod(name, *command, limits=limits, **spec))

    def log(self, name: str) -> str:
        """Return a pod's log."""
        return str(self.core.read_namespaced_pod_log(name, self.namespace))

    def label_node(self, name: str, labels: dict[str, str | None]) -> None:
        """Patch a node's labels."""
        self.core.patch_node(name, {"metadata": {"labels": labels}})


@contextmanager
def connected(simulator: SimulatorProcess) -> Iterator[Cluster]:
    """Give a client of a running simulator, and close its connections."""
    api_client = config.new_client_from_config(str(simulator.kubeconfig))
    try:
        yield Cluster(api_client)
    finally:
        api_client.close()
        api_client.rest_client.pool_manager.clear()


def ack_client(simulator: SimulatorProcess, *, secret: str = "") -> Client:
    """Return the official SDK's client of the simulator's OpenAPI."""
    access = simulator.ack
    return Client(
        Config(
            access_key_id=access["access_key_id"],
            access_key_secret=secret or access["access_key_secret"],
            region_id=access["region"],
            endpoint=access["endpoint"],
            protocol=access["protocol"],
        )
    )


def a_pod(name: str, *command: str, limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Build a pod of one container."""
    labels = spec.pop("labels", {})
    container = {
        "name": "main",
        "image": spec.pop("image", "registry.local/test:1"),
        "command": list(command) or ["sleep", "infinity"],
        "resources": {"limits": {key: str(value) for key, value in (limits or {}).items()}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }
