"""What every scene of a tour stands on: the two identities, the cluster, its pools and nodes, and how to wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpupools.management.touring.client import Client, NoAnswer, Refusal, wait_for
from gpupools.management.touring.report import Failed, Report, Skipped

POOL_SECONDS = 120.0
CHANGE_SECONDS = 180.0
POD_SECONDS = 120.0
JOB_SECONDS = 240.0
SETTLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PoolWish:
    """A pool that the tour makes: its mode and policy, and the instance type where machines are made."""

    name: str
    mode: str
    policy: str | None = None
    instance_type: str = "ecs.gn6v-c8g1.8xlarge"


# One pool per mode, and one more for the second placement policy. The exclusive one has other cards than the rest,
# so that a Job can ask for a card model and avoid it.
POOLS = (
    PoolWish("tour-exclusive", "exclusive", instance_type="ecs.gn7i-c32g1.32xlarge"),
    PoolWish("tour-cgpu-binpack", "cgpu", "binpack"),
    PoolWish("tour-cgpu-spread", "cgpu", "spread"),
    PoolWish("tour-core-mem", "core_mem", "binpack"),
    PoolWish("tour-share", "share", "binpack"),
    PoolWish("tour-mps", "mps", "binpack"),
    PoolWish("tour-topology", "topology"),
)


@dataclass
class Ground:
    """Shared by all scenes. ``named_nodes``: the only nodes that pools may be made of; empty where ACK makes them."""

    admin: Client
    operator: Client
    report: Report
    cluster: str
    named_nodes: tuple[str, ...] = ()
    pools: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    submissions: list[int] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)

    @property
    def own_machines(self) -> bool:
        """Whether pools get machines of their own (ACK)."""
        return not self.named_nodes

    def node(self, name: str) -> dict[str, Any]:
        """Read one node; raise Failed when the console does not see it."""
        try:
            found: dict[str, Any] = self.operator.get(f"clusters/{self.cluster}/nodes/{name}/")
        except Refusal as refusal:
            raise Failed(f"node {name}: {refusal}") from refusal
        return found

    def node_rows(self, **query: str) -> list[dict[str, Any]]:
        """Read all nodes."""
        rows: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.operator.get(f"clusters/{self.cluster}/nodes/", **query, **({"after": after} if after else {}))
            rows += page["results"]
            after = page["next_after"] or ""
            if not after:
                return rows

    def pods_of(self, namespace: str, *, name: str = "", owner: str = "") -> list[dict[str, Any]]:
        """Read the pods of a Job, or one pod."""
        query = {"namespace": namespace} | ({"owner": owner} if owner else {})
        page = self.operator.get(f"clusters/{self.cluster}/pods/", **query)
        return [pod for pod in page["results"] if name in ("", pod["name"])]

    def node_of_pool(self, pool: str) -> str:
        """Return the node that a tour pool has; raise Skipped when the pool has none."""
        if pool not in self.nodes:
            raise Skipped(f"pool {pool} has no verified node")
        return self.nodes[pool]

    def pushed(self, target: str) -> Any:
        """Return the newest push to a target, None without any."""
        return next(self.admin.rows("pushes/", cluster__name=self.cluster, target=target), None)

    def submit(self, yaml: str, *, template: str = "") -> dict[str, Any]:
        """Submit a manifest and wait until the cluster has taken it."""
        body = {"cluster": self.cluster, "yaml": yaml, "template": template}
        newest = max((row["id"] for row in self.operator.get("submissions/")["results"]), default=0)

        def landed() -> Any:
            rows = self.operator.rows("submissions/", cluster__name=self.cluster)
            return next((row for row in rows if row["id"] > newest), None)

        made = self.operator.post("submissions/", body, landed=landed)
        self.submissions.append(made["id"])
        held, seen = wait_for(
            lambda: self.operator.get(f"submissions/{made['id']}/"),
            seconds=SETTLE_SECONDS,
            what=lambda row: row["state"] != "queued",
        )
        if not held or seen["state"] != "submitted":
            raise Failed(f"{seen['kind']} {seen['name']} is {seen['state']}: {seen['error'] or 'no reason given'}")
        return dict(seen)

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Put values into a template of the console."""
        return str(self.operator.post(f"job-templates/{template}/render/", {"parameters": dict(values)})["yaml"])

    def wait_pod(
        self,
        namespace: str,
        *,
        name: str = "",
        owner: str = "",
        until: Callable[[dict[str, Any]], bool],
        seconds: float,
    ) -> dict[str, Any]:
        """Wait for the (first) pod to be as wanted; raise Skipped where this cluster cannot run it, else Failed."""
        held, pods = wait_for(
            lambda: self.pods_of(namespace, name=name, owner=owner),
            seconds=seconds,
            what=lambda pods: bool(pods) and all(until(pod) for pod in pods),
        )
        if held:
            return dict(pods[0])
        if not pods:
            raise Skipped(f"no controller of this cluster made pods of {owner or name}")
        pod = pods[0]
        if not pod["node"] and not pod["reason"]:
            raise Skipped(f"no scheduler of this cluster looked at pod {pod['name']}")
        if "ImagePull" in pod["reason"]:
            raise Skipped(f"pod {pod['name']}: this cluster cannot pull {pod['image']} ({pod['reason']})")
        if pod["node"] and pod["phase"] == "Pending" and not pod["started_at"]:
            raise Skipped(f"no kubelet started pod {pod['name']} on {pod['node']}")
        if pod["phase"] == "Running" and not self.log_is_readable(pod):
            raise Skipped(f"nothing really runs pod {pod['name']}: it stays Running, and no kubelet gives its log")
        raise Failed(
            f"pod {pod['name']} on {pod['node'] or 'no node'} is {pod['phase']} "
            f"{pod['reason']} {pod['message']}".strip()
        )

    def log_is_readable(self, pod: dict[str, Any]) -> bool:
        """Tell whether a pod's log can be read, which takes a real kubelet."""
        try:
            self.operator.get(f"clusters/{self.cluster}/pods/{pod['namespace']}/{pod['name']}/log/")
        except (Refusal, NoAnswer):
            return False
        return True

    def delete_submission(self, submission: int) -> None:
        """Delete what was submitted, and wait until its pods are gone."""
        row = self.operator.get(f"submissions/{submission}/")
        if row["state"] != "submitted":
            return
        self.operator.post(
            f"submissions/{submission}/delete/",
            landed=lambda: (
                row if (row := self.operator.get(f"submissions/{submission}/"))["state"] != "submitted" else None
            ),
        )
        held, seen = wait_for(
            lambda: self.operator.get(f"submissions/{submission}/"),
            seconds=SETTLE_SECONDS,
            what=lambda row: row["state"] == "deleted",
        )
        if not held:
            raise Failed(f"{seen['kind']} {seen['name']} was not deleted: {seen['state']} {seen['error']}")
        owner = f"Job/{row['name']}" if row["kind"] == "Job" else ""
        name = row["name"] if row["kind"] == "Pod" else ""
        held, pods = wait_for(
            lambda: self.pods_of(row["namespace"], name=name, owner=owner),
            seconds=POD_SECONDS,
            what=lambda pods: not pods,
        )
        if not held:
            raise Failed(f"pods of {row['name']} do not go away: {', '.join(pod['name'] for pod in pods)}")
