"""Every lint rule on the manifest that breaks it, and none on one that is fine."""

from __future__ import annotations

import pytest

from gpupools.domain.findings import ERROR, REFUSALS, WARNING
from gpupools.domain.lint import RULES, lint
from gpupools.domain.manifests import parse
from gpupools.domain.modes import Mode

SELECT = "ack.node.gpu.schedule"


def pod(limits: str, *, spec: str = "", labels: str = "", requests: str = "", container: str = "") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {{{labels}}}}}\nspec:\n"
        f"  containers: [{{name: c, image: i, resources: {{limits: {{{limits}}}, requests: {{{requests}}}}}"
        f"{container}}}]\n"
        f"{spec}"
    )


def select(mode: str) -> str:
    return f"  nodeSelector: {{{SELECT}: {mode}}}\n"


def codes(text: str, modes: frozenset[Mode] | None = None) -> list[str]:
    return [finding.code for finding in lint(parse(text, max_bytes=10_000), modes_present=modes)]


NOT_IN = (
    "  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: aliyun.accelerator/nvidia_name, operator: NotIn, values: [V100]}%s]}]}}}\n"
)
EXISTS = ", {key: aliyun.accelerator/nvidia_name, operator: Exists}"
CASES = [
    ("whole cards", pod("nvidia.com/gpu: 1"), []),
    ("shared, bound to its mode", pod("aliyun.com/gpu-mem: 4", spec=select("cgpu")), []),
    ("a quarter of a card, as a tutorial has it", pod("aliyun.com/gpu-count: 25"), ["gpu-count-limit"]),
    ("half a unit", pod("aliyun.com/gpu-mem: 5.5", spec=select("cgpu")), ["whole-number"]),
    ("memory with a suffix", pod("aliyun.com/gpu-mem: 4Gi", spec=select("cgpu")), ["whole-number"]),
    ("only a request", pod("", requests="nvidia.com/gpu: 1"), ["limit-required", "no-gpu"]),
    ("request below limit", pod("nvidia.com/gpu: 2", requests="nvidia.com/gpu: 1"), ["request-equals-limit"]),
    (
        "compute not in steps of five",
        pod("aliyun.com/gpu-mem: 4, aliyun.com/gpu-core.percentage: 33", spec=select("core_mem")),
        ["core-percent"],
    ),
    (
        "more compute than a card has",
        pod("aliyun.com/gpu-mem: 4, aliyun.com/gpu-core.percentage: 105", spec=select("core_mem")),
        ["core-percent"],
    ),
    ("compute alone", pod("aliyun.com/gpu-core.percentage: 30"), ["core-without-memory"]),
    (
        "seven units on two cards",
        pod("aliyun.com/gpu-mem: 7", spec=select("cgpu"), labels="aliyun.com/gpu-count: '2'"),
        ["replica-divides"],
    ),
    (
        "a card count that is no number",
        pod("aliyun.com/gpu-mem: 8", spec=select("cgpu"), labels="aliyun.com/gpu-count: two"),
        ["replica-label"],
    ),
    (
        "two cards with compute",
        pod(
            "aliyun.com/gpu-mem: 8, aliyun.com/gpu-core.percentage: 30",
            spec=select("core_mem"),
            labels="aliyun.com/gpu-count: '2'",
        ),
        ["replica-with-core"],
    ),
    (
        "two ways at once",
        pod("nvidia.com/gpu: 1, aliyun.com/gpu-mem: 4", spec=select("cgpu")),
        ["two-modes", "wrong-resource"],
    ),
    ("the other mode's resource", pod("nvidia.com/gpu: 1", spec=select("cgpu")), ["wrong-resource"]),
    ("memory only on core_mem", pod("aliyun.com/gpu-mem: 4", spec=select("core_mem")), ["wrong-resource"]),
    ("a mode that nobody knows", pod("aliyun.com/gpu-mem: 4", spec=select("shared")), ["unknown-mode"]),
    ("shared, not bound", pod("aliyun.com/gpu-mem: 4"), ["mode-not-bound"]),
    ("mps without hostIPC", pod("aliyun.com/gpu-mem: 4", spec=select("mps")), ["mps-host-ipc"]),
    ("mps as it should be", pod("aliyun.com/gpu-mem: 4", spec=select("mps") + "  hostIPC: true\n"), []),
    (
        "gang and topology group",
        pod(
            "aliyun.com/gpu: 1",
            labels="pod-group.scheduling.sigs.k8s.io/name: a, gputopology.alibabacloud.com/pod-group: b",
        ),
        ["gang-and-topology"],
    ),
    (
        "an unknown placement label",
        pod("aliyun.com/gpu-mem: 4", spec=select("cgpu"), labels="ack.gpushare.placement: whole"),
        ["placement-label"],
    ),
    (
        "devices set by hand",
        pod("nvidia.com/gpu: 1", container=", env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"),
        ["visible-devices"],
    ),
    ("exclusion without Exists", pod("nvidia.com/gpu: 1", spec=NOT_IN % ""), ["exclusion-matches-unlabelled"]),
    ("exclusion with Exists", pod("nvidia.com/gpu: 1", spec=NOT_IN % EXISTS), []),
    ("no GPU at all", pod("cpu: 1"), ["no-gpu"]),
    (
        "an init container with memory",
        pod(
            "aliyun.com/gpu-mem: 4",
            spec=select("cgpu")
            + "  initContainers: [{name: i, image: i, resources: {limits: {aliyun.com/gpu-mem: 2}}}]\n",
        ),
        ["init-container-gpu"],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_manifest_gets_just_its_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_containers_that_ask_differently_are_found() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "  - {name: a, image: i, resources: {limits: {aliyun.com/gpu-mem: 4}}}\n"
        "  - {name: b, image: i, resources: {limits: {aliyun.com/gpu-mem: 4, aliyun.com/gpu-core.percentage: 30}}}\n"
    )
    assert "inconsistent-containers" in codes(text)


def test_a_job_must_say_how_its_pods_restart() -> None:
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: "
        "[{name: a, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}\n"
    )
    assert codes(text) == ["restart-policy"]


