"""Scenes of work: the documented Jobs and Pod, a Job per shared mode, and the two allocation tables.

The manifests are the console's templates; only the card model is put in.
"""

from __future__ import annotations

import re
from typing import Any

from gpupools.management.touring.client import wait_for
from gpupools.management.touring.ground import JOB_SECONDS, POD_SECONDS, SETTLE_SECONDS, Ground
from gpupools.management.touring.report import Failed, Skipped

OTHER_MODELS = ("Tesla-V100-SXM2-32GB", "NVIDIA-A10")
HOLDER_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  nodeSelector:
    kubernetes.io/hostname: {node}
  containers:
  - name: holder
    image: busybox:1.36
    command: ["sleep", "3600"]
    resources:
      limits:
        aliyun.com/gpu-mem: {units}
  restartPolicy: Never
"""


def run_documented_jobs(ground: Ground) -> None:
    """The three documented manifests: a card model required, a card model avoided, and nvidia-smi."""
    with ground.report.step("job: card model required") as step:
        model = _model(ground)
        pod = _run_job(ground, "card-model-required", {"card_model": model})
        step.detail = _landed(ground, pod)
        if ground.node(pod["node"])["labels"].get("aliyun.accelerator/nvidia_name") != model:
            raise Failed(f"it asked for {model}: {step.detail}")
    with ground.report.step("job: card model avoided") as step:
        model = _model(ground)
        # Where every exclusive node has the same cards, avoiding them would leave the Job without a node.
        avoided = model if _other_models(ground, model) else next(each for each in OTHER_MODELS if each != model)
        pod = _run_job(ground, "card-model-excluded", {"card_model": avoided})
        step.detail = _landed(ground, pod)
        if ground.node(pod["node"])["labels"].get("aliyun.accelerator/nvidia_name") == avoided:
            raise Failed(f"it avoided {avoided}: {step.detail}")
    with ground.report.step("pod: nvidia-smi") as step:
        if not ground.nodes.get("tour-exclusive"):
            raise Skipped("no node offers whole cards")
        made = ground.submit(ground.render("gpu-test", {}), template="gpu-test")
        ended = ground.wait_pod(
            made["namespace"], name=made["name"], until=lambda pod: pod["phase"] == "Succeeded", seconds=POD_SECONDS
        )
        if not ground.log_is_readable(ended):
            raise Skipped(f"no kubelet of this cluster gives the log of {made['name']}")
        path = f"clusters/{ground.cluster}/pods/{made['namespace']}/{made['name']}/log/"
        held, log = wait_for(
            lambda: ground.operator.get(path)["text"], seconds=SETTLE_SECONDS, what=lambda text: "NVIDIA-SMI" in text
        )
        if not held:
            raise Failed(f"its log shows no table: {log[:200]!r}")
        step.detail = f"ended on {ended['node']}, its log shows the table of one card"
        ground.delete_submission(made["id"])


def _model(ground: Ground) -> str:
    node = ground.node(ground.node_of_pool("tour-exclusive"))
    model = str(node["labels"].get("aliyun.accelerator/nvidia_name", ""))
    if not model:
        raise Skipped(f"node {node['name']} carries no card model label")
    return model


def _other_models(ground: Ground, model: str) -> bool:
    """Tell whether some verified exclusive node has cards of another model."""
    return any(
        row["mode"] == "exclusive"
        and row["verified"]
        and row["labels"].get("aliyun.accelerator/nvidia_name") not in (None, model)
        for row in ground.node_rows(mode="exclusive")
    )


def _landed(ground: Ground, pod: dict[str, Any]) -> str:
    model = ground.node(pod["node"])["labels"].get("aliyun.accelerator/nvidia_name", "unknown")
    return f"{pod['name']} ran on {pod['node']} ({model})"


def _run_job(ground: Ground, template: str, values: dict[str, Any]) -> dict[str, Any]:
    """Submit a template's Job, wait until it has succeeded, delete it; return its pod as it was at the end."""
    made = ground.submit(ground.render(template, values), template=template)
    pod = ground.wait_pod(
        made["namespace"],
        owner=f"Job/{made['name']}",
        until=lambda pod: pod["phase"] == "Succeeded",
        seconds=JOB_SECONDS,
    )
    ground.delete_submission(made["id"])
    return pod


