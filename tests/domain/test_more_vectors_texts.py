"""Texts in and out: manifests of the wrong shape, amounts as the API server repeats them, messages of all releases."""

from __future__ import annotations

import json
from itertools import product

import pytest

from gpupools.domain import lint, manifests
from gpupools.domain.messages import read_failed_scheduling
from gpupools.domain.quantities import canonical
from gpupools.errors import Invalid


def a_pod(**changes):
    """A pod that may be sent, with one part replaced: ``spec__volumes=3``."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    for place, value in changes.items():
        *path, last = place.split("__")
        part = pod
        for key in path:
            part = part["spec"]["containers"][0] if key == "container" else part.setdefault(key, {})
        part[last] = value
    return pod


def checked(document):
    manifest = manifests.parse(json.dumps(document), max_bytes=10_000)
    return [*manifests.check_confined(manifest, namespaces=None), *lint.lint(manifest, modes_present=None)]


WRONG = [
    ("metadata__annotations", 3, "metadata.annotations"),
    ("metadata__labels", [], "metadata.labels"),
    ("spec__volumes", {"name": "v"}, "spec.volumes"),
    ("spec__volumes", ["v"], "spec.volumes[0]"),
    ("spec__securityContext", "none", "spec.securityContext"),
    ("spec__initContainers", [None], "spec.initContainers[0]"),
    ("container__env", 3, "spec.containers[0].env"),
    ("container__env", [["NVIDIA_VISIBLE_DEVICES"]], "spec.containers[0].env[0]"),
    ("container__ports", True, "spec.containers[0].ports"),
    ("container__resources", "4", "spec.containers[0].resources"),
    ("container__resources", {"limits": [1]}, "spec.containers[0].resources.limits"),
    ("container__securityContext", {"capabilities": 0}, "spec.containers[0].securityContext.capabilities"),
]


@pytest.mark.parametrize(("place", "value", "field"), WRONG)
def test_a_part_of_another_shape_is_refused_where_it_stands(place, value, field):
    with pytest.raises(Invalid) as caught:
        checked({"apiVersion": "v1", "kind": "Pod", **a_pod(**{place: value})})
    assert [error.field for error in caught.value.errors] == [f"yaml:{field}"]
    with pytest.raises(Invalid) as caught:
        template = a_pod(**{place: value})
        checked({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}})
    assert [error.field for error in caught.value.errors] == [f"yaml:spec.template.{field}"]


@pytest.mark.parametrize("annotations", [3, ["a"]])
def test_the_jobs_own_annotations_have_a_shape_too(annotations):
    with pytest.raises(Invalid) as caught:
        checked(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j", "annotations": annotations},
                "spec": {"template": a_pod()},
            }
        )
    assert caught.value.errors[0].field == "yaml:metadata.annotations"


@pytest.mark.parametrize("place", [place for place, _, _ in WRONG if "resources" not in place])
def test_null_is_the_same_as_left_out(place):
    assert checked({"apiVersion": "v1", "kind": "Pod", **a_pod(**{place: None})}) == checked(
        {"apiVersion": "v1", "kind": "Pod", **a_pod()}
    )


@pytest.mark.parametrize(
    ("written", "repeated"),
    [
        ("1e3", "1e3"),
        ("1E4", "10e3"),
        ("12e2", "1200"),
        ("5e-1", "500e-3"),
        ("1e0", "1"),
        ("1e19", "10e18"),
        ("2E", "2E"),
        ("1Ei", "1Ei"),
        ("0.3Ei", "345876451382054092800m"),
        ("0.1Gi", "107374182400m"),
        ("1000Ki", "1000Ki"),
        ("0.5Ki", "512"),
        ("1e-10", "1e-9"),
        ("0.00000000001", "1n"),
    ],
)
def test_an_amount_is_repeated_in_the_form_it_was_written_in(written, repeated):
    assert canonical(written) == repeated


REASONS = [
    ("Insufficient cpu", "insufficient"),
    ("Insufficient aliyun.com/gpu-core.percentage", "insufficient"),
    ("Too many pods", "insufficient"),
    ("node(s) were unschedulable", "unschedulable"),
    ("node(s) had taint {nvidia.com/gpu: present}, that the pod didn't tolerate", "taint"),
    ("node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }", "taint"),
    ("node(s) had untolerated taint(s)", "taint"),
    ("node(s) didn't match Pod's node affinity/selector", "affinity"),
    ("node(s) didn't satisfy plugin(s) [NodeAffinity]", "affinity"),
    ("node(s) didn't match pod affinity/anti-affinity rules, node(s) didn't match pod anti-affinity rules", "other"),
    ("none(s) should have at least one resource in [aliyun.com/gpu-mem aliyun.com/gpu-core.percentage]", "mode"),
    ("node(s) had volume node affinity conflict", "other"),
]
NEVER = "not eligible due to preemptionPolicy=Never"
ENDINGS = [
    ("", (0, 0, "")),
    (" preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling.", (0, 9, "")),
    (" preemption: 0/9 nodes are available: 4 No preemption victims found for incoming pod, "
     "5 Preemption is not helpful for scheduling..", (4, 5, "")),
    (" no new claims to deallocate, preemption: 0/9 nodes are available: 10 Preemption is not helpful for scheduling, "
     "2 No preemption victims found for incoming pod.", (2, 10, "")),
    (f" preemption: {NEVER}.", (0, 0, NEVER)),
    (f" preemption: {NEVER}..", (0, 0, NEVER)),
    (f" no new claims to deallocate, preemption: {NEVER}.", (0, 0, NEVER)),
]  # fmt: skip


def test_reasons_of_all_releases_are_read_in_any_company():
    for (first, second), (ending, said) in product(zip(REASONS, REASONS[5:] + REASONS[:5], strict=True), ENDINGS):
        phrases = sorted(f"{count} {text}" for count, (text, _) in ((12, first), (3, second)))
        back = read_failed_scheduling(f"0/9 nodes are available: {', '.join(phrases)}.{ending}")
        assert {reason.text: (reason.count, reason.code) for reason in back.reasons} == {
            first[0]: (12, first[1]),
            second[0]: (3, second[1]),
        }
        assert (back.nodes, back.prefilter) == (9, "")
        assert (back.victims_missing, back.not_helpful, back.preemption) == said


@pytest.mark.parametrize(
    "reason",
    [
        "pod has unbound immediate PersistentVolumeClaims",
        'persistentvolumeclaim "data" not found',
        "invalid replica for resource aliyun.com/gpu-mem,because 7 / 4 = 1.8",
        "Number(1) of of GPUTopologyGroup(g) pods is not equal to label replica(2)",
    ],
)
def test_a_reason_for_all_nodes_at_once_stands_alone_whatever_follows(reason):
    for ending, said in ENDINGS:
        back = read_failed_scheduling(f"0/9 nodes are available: {reason}.{ending}")
        assert (back.reasons, back.prefilter) == ((), reason)
        assert (back.victims_missing, back.not_helpful, back.preemption) == said


@pytest.mark.parametrize("label", ["two", "1_0", "-1", "9" * 5000, "2.0"])
def test_a_count_of_cards_that_nobody_can_read_is_found_in_the_manifest(label):
    pod = a_pod(metadata__labels={"aliyun.com/gpu-count": label})
    assert "replica-label" in {finding.code for finding in checked({"apiVersion": "v1", "kind": "Pod", **pod})}


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("gpu-mem", "Write aliyun.com/gpu-mem."),
        ("gpu", "Write aliyun.com/gpu."),
        ("nvidia", "Write a name with a domain, such as nvidia.com/gpu."),
        ("requests.nvidia.com/gpu", "Write a name with a domain, such as nvidia.com/gpu."),
        ("cpu", None),
        ("hugepages-2Mi", None),
        ("example.com/x", None),
        ("kubernetes.io/x", None),
    ],
)
def test_a_resource_that_no_container_can_ask_for_is_found_in_the_manifest(name, fix):
    pod = a_pod(container__resources={"limits": {name: "1"}})
    found = checked({"apiVersion": "v1", "kind": "Pod", **pod})
    unknown = [(each.path, each.fix) for each in found if each.code == "unknown-resource"]
    assert unknown == ([(f"spec.containers[0].resources.limits[{name}]", fix)] if fix else [])


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            "spec__affinity",
            {"podAffinity": {"x": 1}, "podAntiAffinity": {"x": 1}},
            "pod affinity and pod anti-affinity",
        ),
        ("spec__topologySpreadConstraints", [{"maxSkew": 1}], "topology spread"),
        ("spec__resourceClaims", [{"name": "gpu"}], "resource claims"),
        ("spec__volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], "volumes of claims"),
        ("spec__volumes", [{"name": "v", "emptyDir": {}}], None),
        ("spec__affinity", {"nodeAffinity": {}}, None),
        ("spec__affinity", None, None),
    ],
)
def test_what_the_preview_does_not_look_at_is_said(place, value, words):
    found = checked({"apiVersion": "v1", "kind": "Pod", **a_pod(**{place: value})})
    said = [each.message for each in found if each.code == "not-judged"]
    assert said == ([f"The preview does not look at {words}: the scheduler may refuse nodes for it."] if words else [])