def test_a_mode_that_the_cluster_lacks_is_a_warning_and_only_when_known() -> None:
    text = pod("aliyun.com/gpu-mem: 4", spec=select("cgpu"))
    assert codes(text, frozenset({Mode.SHARE})) == ["no-such-node"]
    assert codes(text, frozenset({Mode.CGPU})) == []
    assert codes(text, None) == []


def test_errors_come_before_warnings() -> None:
    text = pod("aliyun.com/gpu-mem: 4Gi")
    severities = [finding.severity for finding in lint(parse(text, max_bytes=10_000), modes_present=None)]
    assert severities == [ERROR, WARNING]


def test_every_rule_says_what_it_is_for() -> None:
    assert all(rule.__doc__ for rule in RULES)


JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
PLACEMENT = "ack.gpushare.placement: x"
REFUSERS = [
    ("half a unit", pod("aliyun.com/gpu-mem: 5.5", spec=select("cgpu")), "whole-number", "api-server"),
    ("a negative one", pod("aliyun.com/gpu-mem: -1", spec=select("cgpu")), "whole-number", "api-server"),
    ("four times 2 to the 30", pod("aliyun.com/gpu-mem: 4Gi", spec=select("cgpu")), "whole-number", "scheduler"),
    ("a request alone", pod("", requests="nvidia.com/gpu: 1"), "limit-required", "api-server"),
    ("a name without a domain", pod("gpu-mem: 1"), "unknown-resource", "api-server"),
    ("a Job that restarts", JOB.replace("Never", "Always"), "restart-policy", "api-server"),
    ("33 % of a card", pod("aliyun.com/gpu-mem: 1, aliyun.com/gpu-core.percentage: 33"), "core-percent", "scheduler"),
    ("two modes", pod("aliyun.com/gpu-mem: 1, nvidia.com/gpu: 1"), "two-modes", "scheduler"),
    ("mps by itself", pod("aliyun.com/gpu-mem: 1", spec=select("mps")), "mps-host-ipc", "node"),
    ("a label of another value", pod("nvidia.com/gpu: 1", labels=PLACEMENT), "placement-label", "console"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "who"), [case[1:] for case in REFUSERS], ids=[case[0] for case in REFUSERS])
def test_an_error_says_who_does_not_do_as_it_is_written(text: str, code: str, who: str) -> None:
    findings = lint(parse(text, max_bytes=10_000), modes_present=None)
    assert {finding.refused_by for finding in findings if finding.code == code} == {who}
    assert who in REFUSALS
    assert all(bool(finding.refused_by) == (finding.severity == ERROR) for finding in findings)


@pytest.mark.parametrize(
    ("wrong", "path", "nearest"),
    [
        ("nodeSelectr: {a: b}", "spec.template.spec.nodeSelectr", "nodeSelector"),
        ("image: x", "spec.template.spec.image", "image in a container"),
        ("parallelism: 2", "spec.template.spec.parallelism", "parallelism in the Job's spec"),
        ("tolerations: [{keys: x}]", "spec.template.spec.tolerations[0].keys", "key"),
        ("bananas: 7", "spec.template.spec.bananas", ""),
    ],
)
def test_a_field_that_the_kind_does_not_have_is_named_with_the_nearest(wrong: str, path: str, nearest: str) -> None:
    text = JOB.replace("restartPolicy: Never", f"restartPolicy: Never\n      {wrong}")
    findings = lint(parse(text, max_bytes=10_000), modes_present=None)
    (finding,) = [each for each in findings if each.code == "unknown-field"]
    assert (finding.path, finding.severity) == (path, WARNING)
    assert finding.fix == (f"Did you mean {nearest}?" if nearest else "Leave it out.")


def test_a_field_of_the_job_itself_and_an_empty_amount_are_warned_of() -> None:
    assert codes(JOB.replace("  template:", "  parallelsm: 2\n  template:")) == ["unknown-field"]
    assert codes(pod("nvidia.com/gpu: 1, cpu: ")) == ["no-amount"]
    assert codes(pod("nvidia.com/gpu: ")) == ["no-amount", "no-gpu"]
