"""The stage of the crash matrix: an embedded cluster behind relays, fresh pools on it, people who ask and decide."""

from __future__ import annotations

import base64
import http.client
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import yaml
from alibabacloud_cs20151215.models import DescribeClusterTasksRequest
from django.conf import settings

from gpupools.clusters.port import PoolFacts
from gpupools.domain.gpus import GpuNode
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changes, clusters, gateways, poolcuts, pools, poolsync
from gpupools.services.access import SYSTEM, Actor
from tests.services.driving import a_sleeper, drive, opened, settle, until, with_components
from tests.services.killing import Gate, Workers, relayed, to_server
from tests.services.test_crash import database_url
from tests.simulator.harness import SimulatorProcess

TYPE = "ecs.gn7i-c8g1.2xlarge"
MODE = "ack.node.gpu.schedule"
ACK_POOL = "alibabacloud.com/nodepool-id"
# What one pod asks for to hold a card in a mode.
ASKS = {
    "exclusive": {"nvidia.com/gpu": 1},
    "cgpu": {"aliyun.com/gpu-mem": 4},
    "mps": {"aliyun.com/gpu-mem": 4},
    "core_mem": {"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-core.percentage": 10},
}
# One that works, and two that sleep.
WORKERS = 3
SCALING = {"enable": True, "min_instances": 1, "max_instances": 5}


def label(mode: str) -> str:
    """The value of the mode's label."""
    return "default" if mode == "exclusive" else mode


def fleet(provider: str, pairs: Counter[str], empty: Counter[str]) -> dict[str, object]:
    """A fleet with so many pairs of nodes in each mode, and so many empty pools."""
    facts = {"name": "embedded", "region": "cn-hangzhou", "zones": ["cn-hangzhou-i"], "version": "1.34.3"}
    made: dict[str, object] = {"name": "matrix", "addons": ["ack-nvidia-device-plugin"]}
    if provider == "kubernetes":
        groups = [
            {
                "prefix": mode.replace("_", "-"),
                "instance_type": TYPE,
                "count": 2 * number,
                "labels": {MODE: label(mode)},
            }
            for mode, number in pairs.items()
        ]
        return {**made, "cluster": facts, "nodes": groups}
    groups = [
        {"name": f"{mode}-{kind}{number}", "instance_types": [TYPE], "size": size, "labels": {MODE: label(mode)}}
        for kind, size, numbers in (("", 2, pairs), ("empty-", 0, empty))
        for mode, most in numbers.items()
        for number in range(1, most + 1)
    ]
    return {**made, "cluster": {**facts, "spec": "ack.pro.small"}, "pools": groups}


