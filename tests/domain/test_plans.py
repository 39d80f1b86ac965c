"""Mode changes: who is hit, in which order, and what makes an approval lapse."""

from __future__ import annotations

import itertools

import pytest

from gpupools.domain import plans, routes
from gpupools.domain.changes import MOVES, OPEN, Move, State, check_decider, moves_from, next_state
from gpupools.domain.gpus import Ask, ContainerAsk, GpuNode, Pod, Taint
from gpupools.domain.modes import (
    CHOOSABLE,
    GPU_MEM,
    MODE_LABEL,
    MODES,
    Mode,
    PlacementPolicy,
    mode_labels,
    mode_of_label,
)
from gpupools.errors import Conflict, NotAllowed


def a_pod(uid: str, *, node: str = "gpu-1", phase: str = "Running", owner: str = "Job", gpu: int = 4) -> Pod:
    ask = Ask(containers=(ContainerAsk(limits={GPU_MEM: gpu} if gpu else {}),))
    return Pod(uid, "default", uid, ask, node=node, phase=phase, owner_kind=owner, owner_name=owner and "train")


def kinds(steps: tuple[routes.Step, ...]) -> list[str]:
    return [step.kind for step in steps]


@pytest.mark.parametrize(("state", "move"), itertools.product(State, Move))
def test_only_the_moves_of_the_table_are_possible(state: State, move: Move) -> None:
    if (state, move) in MOVES:
        assert next_state(state, move) is MOVES[state, move]
        assert move in moves_from(state)
    else:
        with pytest.raises(Conflict):
            next_state(state, move)


def test_final_states_hold_no_pool() -> None:
    assert set(State) - OPEN == {
        State.REJECTED,
        State.WITHDRAWN,
        State.EXPIRED,
        State.LAPSED,
        State.APPLIED,
        State.ROLLED_BACK,
        State.ABANDONED,
    }


def test_nobody_decides_on_their_own_request() -> None:
    check_decider(requester=1, decider=2)
    with pytest.raises(NotAllowed):
        check_decider(requester=1, decider=1)


@pytest.mark.parametrize("mode", CHOOSABLE)
def test_a_mode_is_read_back_from_the_label_that_declares_it(mode: Mode) -> None:
    labels = mode_labels(mode, PlacementPolicy.SPREAD)
    assert mode_of_label(labels[MODE_LABEL]) is mode
    assert len(labels) == (2 if MODES[mode].shared else 1)


def test_exclusive_is_written_as_default_and_read_from_an_absent_label() -> None:
    assert mode_labels(Mode.EXCLUSIVE, None) == {MODE_LABEL: "default"}
    assert mode_of_label(None) is Mode.EXCLUSIVE
    assert mode_of_label("nonsense") is None


def test_a_switch_drains_before_it_writes_and_waits_before_it_uncordons() -> None:
    steps = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=["a", "b"], evict=False, owns_nodes=True)
    assert kinds(steps) == [
        "preflight", "cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify",
    ]  # fmt: skip


def test_a_switch_to_mps_waits_for_the_daemon_after_the_label() -> None:
    steps = kinds(routes.plan(Mode.CGPU, Mode.MPS, nodes=["a"], evict=True, owns_nodes=False))
    assert steps.index("write_labels") < steps.index("wait_daemon") < steps.index("wait_resources")


@pytest.mark.parametrize(("nodes", "to_mode"), [(["a"], Mode.CGPU), ([], Mode.SHARE)])
def test_a_policy_change_and_an_empty_pool_need_no_drain(nodes: list[str], to_mode: Mode) -> None:
    steps = routes.plan(Mode.CGPU, to_mode, nodes=nodes, evict=False, owns_nodes=True)
    assert kinds(steps) == ["preflight", "write_labels", "verify"]


def test_only_bound_unfinished_pods_with_a_card_are_hit() -> None:
    node = GpuNode("gpu-1")
    pods = [
        a_pod("runs"),
        a_pod("done", phase="Succeeded"),
        a_pod("elsewhere", node="gpu-2"),
        a_pod("unbound", node=""),
        a_pod("cpu", gpu=0),
    ]
    hit = plans.blast_radius([node], pods, from_mode=Mode.CGPU, evict=False)
    assert [(pod.pod, pod.fate, pod.holds) for pod in hit] == [("runs", "waits", {GPU_MEM: 4})]


def test_eviction_says_what_becomes_of_each_pod() -> None:
    pods = [a_pod("a-owned"), a_pod("b-bare", owner="")]
    hit = plans.blast_radius([GpuNode("gpu-1")], pods, from_mode=Mode.CGPU, evict=True)
    assert [pod.fate for pod in hit] == ["evicted", "lost"]
    codes = [code for code, _ in plans.warnings(Mode.CGPU, Mode.SHARE, affected=hit, evict=True)]
    assert codes == ["restart-needed", "nothing-enforced", "lost-pods"]


def test_a_fingerprint_moves_with_nodes_modes_labels_taints_and_components_and_says_which() -> None:
    node = GpuNode("gpu-1", uid="u1", labels={MODE_LABEL: "default"})
    base = {"labels": {"a": "1"}, "taints": [Taint("k")], "nodes": [node], "components": {"x": True}}
    old = plans.facts(**base)
    same = plans.facts(**base)
    assert plans.fingerprint(old) == plans.fingerprint(same)
    assert plans.moved(old, same) == []
    relabelled = GpuNode("gpu-1", uid="u1", labels={MODE_LABEL: "cgpu"})
    for change, word in [
        ({"labels": {"a": "2"}}, "labels changed: a"),
        ({"taints": []}, "taints"),
        ({"nodes": []}, "gpu-1 left"),
        ({"nodes": [node, GpuNode("gpu-2", uid="u2")]}, "gpu-2 joined"),
        ({"nodes": [relabelled]}, "'default' is now 'cgpu'"),
        ({"components": {"x": False}}, "x is no longer installed"),
    ]:
        new = plans.facts(**{**base, **change})
        assert plans.fingerprint(new) != plans.fingerprint(old)
        (said,) = plans.moved(old, new)
        assert word in said


def test_a_node_is_awaited_until_it_reports_the_new_mode_and_nothing_of_the_old() -> None:
    half = GpuNode("n", allocatable={"nvidia.com/gpu": 4, GPU_MEM: 0})
    assert plans.waiting_for(half, Mode.CGPU) == [f"{GPU_MEM} is not reported yet", "nvidia.com/gpu still reports 4"]
    assert plans.waiting_for(GpuNode("n", allocatable={"nvidia.com/gpu": 0, GPU_MEM: 60}), Mode.CGPU) == []
