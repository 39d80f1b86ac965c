"""Reading untrusted manifests: what is refused, and where the error points."""

from __future__ import annotations

import pytest

from gpupools.domain import yamltext
from gpupools.domain.manifests import check_confined, parse, selects_mode
from gpupools.errors import Invalid

POD = """apiVersion: v1
kind: Pod
metadata:
  name: gpu-test
spec:
  restartPolicy: OnFailure
  containers:
  - name: cuda
    image: nvidia/cuda:12.0.0-base-ubuntu22.04
    command: ["nvidia-smi"]
    resources:
      limits:
        nvidia.com/gpu: 1
"""


def job(pod_spec: str = "", *, parallelism: str = "1") -> str:
    return f"""apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  parallelism: {parallelism}
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: busybox, resources: {{limits: {{nvidia.com/gpu: 2}}}}}}]
{pod_spec}"""


def refused(text: str, max_bytes: int = 10_000) -> tuple[str, str]:
    with pytest.raises(Invalid) as caught:
        parse(text, max_bytes=max_bytes)
    (error,) = caught.value.errors
    assert error.message
    assert error.found
    return error.field, error.code


def test_a_pod_is_read_with_what_it_asks_for() -> None:
    manifest = parse(POD, max_bytes=10_000)
    assert (manifest.kind, manifest.namespace, manifest.name) == ("Pod", "default", "gpu-test")
    assert manifest.ask.containers[0].limits == {"nvidia.com/gpu": 1}
    assert manifest.ask.containers[0].requests == {"nvidia.com/gpu": 1}


def test_a_job_is_read_with_its_parallelism() -> None:
    manifest = parse(job(parallelism="3"), max_bytes=10_000)
    assert (manifest.kind, manifest.parallelism, manifest.completions) == ("Job", 3, 3)
    assert manifest.ask.containers[0].limits == {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("a: [", "yaml", "not-yaml"),
        ("a: 1\na: 2", "yaml", "not-yaml"),
        ("a: \x00", "yaml", "not-yaml"),
        ("a: \ud800", "yaml", "not-yaml"),
        ("a: !!python/object:os.system {}", "yaml", "not-yaml"),
        ("- 1", "yaml", "not-an-object"),
        ("", "yaml", "not-an-object"),
        ("a: &x 1\nb: *x", "yaml", "alias"),
        ("a: 1\n---\nb: 2", "yaml", "several-documents"),
        ("a: " + "[" * 60 + "]" * 60, "yaml", "too-deep"),
        ("a: " + "x" * 20_000, "yaml", "too-large"),
        (POD.replace("kind: Pod", "kind: Deployment"), "yaml:kind", "wrong-kind"),
        (POD.replace("v1", "v2", 1), "yaml:apiVersion", "invalid"),
        (POD.replace("  name: gpu-test", "  generateName: gpu-test"), "yaml:metadata.name", "invalid"),
        (POD.replace("gpu-test", "GPU_test"), "yaml:metadata.name", "invalid"),
        (POD.replace("gpu-test", "gpu-test\n  namespace: A B"), "yaml:metadata.namespace", "invalid"),
        (
            POD.replace("gpu: 1", "gpu: lots"),
            "yaml:spec.containers[0].resources.limits[nvidia.com/gpu]",
            "invalid",
        ),
        (job(parallelism="many"), "yaml:spec.parallelism", "invalid"),
        (job(parallelism="100000"), "yaml:spec.parallelism", "invalid"),
        (job().replace("containers: [", "containerz: ["), "yaml:spec.template.spec.containers", "invalid"),
        (job().replace("[{name: main", "[7, {name: main"), "yaml:spec.template.spec.containers[0]", "invalid"),
    ],
)
def test_bad_text_is_refused_with_its_field(text: str, field: str, code: str) -> None:
    assert refused(text) == (field, code)


def test_a_bomb_of_aliases_is_refused_before_it_is_built() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 9)]
    assert refused("\n".join(lines)) == ("yaml", "alias")