@dataclass
class Stage:
    """One embedded cluster with everything that the stories of one provider need."""

    simulator: SimulatorProcess
    cluster: Cluster
    operator: Actor
    admin: Actor
    gate: Gate
    workers: tuple[Workers, ...]
    taken: dict[str, count[int]] = field(default_factory=dict)

    @property
    def is_ack(self) -> bool:
        """Whether machines are the provider's."""
        return self.cluster.provider == Cluster.Provider.ACK

    def _next(self, what: str) -> int:
        return next(self.taken.setdefault(what, count(1)))

    def two_nodes(self, mode: str) -> list[str]:
        """Names of two nodes that nobody has used (plain Kubernetes)."""
        number = 2 * self._next(mode)
        return [f"{mode.replace('_', '-')}-{each:02d}" for each in (number - 1, number)]

    def pool(self, mode: str, *, scaled: bool = False) -> NodePool:
        """A pool of two nodes that nobody has used; ``scaled``: ACK makes and removes machines of it."""
        number = self._next(f"pool of {mode}")
        if not self.is_ack:
            nodes = self.two_nodes(mode)
            made = pools.create(self.operator, self.cluster, name=f"{mode}-{number}", mode=mode, node_names=nodes)
            settle()
        else:
            made = NodePool.objects.get(cluster=self.cluster, name=f"{mode}-{number}")
        if scaled:
            poolcuts.scale(self.operator, made, desired_size=2, auto_scaling=SCALING)
            settle()
            poolsync.sync(self.cluster)
        made = NodePool.objects.select_related("cluster").get(pk=made.pk)
        assert (made.state, made.error, bool(made.auto_scaling.get("enable"))) == ("active", "", scaled)
        return made

    def empty_pool(self, mode: str) -> NodePool:
        """A pool of ACK without a node."""
        return NodePool.objects.get(cluster=self.cluster, name=f"{mode}-empty-{self._next(f'empty {mode}')}")

    def approved(self, pool: NodePool, mode: str = "", **wishes: object) -> ModeChange:
        """A change that is asked for by one and approved by the other."""
        change = changes.request(self.operator, pool, target_mode=mode, reason="needed", **wishes)
        return changes.approve(self.admin, change, reason="agreed")

    def stopped_after(self, change: ModeChange, kind: str, wave: int = 0) -> ModeChange:
        """Carry a change out up to the end of a step, and pause it there."""
        due = change.steps.filter(kind=kind, wave=wave, state="done")
        drive(due.exists, what=f"a change that is done with {kind}")
        change.refresh_from_db()
        changes.pause(self.operator, change, reason="enough")
        settle()
        change.refresh_from_db()
        return change

    def nodes(self, pool: NodePool) -> list[GpuNode]:
        """The nodes of a pool as they are."""
        with opened(self.cluster) as kubernetes:
            nodes = kubernetes.nodes()
        key, value = (ACK_POOL, pool.pool_id) if self.is_ack else ("gpupools.internal/pool", pool.name)
        return [node for node in nodes if node.labels.get(key) == value]

    def occupy(self, nodes: Iterable[str], mode: str) -> None:
        """Let a pod hold a card of each node."""
        names = [f"holder-{self._next('holder')}-{node}" for node in nodes]
        with opened(self.cluster) as kubernetes:
            for name in names:
                node = name.split("-", 2)[2]
                kubernetes.create(a_sleeper(name, seconds=10**7, limits=ASKS[mode], node=node), op_id=name)
            until(
                lambda: (
                    set(names) <= {p.owner_name for p in kubernetes.pods(namespace="default") if p.phase == "Running"}
                ),
                what="running holders",
            )

    def clear(self) -> None:
        """End the Jobs of all holders."""
        with opened(self.cluster) as kubernetes:
            for each in kubernetes.workloads():
                if each.kind == "Job":
                    kubernetes.delete("Job", each.namespace, each.name)

    def facts(self, pool: NodePool) -> PoolFacts:
        """A pool of ACK as ACK has it."""
        with gateways.pools_of(self.cluster) as (_, provider):
            found = provider.pool(pool.pool_id)
        assert found is not None
        return found

    def tasks(self) -> dict[str, str]:
        """The newest tasks that ACK was given: id and type."""
        if not self.is_ack:
            return {}
        with gateways.pools_of(self.cluster) as (_, provider):
            request = DescribeClusterTasksRequest(page_number=1, page_size=50)
            answer = provider._client.describe_cluster_tasks(provider._cluster_id, request)
        return {task.task_id: task.task_type for task in answer.body.tasks}

    def version(self) -> str:
        """The version of the cluster's nodes as a whole, to count from."""
        with self._asking("/api/v1/nodes") as answer:
            return str(json.load(answer)["metadata"]["resourceVersion"])

    def node_states(self, since: str) -> dict[str, list[tuple[bool, str]]]:
        """By UID, how nodes have stood one after the other since a version: whether closed, and their mode's label.

        As the cluster itself has it; a node of which nothing changed is not there.
        """
        states: dict[str, list[tuple[bool, str]]] = {}
        with self._asking("/api/v1/nodes") as answer:
            listed = json.load(answer)
        last = max(int(each["metadata"]["resourceVersion"]) for each in listed["items"])
        if last <= int(since):
            return states
        with self._asking(f"/api/v1/nodes?watch=true&resourceVersion={since}") as answer:
            while line := answer.readline():
                node = json.loads(line)["object"]
                now = (bool(node["spec"].get("unschedulable")), node["metadata"]["labels"].get(MODE, ""))
                seen = states.setdefault(node["metadata"]["uid"], [])
                if not seen or seen[-1] != now:
                    seen.append(now)
                if int(node["metadata"]["resourceVersion"]) >= last:
                    return states
        raise AssertionError("the watch ended early")

    @contextmanager
    def _asking(self, path: str) -> Iterator[http.client.HTTPResponse]:
        config = yaml.safe_load(self.simulator.kubeconfig.read_text())
        authority = self.simulator.directory / "authority.pem"
        authority.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
        asked = to_server(self.simulator.server, authority)()
        try:
            asked.request("GET", path, headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"})
            answer = asked.getresponse()
            assert answer.status == 200, answer.read()
            yield answer
        finally:
            asked.close()


@contextmanager
def staged(
    provider: str, operator: Actor, admin: Actor, folder: Path, pairs: Counter[str], empty: Counter[str], speed: float
) -> Iterator[Stage]:
    """Start an embedded cluster and connect it by way of relays, with the components that the modes need."""
    path = folder / f"{provider}.yaml"
    path.write_text(yaml.safe_dump(fleet(provider, pairs, empty)))
    with ExitStack() as stack:
        simulator = SimulatorProcess(fleet=str(path), ack=provider == "ack", speed=speed)
        stack.enter_context(simulator)
        config = yaml.safe_load(simulator.kubeconfig.read_text())
        authority = folder / f"{provider}.pem"
        authority.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
        gate = Gate()
        address = stack.enter_context(relayed(to_server(simulator.server, authority), gate))
        config["clusters"][0]["cluster"] = {"server": f"http://{address}"}
        ack = None
        if simulator.ack:
            ack = {
                **simulator.ack,
                "endpoint": stack.enter_context(relayed(to_server(simulator.ack["endpoint"], None), gate)),
            }
        cluster = clusters.connect(SYSTEM, name=provider, provider=provider, kubeconfig=yaml.safe_dump(config), ack=ack)
        log = folder / f"{provider}.log"
        workers = tuple(
            Workers(gate, database=database_url(), broker=settings.REDIS_URL, log=log) for _ in range(WORKERS)
        )
        for each in workers:
            stack.callback(each.close)
        with_components(admin, cluster, "ack-ai-installer", "ack-mps-control")
        stage = Stage(simulator, cluster, operator, admin, gate, workers)
        with opened(cluster) as kubernetes:
            until(lambda: all(_reports(node) for node in kubernetes.nodes()), what="nodes that report their cards")
        if stage.is_ack:
            poolsync.sync(cluster)
        yield stage


def _reports(node: GpuNode) -> bool:
    return any(
        amount for name, amount in node.allocatable.items() if name.startswith(("nvidia.com/", "aliyun.com/gpu"))
    )
