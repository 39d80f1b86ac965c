"""What a node pool may be, field by field, before any cluster is asked."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain.gpus import GpuNode, Taint
from gpupools.domain.modes import ACK_POOL_LABEL, MODE_LABEL, POOL_LABEL, Mode, PlacementPolicy
from gpupools.errors import Invalid
from gpupools.models import Cluster, NodePool
from gpupools.services import poolrules, poolspecs
from tests.services.builders import a_cluster, a_component, a_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def ack() -> Cluster:
    return a_cluster("cloud", provider=Cluster.Provider.ACK, spec="ack.pro.small")


def checked(cluster, **wishes):
    on_ack = cluster.provider == Cluster.Provider.ACK
    where = {"instance_types": ["ecs.gn7i-c8g1.2xlarge"]} if on_ack else {"node_names": ["gpu-1"]}
    return poolrules.checked(
        cluster,
        **{
            "name": "night",
            "mode": "cgpu",
            "policy": None,
            "instance_types": (),
            "desired_size": 0,
            "labels": {},
            "taints": (),
            "node_names": (),
            "vswitch_ids": (),
            **where,
            **wishes,
        },
    )


def refused(cluster, **wishes):
    with pytest.raises(Invalid) as refusal:
        checked(cluster, **wishes)
    return [(error.field, error.code) for error in refusal.value.errors]


def test_a_shared_pool_packs_unless_told_otherwise(ack):
    assert checked(ack).policy is PlacementPolicy.BINPACK
    assert checked(ack, policy="spread").policy is PlacementPolicy.SPREAD
    assert checked(ack, mode="topology").policy is None


def test_an_unknown_mode_is_refused_with_those_that_exist(ack):
    with pytest.raises(Invalid) as refusal:
        checked(ack, mode="time-slicing")
    error = refusal.value.errors[0]
    assert (error.field, error.code, error.found) == ("mode", "unknown", "time-slicing")
    assert error.allowed == "exclusive, cgpu, core_mem, share, mps, topology"


@pytest.mark.parametrize("mode", ["mig", "disabled"])
def test_a_mode_that_is_only_shown_is_refused_as_such(ack, mode):
    assert refused(ack, mode=mode) == [("mode", "read-only")]


@pytest.mark.parametrize("mode", ["exclusive", "topology"])
def test_a_policy_where_cards_are_handed_out_whole_is_refused_with_a_sentence(ack, mode):
    with pytest.raises(Invalid) as refusal:
        checked(ack, mode=mode, policy="spread")
    assert refusal.value.errors[0].field == "policy"
    assert "no effect" in refusal.value.errors[0].message


def test_an_unknown_policy_is_refused(ack):
    assert refused(ack, policy="pile") == [("policy", "unknown")]


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode not in ("exclusive", "mig", "disabled")])
def test_shared_and_topology_modes_need_a_pro_cluster(mode):
    basic = a_cluster("basic", provider=Cluster.Provider.ACK, spec="ack.standard")
    a_component(basic, "ack-mps-control")
    assert refused(basic, mode=mode) == [("mode", "needs-pro")]
    assert checked(basic, mode="exclusive").mode is Mode.EXCLUSIVE


def test_where_the_specification_is_unknown_no_mode_is_refused_for_it(lab):
    assert checked(lab, mode="core_mem").mode is Mode.CORE_MEM


@pytest.mark.parametrize("state", ["absent", "installing", "failed", "removing", None])
def test_mps_is_refused_until_its_daemon_is_there(ack, state):
    if state:
        a_component(ack, "ack-mps-control", state)
    assert refused(ack, mode="mps") == [("mode", "needs-component")]


@pytest.mark.parametrize("state", ["installed", "degraded"])
def test_mps_is_allowed_once_its_daemon_is_there(ack, state):
    a_component(ack, "ack-mps-control", state)
    assert checked(ack, mode="mps").mode is Mode.MPS


def test_other_components_may_come_after_the_pool(ack):
    a_component(ack, "ack-ai-installer", "absent")
    assert checked(ack, mode="cgpu").mode is Mode.CGPU


def test_a_taken_name_is_refused_and_one_that_is_gone_is_free_again(ack, lab):
    a_pool(ack, "night")
    a_pool(ack, "past", state=NodePool.State.GONE)
    assert refused(ack, name="night") == [("name", "taken")]
    assert checked(ack, name="past").name == "past"
    assert checked(lab, name="night").name == "night"


@pytest.mark.parametrize("name", ["", "Night", "night_shift", "-night", "x" * 64, "nächtlich"])
def test_a_name_that_cannot_be_a_label_value_is_refused(ack, name):
    assert refused(ack, name=name) == [("name", "bad-name")]


def test_labels_that_ack_or_the_console_owns_are_refused_by_key(ack):
    labels = {"aliyun.com/x": "1", "acs:role": "1", MODE_LABEL: "cgpu", POOL_LABEL: "x", "good": "http://x"}
    assert refused(ack, labels=labels) == [
        ("labels.aliyun.com/x", "refused-prefix"),
        ("labels.acs:role", "refused-prefix"),
        (f"labels.{MODE_LABEL}", "typed-elsewhere"),
        (f"labels.{POOL_LABEL}", "reserved"),
        ("labels.good", "refused-prefix"),
    ]


def test_the_consoles_own_labels_count_towards_acks_limit(ack, lab):
    labels = {f"key-{number}": "x" for number in range(18)}
    assert refused(ack, labels=labels) == [("labels", "too-many")]
    del labels["key-17"]
    assert len(checked(ack, labels=labels).labels) == 17
    assert len(checked(lab, labels={f"key-{n}": "x" for n in range(20)}).labels) == 20


def test_taints_are_checked_by_position(ack):
    taints = [Taint("gpu", "yes"), Taint("bad key", "x", "Never")]
    assert refused(ack, taints=taints) == [("taints.1.key", "bad-key"), ("taints.1.effect", "unknown")]


def test_all_that_is_wrong_is_said_at_once(ack):
    found = refused(ack, name="X", mode="none", policy="pile", desired_size=-1, instance_types=["a10"])
    assert {field for field, _ in found} == {"name", "mode", "policy", "desired_size", "instance_types"}


def test_ack_makes_machines_so_it_needs_their_type_and_no_node_names(ack):
    assert refused(ack, instance_types=[]) == [("instance_types", "required")]
    assert refused(ack, instance_types=["ecs.gn7i-c8g1.2xlarge"] * 2) == [("instance_types", "twice")]
    assert refused(ack, instance_types=[f"ecs.gn7i-c8g1.{n}xlarge" for n in range(11)]) == [
        ("instance_types", "too-many")
    ]
    assert refused(ack, node_names=["gpu-1"]) == [("node_names", "unexpected")]
    assert refused(ack, desired_size=5001) == [("desired_size", "invalid")]


def test_plain_kubernetes_has_its_nodes_so_it_needs_their_names_and_no_machines(lab):
    assert refused(lab, node_names=[]) == [("node_names", "required")]
    assert refused(lab, node_names=["a", "b", "a"]) == [("node_names", "twice")]
    assert refused(lab, instance_types=["ecs.gn7i-c8g1.2xlarge"], vswitch_ids=["vsw-1"], desired_size=3) == [
        ("instance_types", "unexpected"),
        ("vswitch_ids", "unexpected"),
        ("desired_size", "unexpected"),
    ]
    assert checked(lab, node_names=["a", "b"]).desired_size == 2


def test_nodes_that_are_unknown_owned_or_acks_are_refused_one_by_one(lab):
    a_pool(lab, "elsewhere", node_names=["d"])
    a_pool(lab, "past", node_names=["e"], state=NodePool.State.GONE)
    nodes = [
        GpuNode("a"),
        GpuNode("b", labels={POOL_LABEL: "day"}),
        GpuNode("c", labels={ACK_POOL_LABEL: "np1"}),
        GpuNode("d"),
        GpuNode("e"),
    ]
    spec = checked(lab, node_names=["a", "b", "c", "d", "e", "f"])
    with pytest.raises(Invalid) as refusal:
        poolrules.check_nodes(lab, spec, nodes)
    assert [(error.found, error.code) for error in refusal.value.errors] == [
        ("b", "owned"),
        ("c", "ack-node"),
        ("d", "owned"),
        ("f", "unknown"),
    ]
    assert "node pool day" in refusal.value.errors[0].message
    assert "provider ack" in refusal.value.errors[1].message


@pytest.mark.parametrize(
    ("labels", "mode", "policy", "differs"),
    [
        ({}, Mode.EXCLUSIVE, None, False),
        ({MODE_LABEL: "default"}, Mode.EXCLUSIVE, None, False),
        ({}, Mode.CGPU, None, True),
        ({MODE_LABEL: "cgpu"}, Mode.CGPU, PlacementPolicy.BINPACK, False),
        ({MODE_LABEL: "cgpu"}, Mode.CGPU, PlacementPolicy.SPREAD, True),
        ({MODE_LABEL: "cgpu"}, Mode.SHARE, None, True),
        ({MODE_LABEL: "never-heard-of"}, Mode.EXCLUSIVE, None, True),
        ({MODE_LABEL: "cgpu"}, None, None, False),
    ],
)
def test_a_node_is_unlike_when_the_labels_would_change_its_mode_or_choice_of_cards(labels, mode, policy, differs):
    node = GpuNode("a", labels=labels)
    assert poolspecs.unlike([node], mode, policy) == ([node] if differs else [])


def test_a_spec_survives_the_queue(ack):
    spec = checked(ack, policy="spread", labels={"team": "red"}, taints=[Taint("gpu", "yes", "NoExecute")])
    assert poolspecs.from_json(poolspecs.to_json(spec)) == spec


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({}, ("", "")),
        ({MODE_LABEL: "default"}, ("exclusive", "")),
        ({MODE_LABEL: "share"}, ("share", "binpack")),
        ({MODE_LABEL: "share", "ack.node.gpu.placement": "spread"}, ("share", "spread")),
        ({MODE_LABEL: "topology", "ack.node.gpu.placement": "spread"}, ("topology", "")),
        ({MODE_LABEL: "mig"}, ("mig", "")),
        ({MODE_LABEL: "never-heard-of"}, ("", "")),
    ],
)
def test_mode_and_policy_are_read_from_a_pools_labels(labels, found):
    assert poolspecs.mode_and_policy(labels) == found


@pytest.mark.parametrize(
    ("kept", "wanted", "size", "field", "code"),
    [
        ({}, {"enable": True, "min_instances": 5, "max_instances": 2}, 3, "auto_scaling.min_instances", "bad-bounds"),
        ({}, {"enable": True, "min_instances": 0, "max_instances": 0}, 0, "auto_scaling.min_instances", "bad-bounds"),
        ({}, {"enable": True, "min_instances": 2, "max_instances": 4}, 9, "desired_size", "out-of-bounds"),
        ({}, {"enable": True, "max_instances": 4, "type": "tpu"}, 1, "auto_scaling.type", "unknown"),
        ({"type": "gpu"}, {"enable": True, "max_instances": 4, "type": "spot"}, 1, "auto_scaling.type", "fixed"),
    ],
)
def test_bounds_of_auto_scaling_that_make_no_sense_are_refused(
    lab: Cluster, kept: dict[str, Any], wanted: dict[str, Any], size: int, field: str, code: str
) -> None:
    pool = a_pool(lab, "scaled", auto_scaling=kept)
    with pytest.raises(Invalid) as refused:
        poolrules.checked_scaling(pool, wanted, size)
    assert [(each.field, each.code) for each in refused.value.errors] == [(field, code)]


def test_auto_scaling_that_is_switched_off_has_no_bounds(lab: Cluster) -> None:
    pool = a_pool(lab, "scaled", auto_scaling={"enable": True, "min_instances": 1, "max_instances": 3, "type": ""})
    assert not poolrules.checked_scaling(pool, {"enable": False, "min_instances": 7}, 1).enable