def hold_cards_in_each_mode(ground: Ground) -> None:
    """One Job per further mode, by its template: it must hold cards of a node in that mode while it runs."""
    for template, pool, key, amount in (
        ("shared-memory-and-compute", "tour-core-mem", "core_percent", 30),
        ("shared-mps", "tour-mps", "memory_units", 4),
        ("topology", "tour-topology", "cards", 2),
    ):
        with ground.report.step(f"allocation: {template}") as step:
            node = ground.node_of_pool(pool)
            made = ground.submit(ground.render(template, {}), template=template)
            pod = ground.wait_pod(
                made["namespace"],
                owner=f"Job/{made['name']}",
                until=lambda pod: pod["phase"] in {"Running", "Succeeded"},
                seconds=POD_SECONDS,
            )
            if pod["node"] != node:
                raise Failed(f"{pod['name']} landed on {pod['node']}, not on the only node of the mode, {node}")
            uses = [use for use in pod["uses"] if use["index"] is not None]
            if not uses:
                raise Skipped(f"this cluster's scheduler wrote no card allocation for {pod['name']}")
            held = sum(use[key] for use in uses)
            step.detail = f"{pod['name']} holds {held} {key} on card {', '.join(str(use['index']) for use in uses)}"
            if held != amount:
                raise Failed(f"{step.detail}; it asked for {amount}")
            ground.delete_submission(made["id"])


def show_binpack(ground: Ground) -> None:
    """Pods of 6, 9 and 9 units, one after the other: the first card is filled before the next is begun."""
    _scene(ground, "binpack", (6, 9, 9), lambda used: used == [15, 9, 0, 0], "24/60 (40%)")


def show_spread(ground: Ground) -> None:
    """Three pods of 4 units, one after the other: on three different cards."""
    _scene(ground, "spread", (4, 4, 4), lambda used: sorted(used) == [0, 4, 4, 4], "12/60 (20%)")


def _scene(ground: Ground, policy: str, asks: tuple[int, ...], as_wanted: Any, total: str) -> None:
    with ground.report.step(f"scene {policy}") as step:
        node = ground.node_of_pool(f"tour-cgpu-{policy}")
        for number, units in enumerate(asks, start=1):
            text = HOLDER_POD.format(name=f"{policy}-{number}", node=_hostname(ground, node), units=units)
            made = ground.submit(text)
            pod = ground.wait_pod(
                made["namespace"], name=made["name"], until=lambda pod: pod["phase"] == "Running", seconds=POD_SECONDS
            )
            if not pod["uses"] or pod["uses"][0]["index"] is None:
                raise Skipped(f"this cluster's scheduler wrote no card allocation for {pod['name']}")
        path = f"clusters/{ground.cluster}/allocation/inspect/"
        held, table = wait_for(
            lambda: ground.operator.get(path, node=node)["shared"],
            seconds=SETTLE_SECONDS,
            what=lambda table: total in table and as_wanted(_used(table, node)),
        )
        ground.report.tables.append(f"{policy}, pods of {', '.join(map(str, asks))} units:\n{table}")
        step.detail = f"{node}: {' '.join(f'{used}/15' for used in _used(table, node))}, {total}"
        if not held:
            raise Failed(f"the table is not as wanted ({total}):\n{table}")


def _hostname(ground: Ground, node: str) -> str:
    return str(ground.node(node)["labels"].get("kubernetes.io/hostname", node))


def _used(table: str, node: str) -> list[int]:
    """Read the used units of each card from a node's row of the table."""
    row = next((line for line in table.splitlines() if line.split()[:1] == [node]), "")
    return [int(used) for used, _ in re.findall(r"(\d+)/(\d+)", row)[:-1]]


def show_tables(ground: Ground) -> None:
    """The allocation of the whole cluster, as text."""
    with ground.report.step("allocation tables"):
        tables = ground.operator.get(f"clusters/{ground.cluster}/allocation/inspect/")
        ground.report.tables += [text for text in (tables["shared"], tables["whole"]) if text]
