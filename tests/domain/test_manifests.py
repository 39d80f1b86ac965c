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


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("yes", True), ("y", True), ("On", True), ("TRUE", True), ("no", False), ("n", False), ("Off", False),
        ("010", 8), ("-010", -8), ("0o10", 8), ("0x10", 16), ("0b11", 3), ("1_0", 10), ("+5", 5), ("089", 89),
        ("1e3", 1000), (".5", 0.5), ("1.5", 1.5), ("18446744073709551615", 18446744073709551615), ("~", None),
        ("12:30:45", "12:30:45"), ("2020-01-01", "2020-01-01"), ("0o8", "0o8"), ("_1", "_1"), ("4Gi", "4Gi"),
        (".inf", ".inf"), ("1e999", "1e999"), ("yEs", "yEs"), ("'010'", "010"), ('"yes"', "yes"), ("!!str no", "no"),
    ],
)  # fmt: skip
def test_a_word_is_read_as_kubectl_reads_it(word: str, read: object) -> None:
    value = yamltext.load(f"a: {word}", max_bytes=1000)["a"]
    assert (value, type(value)) == (read, type(read))


@pytest.mark.parametrize("key", ["on", "010", "~", "y"])
def test_a_key_that_kubectl_reads_as_another_word_is_refused(key: str) -> None:
    with pytest.raises(Invalid, match="put it in quotes"):
        yamltext.load(f"{key}: 1", max_bytes=1000)
    assert yamltext.load(f"'{key}': 1\n7: x\ntrue: z", max_bytes=1000) == {key: 1, "7": "x", "true": "z"}


@pytest.mark.parametrize("value", ["!!int x", "!!bool 3", "!!set {a}", "!!binary aa", "!own {}"])
def test_tags_are_refused_before_anything_is_made_of_them(value: str) -> None:
    assert refused(f"a: {value}") == ("yaml", "not-yaml")


@pytest.mark.parametrize(
    "text", ["---\n{}---\n# only a comment\n", "---\n# first\n---\n{}", "---\n---\n\n{}...\n", "{}---\n\n---\n"]
)
def test_lines_of_dashes_around_nothing_make_no_second_document(text: str) -> None:
    assert yamltext.load(text.format("a: 1\n"), max_bytes=1000) == {"a": 1}
    assert refused(text.format("a: 1\n") + "\n---\nb: 2") == ("yaml", "several-documents")


@pytest.mark.parametrize(
    ("metadata", "field", "found"),
    [
        ("labels: {a: yes}", "metadata.labels.a", "true"),
        ("labels: {a: 010}", "metadata.labels.a", "8"),
        ("annotations: {a: 1.5}", "metadata.annotations.a", "1.5"),
        ("name: 0x10", "metadata.name", "16"),
        ("namespace: off", "metadata.namespace", "false"),
    ],
)
def test_a_text_without_quotes_that_kubectl_reads_as_something_else_is_refused_at_its_field(
    metadata: str, field: str, found: str
) -> None:
    named = metadata if "name:" in metadata else f"name: x, {metadata}"
    with pytest.raises(Invalid) as caught:
        parse(POD.replace("  name: gpu-test", "  {" + named + "}"), max_bytes=10_000)
    (error,) = caught.value.errors
    assert (error.field, error.found, error.allowed) == (f"yaml:{field}", found, "text; put it in quotes")


def test_all_values_of_a_wrong_type_are_named_at_once_with_a_job_s_own() -> None:
    text = job("      nodeSelector: {zone: 1}\n      hostIPC: 'yes'").replace(
        "name: train", "{name: t, labels: {a: n}}"
    )
    with pytest.raises(Invalid) as caught:
        parse(text.replace("image: busybox", "image: busybox, env: [{name: A, value: 1}]"), max_bytes=10_000)
    assert [error.field for error in caught.value.errors] == [
        "yaml:metadata.labels.a",
        "yaml:spec.template.spec.containers[0].env[0].value",
        "yaml:spec.template.spec.nodeSelector.zone",
        "yaml:spec.template.spec.hostIPC",
    ]
    assert caught.value.errors[-1].allowed == "true or false, without quotes"


def test_an_amount_of_gpu_memory_has_the_value_that_kubectl_gives_it() -> None:
    for word, units in (("010", 8), ("0x10", 16), ("1_0", 10), ("0b11", 3)):
        text = POD.replace("nvidia.com/gpu: 1", f"aliyun.com/gpu-mem: {word}")
        assert parse(text, max_bytes=10_000).ask.containers[0].limits == {"aliyun.com/gpu-mem": units}


@pytest.mark.parametrize(
    ("parallelism", "sentence"),
    [("-1", "less than 0"), ("1000000", "more than the 1000"), ("1.5", "whole number"), ("two", "whole number")],
)
def test_a_count_that_is_refused_says_what_is_wrong_with_it(parallelism: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        parse(job(parallelism=parallelism), max_bytes=10_000)
    assert caught.value.errors[0].field == "yaml:spec.parallelism"


def test_a_name_that_is_too_long_says_how_long_it_is() -> None:
    with pytest.raises(Invalid, match="at most 63 characters, and this one has 64"):
        parse(job().replace("name: train", f"name: {'a' * 64}"), max_bytes=10_000)


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
