"""Requests for dangerous operations: every state with every move, who ends with a pool, and what moved since."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.domain import changes
from gpupools.domain.changes import Move, State
from gpupools.domain.requests import MOVES, STATES, TITLES, Kind, ending_on, endings, moved, moves_from, next_state
from gpupools.errors import Conflict
from tests.domain.builders import a_node, a_pod

LEADS = {
    Move.APPROVE: State.APPROVED,
    Move.REJECT: State.REJECTED,
    Move.WITHDRAW: State.WITHDRAWN,
    Move.EXPIRE: State.EXPIRED,
    Move.LAPSE: State.LAPSED,
}
POOL: dict[str, Any] = {"version": 3, "desired_size": 2, "auto_scaling": {}, "nodes": {"u1": "n1", "u2": "n2"}}
COMPONENT: dict[str, Any] = {"present": True, "version": "1.0", "pools": ["night"]}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("move", list(Move))
def test_only_a_pending_request_moves_and_only_by_a_decision_or_the_clock(state: State, move: Move) -> None:
    if state is State.PENDING and move in LEADS:
        assert next_state(state, move) is LEADS[move]
        return
    with pytest.raises(Conflict) as refusal:
        next_state(state, move)
    assert (refusal.value.code, refusal.value.data["state"]) == ("illegal-move", state.value)
    assert state.value in refusal.value.message


def test_a_request_waits_as_a_mode_change_does() -> None:
    waiting = {move for before, move in changes.MOVES if before is State.PENDING}
    assert {move for _, move in MOVES} == waiting == set(moves_from(State.PENDING))
    assert set(STATES) == {State.PENDING, *LEADS.values()}
    assert moves_from(State.APPROVED) == ()


def test_every_kind_has_a_title_that_names_its_target() -> None:
    assert {kind: text.format(target="train") for kind, text in TITLES.items()} == {
        Kind.FORCED_DELETE: "Delete train with its machines",
        Kind.SIZE_0: "Scale train to 0",
        Kind.SCALE_DOWN: "Scale train down",
        Kind.EVICTING_TAINT: "Taint train and end pods",
        Kind.COMPONENT_UNINSTALL: "Uninstall train",
        Kind.MPS_UPGRADE: "Upgrade train",
    }


def test_pods_of_a_node_that_goes_end_with_what_becomes_of_each() -> None:
    pods = [
        a_pod("web", on="n1", owner_kind="Deployment", owner_name="web", created_at="2026-11-30T10:00:00Z"),
        a_pod("lone", whole=2, on="n1"),
        a_pod("elsewhere", whole=1, on="n9"),
        a_pod("waits", on="", phase="Pending"),
    ]
    found = ending_on([a_node("n1"), a_node("n2")], pods)
    assert [(pod.pod, pod.node, pod.owner, pod.fate, pod.holds) for pod in found] == [
        ("lone", "n1", "", "lost", {"nvidia.com/gpu": 2}),
        ("web", "n1", "Deployment/web", "ends", {}),
    ]
    assert found[0].sentence == "It ends, and nothing starts it again: it has no owner."
    assert found[1].sentence == "It ends; Deployment web starts it again where it fits."
    assert found[1].created_at == "2026-11-30T10:00:00Z"


@pytest.mark.parametrize(
    "fields",
    [
        {"owner_kind": "DaemonSet", "owner_name": "agent"},
        {"owner_kind": "Node", "owner_name": "n1"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"terminating": True},
    ],
)
def test_what_belongs_to_a_node_or_ends_by_itself_is_nobody_who_is_hit(fields: dict[str, Any]) -> None:
    assert ending_on([a_node("n1")], [a_pod("x", on="n1", **fields)]) == []


def test_a_daemons_pod_that_holds_cards_is_hit_all_the_same() -> None:
    pods = [a_pod("monitor", whole=1, on="n1", owner_kind="DaemonSet", owner_name="monitor")]
    assert [pod.pod for pod in ending_on([a_node("n1")], pods)] == ["monitor"]


def test_clients_of_a_daemon_end_whatever_their_node() -> None:
    assert [pod.pod for pod in endings([a_pod("b", on="n2"), a_pod("a", on="n1"), a_pod("c", phase="Failed")])] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("facts", "change", "said"),
    [
        (POOL, {}, []),
        (POOL, {"version": 4}, ["The pool was edited."]),
        (
            POOL,
            {"version": 4, "desired_size": 5},
            ["The pool's wanted size was 2 and is 5 now."],
        ),
        (POOL, {"version": 4, "auto_scaling": {"enable": True}}, ["The pool's auto scaling was changed."]),
        (POOL, {"nodes": {"u1": "n1"}}, ["Node n2 left the pool."]),
        (POOL, {"nodes": {**POOL["nodes"], "u3": "n3"}}, ["Node n3 joined the pool."]),
        (
            POOL,
            {"nodes": {"u1": "n1", "u9": "n2"}},
            ["Node n2 joined the pool.", "Node n2 left the pool."],
        ),
        (COMPONENT, {}, []),
        (COMPONENT, {"version": "1.1"}, ["Its version was 1.0 and is 1.1 now."]),
        (COMPONENT, {"version": ""}, ["Its version was 1.0 and is not known now."]),
        (COMPONENT, {"present": False, "version": ""}, ["The component is not installed any more."]),
        (COMPONENT, {"pools": ["day"]}, ["day needs it now.", "night does not need it any more."]),
    ],
)
def test_what_moved_is_said_in_sentences(facts: dict[str, Any], change: dict[str, Any], said: list[str]) -> None:
    assert moved(facts, {**facts, **change}) == said


def test_a_component_that_is_there_again_moved_too() -> None:
    assert moved({**COMPONENT, "present": False}, COMPONENT) == ["The component is there again."]
