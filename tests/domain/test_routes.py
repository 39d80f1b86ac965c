"""The steps of a change for every pair of modes, on both kinds of provider, each way, and back."""

from __future__ import annotations

import itertools

import pytest

from gpupools.domain import routes
from gpupools.domain.modes import CHOOSABLE, MODES, Component, Mode
from gpupools.domain.routes import Way

PAIRS = list(itertools.product(CHOOSABLE, CHOOSABLE))
IN_PLACE = ["preflight", "write_labels", "verify"]
NODES = ["a", "b", "c"]


def kinds(steps: tuple[routes.Step, ...], wave: int | None = None) -> list[str]:
    return [step.kind for step in steps if wave is None or step.wave == wave]


def waits(to_mode: Mode) -> list[str]:
    return [*(["wait_daemon"] if Component.MPS_CONTROL in MODES[to_mode].components else []), "wait_resources"]


@pytest.mark.parametrize(("from_mode", "to_mode"), PAIRS)
def test_on_kubernetes_every_pair_goes_by_label(from_mode: Mode, to_mode: Mode) -> None:
    steps = kinds(routes.plan(from_mode, to_mode, nodes=NODES, evict=False, owns_nodes=False))
    if from_mode is to_mode:
        assert steps == IN_PLACE
        return
    by_hand_before = ["readd"] if to_mode is Mode.CORE_MEM else []
    by_hand_after = ["restart"] if (from_mode, to_mode) == (Mode.CGPU, Mode.SHARE) else []
    assert steps == [
        "preflight", "cordon", "drain", *by_hand_before, "write_labels", *by_hand_after, *waits(to_mode),
        "uncordon", "verify",
    ]  # fmt: skip


@pytest.mark.parametrize(("from_mode", "to_mode"), PAIRS)
def test_on_ack_every_pair_goes_by_the_pool_or_by_machine(from_mode: Mode, to_mode: Mode) -> None:
    plan = routes.plan(from_mode, to_mode, nodes=NODES, evict=False, owns_nodes=True)
    steps = kinds(plan)
    if from_mode is to_mode:
        assert steps == IN_PLACE
    elif to_mode is Mode.CORE_MEM or (from_mode, to_mode) == (Mode.CGPU, Mode.SHARE):
        assert kinds(plan, 0) == ["preflight", "write_pool", "verify"]
        for wave in (1, 2, 3):
            assert kinds(plan, wave) == ["cordon", "drain", "remove", "attach", *waits(to_mode), "uncordon"]
    else:
        assert steps == ["preflight", "cordon", "drain", "write_labels", *waits(to_mode), "uncordon", "verify"]


@pytest.mark.parametrize(("from_mode", "to_mode"), PAIRS)
@pytest.mark.parametrize("owns_nodes", [True, False])
def test_no_plan_writes_before_it_drains_or_uncordons_before_the_nodes_report(
    from_mode: Mode, to_mode: Mode, owns_nodes: bool
) -> None:
    for way, batch in ((Way.WHOLE, 0), (Way.BATCHES, 2), (Way.MOVE, 1)):
        plan = routes.plan(from_mode, to_mode, nodes=NODES, evict=True, owns_nodes=owns_nodes, way=way, batch=batch)
        for node in NODES:
            seen = [step.kind for step in plan if not step.nodes or node in step.nodes]
            if "drain" not in seen:
                assert seen == IN_PLACE
                continue
            assert seen.index("cordon") < seen.index("drain")
            for write in {"write_labels", "remove", "readd"} & set(seen):
                assert seen.index("drain") < seen.index(write)
            assert seen.index("wait_resources") < seen.index("uncordon") < seen.index("verify")


def test_batches_on_kubernetes_go_all_the_way_one_after_the_other() -> None:
    plan = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=False, batch=2)
    assert [(step.wave, step.nodes) for step in plan if step.kind == "cordon"] == [(1, ("a", "b")), (2, ("c",))]
    assert kinds(plan, 1) == kinds(plan, 2) == ["cordon", "drain", "write_labels", "wait_resources", "uncordon"]
    assert plan[1].title == "Batch 1: cordon a, b"


def test_batches_on_ack_drain_by_batches_and_write_once() -> None:
    plan = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=True, batch=2)
    assert kinds(plan) == [
        "preflight", "cordon", "drain", "cordon", "drain", "write_labels", "wait_resources", "uncordon", "uncordon",
        "verify",
    ]  # fmt: skip


def test_a_batch_of_all_nodes_is_no_batch() -> None:
    whole = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=False)
    assert routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=False, batch=9) == whole


def test_auto_scaling_is_held_between_preflight_and_verify_where_nodes_are_cordoned() -> None:
    plan = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=True, scaled=True)
    assert (kinds(plan)[1], kinds(plan)[-2]) == ("pause_scaling", "resume_scaling")
    assert kinds(routes.plan(Mode.CGPU, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=True, scaled=True)) == IN_PLACE


@pytest.mark.parametrize(
    ("owns_nodes", "machines", "labels", "expected"),
    [
        (False, False, False, ["uncordon", "verify"]),
        (False, False, True, ["cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify"]),
        (True, False, True, ["cordon", "drain", "write_labels", "wait_resources", "uncordon", "verify"]),
        (True, True, False, ["cordon", "drain", "remove", "attach", "wait_resources", "uncordon", "verify"]),
        (True, True, True,
         ["write_pool", "cordon", "drain", "remove", "attach", "wait_resources", "uncordon", "verify"]),
    ],
)  # fmt: skip
def test_the_way_back_undoes_what_was_begun(
    owns_nodes: bool, machines: bool, labels: bool, expected: list[str]
) -> None:
    steps = routes.back(
        to_mode=Mode.EXCLUSIVE, nodes=NODES, evict=False, owns_nodes=owns_nodes, machines=machines, labels=labels
    )
    assert kinds(steps) == expected


def test_nodes_that_were_only_cordoned_are_opened_when_others_come_back_with_their_machines() -> None:
    steps = routes.back(
        to_mode=Mode.EXCLUSIVE, nodes=NODES, evict=True, owns_nodes=True, machines=True, labels=False, others=["far"]
    )
    assert kinds(steps)[-3:] == ["uncordon", "uncordon", "verify"]
    assert (steps[-2].title, steps[-2].nodes) == ("Uncordon far, which stayed where it was", ("far",))


def test_measured_times_take_the_place_of_guesses() -> None:
    plan = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=NODES, evict=False, owns_nodes=False)
    guessed = {step.kind: step.expected_seconds for step in plan}
    assert guessed["drain"] == 0, "how long pods run is theirs to say"
    found = routes.expected(plan, {"cordon": 7}.get)
    assert {step.kind: step.expected_seconds for step in found} == {**guessed, "cordon": 7}


def test_batches_end_with_the_labels_of_nodes_that_have_the_mode_already():
    steps = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=["a", "b"], evict=False, owns_nodes=False, batch=1, written=3)
    assert [step.kind for step in steps[-3:]] == ["uncordon", "write_labels", "verify"]
    assert (steps[-2].title, steps[-2].wave, steps[-2].nodes) == (
        "Write the labels to 1 node of this mode already",
        0,
        (),
    )
    at_once = routes.plan(Mode.EXCLUSIVE, Mode.CGPU, nodes=["a", "b"], evict=False, owns_nodes=False, written=3)
    assert [step.title for step in at_once if step.kind == "write_labels"] == [
        "Write the labels to 3 nodes, one after the other"
    ]