def test_words_that_yaml_1_1_would_turn_stay_text() -> None:
    text = "on: yes\na: 12:30:45\nb: 2020-01-01\nc: 0o17\nd: 017\ne: true\nf: 1_000"
    assert yamltext.load(text, max_bytes=1000) == {
        "on": "yes",
        "a": "12:30:45",
        "b": "2020-01-01",
        "c": "0o17",
        "d": "017",
        "e": True,
        "f": "1_000",
    }


CONFINED = [
    ("      hostNetwork: true", "spec.hostNetwork"),
    ("      hostPID: true", "spec.hostPID"),
    ("      hostIPC: true", "spec.hostIPC"),
    ("      nodeName: gpu-1", "spec.nodeName"),
    ("      schedulerName: volcano", "spec.schedulerName"),
    ("      serviceAccountName: admin", "spec.serviceAccountName"),
    ("      serviceAccount: admin", "spec.serviceAccount"),
    ("      priorityClassName: system-node-critical", "spec.priorityClassName"),
    ("      volumes: [{name: a, hostPath: {path: /}}]", "spec.volumes[0].hostPath"),
    ("      volumes: [{name: a, nfs: {server: x, path: /}}]", "spec.volumes[0].nfs"),
    ("      securityContext: {sysctls: [{name: a, value: b}]}", "spec.securityContext.sysctls"),
    (
        "      initContainers: [{name: i, image: b, securityContext: {privileged: true}}]",
        "spec.initContainers[0].securityContext.privileged",
    ),
    (
        "      initContainers: [{name: i, image: b, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]",
        "spec.initContainers[0].securityContext.capabilities.add",
    ),
    (
        "      initContainers: [{name: i, image: b, ports: [{hostPort: 80}]}]",
        "spec.initContainers[0].ports[0].hostPort",
    ),
]


@pytest.mark.parametrize(("lines", "path"), CONFINED)
def test_a_job_that_reaches_for_its_node_is_refused(lines: str, path: str) -> None:
    errors = check_confined(parse(job(lines), max_bytes=10_000), namespaces=None)
    assert [error.field for error in errors] == [f"yaml:spec.template.{path}"]


def test_a_plain_job_is_confined_already() -> None:
    assert check_confined(parse(job(), max_bytes=10_000), namespaces=frozenset({"default"})) == []


def test_another_namespace_than_the_granted_ones_is_refused() -> None:
    (error,) = check_confined(parse(POD, max_bytes=10_000), namespaces=frozenset({"team-a"}))
    assert (error.field, error.found, error.allowed) == ("yaml:metadata.namespace", "default", "team-a")


def test_host_ipc_is_let_through_for_mps_only() -> None:
    bound = "      hostIPC: true\n      nodeSelector: {ack.node.gpu.schedule: %s}"
    assert check_confined(parse(job(bound % "mps"), max_bytes=10_000), namespaces=None) == []
    assert check_confined(parse(job(bound % "cgpu"), max_bytes=10_000), namespaces=None)


@pytest.mark.parametrize(
    "annotation",
    ["scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_IDX", "gputopology.alibabacloud.com/allocation"],
)
def test_a_forged_allocation_is_refused(annotation: str) -> None:
    text = POD.replace("  name: gpu-test", f"  name: gpu-test\n  annotations: {{{annotation}: '1'}}")
    (error,) = check_confined(parse(text, max_bytes=10_000), namespaces=None)
    assert error.field == f"yaml:metadata.annotations.{annotation}"


def test_a_mode_chosen_by_affinity_is_seen_when_it_is_the_only_one() -> None:
    terms = (
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: ack.node.gpu.schedule, operator: In, values: [%s]}]}]}}}"
    )
    assert selects_mode(parse(job(terms % "mps"), max_bytes=10_000).ask) == "mps"
    assert selects_mode(parse(job(terms % "mps, cgpu"), max_bytes=10_000).ask) is None
    assert selects_mode(parse(job(), max_bytes=10_000).ask) is None
