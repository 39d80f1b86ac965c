"""Names, free labels and taints of node pools."""

from __future__ import annotations

import pytest

from gpupools.domain.gpus import Taint
from gpupools.domain.instances import BY_NAME, INSTANCE_TYPES, looks_like_instance_type
from gpupools.domain.labels import check_labels, check_pool_name, check_taints

REFUSED = [
    ("aliyun.accelerator/nvidia_name", "A10", "read-only"),
    ("aliyun.com/x", "1", "refused-prefix"),
    ("cgpu", "true", "typed-elsewhere"),
    ("gpushare", "true", "typed-elsewhere"),
    ("kubernetes.io/hostname", "n1", "reserved"),
    ("topology.kubernetes.io/zone", "z", "reserved"),
    ("ack.aliyun.com", "c1", "reserved"),
    ("example.com/" + "k" * 53, "a", "too-long"),
    ("ack.node.gpu.max-pod", "many", "bad-value"),
    ("ack.node.gpu.max-pod", "1.5", "bad-value"),
    ("acs:team", "a", "refused-prefix"),
    ("http://example", "a", "refused-prefix"),
    ("https://example", "a", "refused-prefix"),
    ("team", "aliyun-x", "refused-prefix"),
    ("team", "acs:x", "refused-prefix"),
    ("ack.node.gpu.schedule", "cgpu", "typed-elsewhere"),
    ("ack.node.gpu.placement", "spread", "typed-elsewhere"),
    ("gpupools.internal/pool", "x", "reserved"),
    ("alibabacloud.com/nodepool-id", "np1", "reserved"),
    ("-bad", "a", "bad-key"),
    ("Bad_Prefix/x", "a", "bad-key"),
    ("k" * 64, "a", "bad-key"),
    ("team", "a b", "bad-value"),
    ("team", "v" * 64, "bad-value"),
]


@pytest.mark.parametrize(("key", "value", "code"), REFUSED)
def test_a_label_that_cannot_be_written_is_refused_at_its_key(key: str, value: str, code: str) -> None:
    (error,) = check_labels({key: value})
    assert (error.field, error.code) == (f"labels.{key}", code)
    assert error.found


def test_a_reserved_key_is_refused_with_the_reason_of_that_key() -> None:
    said = {key: check_labels({key: "x"})[0].message for key in ("gpupools.internal/op", "kubernetes.io/os")}
    assert "finds its own operations" in said["gpupools.internal/op"]
    assert "The node writes this label about itself" in said["kubernetes.io/os"]


def test_labels_that_only_look_reserved_are_free() -> None:
    free = {
        "ack.aliyun.com/disable-nvidia-gsp": "true",
        "node-role.kubernetes.io/gpu": "",
        "ack.node.gpu.max-pod": "4",
        "example.com/" + "k" * 52: "a",
    }
    assert check_labels(free) == []


def test_taints_obey_acks_refusals_too() -> None:
    errors = check_taints([Taint("aliyun.com/gpu"), Taint("k", "acs:x"), Taint("example.com/" + "k" * 53)])
    assert [(error.field, error.code) for error in errors] == [
        ("taints.0.key", "refused-prefix"),
        ("taints.1.value", "refused-prefix"),
        ("taints.2.key", "too-long"),
    ]


def test_good_labels_pass() -> None:
    assert check_labels({"team": "vision", "example.com/cost-center": "a.b_c-1", "empty": "", "k" * 63: "v" * 63}) == []


def test_more_labels_than_a_pool_may_have_are_refused() -> None:
    assert check_labels({f"l{n}": "x" for n in range(20)}) == []
    assert [error.code for error in check_labels({f"l{n}": "x" for n in range(21)})] == ["too-many"]


def test_a_taint_is_checked_part_by_part_and_stands_once() -> None:
    assert check_taints([Taint("nvidia.com/gpu", "present", "NoSchedule")]) == []
    errors = check_taints([Taint("-x", "a b", "Never"), Taint("k", "", "NoExecute"), Taint("k", "v", "NoExecute")])
    assert [error.field for error in errors] == ["taints.0.key", "taints.0.value", "taints.0.effect", "taints.2"]


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "a.b", "a" * 64, "ä"])
def test_a_pool_name_that_is_no_label_value_is_refused(name: str) -> None:
    assert [error.field for error in check_pool_name(name)] == ["name"]


@pytest.mark.parametrize("name", ["a", "gpu-pool-1", "a" * 63])
def test_a_good_pool_name_passes(name: str) -> None:
    assert check_pool_name(name) == []


def test_every_listed_instance_type_has_the_shape_that_free_entry_must_have() -> None:
    assert all(looks_like_instance_type(instance.name) for instance in INSTANCE_TYPES)
    assert not looks_like_instance_type("gn7i")
    assert not looks_like_instance_type("ecs.gn7i; rm")


def test_four_v100_cards_of_16_gb_make_sixty_units() -> None:
    assert BY_NAME["ecs.gn6v-c8g1.8xlarge"].memory_units == 60
