"""ACK tasks that fail for one machine of three: the change says so, and is retried, rolled back or given up."""

from __future__ import annotations

import pytest

from gpupools.domain.changes import State
from gpupools.models import ModeChange, NodePool
from gpupools.services import changes, gateways, holdings
from gpupools.services.access import Actor
from tests.services.breakage import Maker, asked_for, fails, machines_of, names_of
from tests.services.driving import drive, reaches, settle
from tests.services.test_carrying_on_ack import MODE, labels_of, nodes_of
from tests.services.test_moving_on_ack import machine_tasks
from tests.simulator.breaking import Breaker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
WHY = "the machine does not answer"


def moving(operator: Actor, admin: Actor, source: NodePool, target: NodePool) -> ModeChange:
    return asked_for(operator, admin, source, way="move", target_pool=target, batch_size=3)


def is_open(pool: NodePool) -> bool:
    return not any(node.unschedulable for node in nodes_of(pool))


# A machine that cannot be taken out


def stuck_removal(operator: Actor, admin: Actor, make: Maker, breaker: Breaker) -> tuple[ModeChange, NodePool, str]:
    source, target = make("source"), make("target", "cgpu", 0)
    stuck = names_of(source)[1]
    breaker.begin("task-fail", task_type="nodepool_remove_nodes", node=stuck, message=WHY)
    change = moving(operator, admin, source, target)
    fails(change, "remove")
    return change, source, stuck


def test_a_removal_that_fails_for_one_machine_says_who_is_out_and_who_is_not(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, source, stuck = stuck_removal(operator, admin, make, breaker)
    step = change.steps.get(kind="remove")
    assert WHY in change.note
    assert step.learned["task_id"] in change.note
    assert f"not on {stuck}." in change.note
    assert step.learned["left"] == [stuck]
    assert len(step.learned["done"]) == 2
    assert list(machines_of(source).values()) == [stuck]
    assert [name for name, _ in holdings.held_by(change).outside] == step.learned["done"]


def test_a_removal_that_failed_for_one_machine_is_retried_for_that_one_alone(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, source, _ = stuck_removal(operator, admin, make, breaker)
    before = len(machine_tasks(source.cluster))
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    target = change.target_pool
    assert target is not None
    assert (len(machines_of(source)), len(machines_of(target))) == (0, 3)
    assert [node.labels[MODE] for node in nodes_of(target)] == ["cgpu"] * 3
    assert is_open(target)
    assert len(machine_tasks(source.cluster)) == before + 2, "one more removal and one attachment"
    assert not holdings.held_by(change)


def test_a_removal_that_failed_for_one_machine_is_rolled_back_and_leaves_that_one_alone(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    source, target = make("source"), make("target", "cgpu", 0)
    machines, uids = set(machines_of(source)), {node.name: node.uid for node in nodes_of(source)}
    stuck = sorted(uids)[1]
    breaker.begin("task-fail", task_type="nodepool_remove_nodes", node=stuck, message=WHY)
    change = moving(operator, admin, source, target)
    fails(change, "remove")
    changes.roll_back(operator, change, reason="back to work")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert (set(machines_of(source)), machines_of(target)) == (machines, {})
    after = {node.name: node.uid for node in nodes_of(source)}
    assert after[stuck] == uids[stuck], "it never left, so it is not set up anew"
    assert sum(after[name] != uids[name] for name in after) == 2
    assert [node.labels[MODE] for node in nodes_of(source)] == ["default"] * 3
    assert is_open(source)


# A machine that cannot be set up


def stuck_attachment(operator: Actor, admin: Actor, make: Maker, breaker: Breaker) -> tuple[ModeChange, NodePool, str]:
    source, target = make("source"), make("target", "cgpu", 0)
    stuck = names_of(source)[2]
    breaker.begin("task-fail", task_type="nodepool_attach", node=stuck, message=WHY)
    change = moving(operator, admin, source, target)
    fails(change, "attach")
    return change, source, stuck


def test_an_attachment_that_fails_for_one_machine_names_it_as_outside(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, source, stuck = stuck_attachment(operator, admin, make, breaker)
    assert WHY in change.note
    assert f"not on {stuck}." in change.note
    machine = change.remembered["machines"][stuck]
    assert holdings.held_by(change).outside == ((stuck, machine),)
    assert f"In no node pool: {stuck} ({machine})." in holdings.held_by(change).sentences()
    assert len(machines_of(source)) == 0


def test_an_attachment_that_failed_for_one_machine_is_retried_for_that_one_alone(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, source, stuck = stuck_attachment(operator, admin, make, breaker)
    target = change.target_pool
    assert target is not None
    joined = {node.name: node.uid for node in nodes_of(target)}
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    after = {node.name: node.uid for node in nodes_of(target)}
    assert len(after) == 3
    assert {name: after[name] for name in joined} == joined, "those that had joined are not set up again"
    assert is_open(target)


def test_an_attachment_that_failed_for_one_machine_is_rolled_back(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, source, stuck = stuck_attachment(operator, admin, make, breaker)
    changes.roll_back(operator, change, reason="back to work")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert len(machines_of(source)) == 3
    assert [node.labels[MODE] for node in nodes_of(source)] == ["default"] * 3
    assert is_open(source)
    assert not holdings.held_by(change)


def test_giving_up_names_the_machine_that_stays_outside_and_opens_the_others(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, _, stuck = stuck_attachment(operator, admin, make, breaker)
    changes.abandon(operator, change, reason="it is broken")
    settle()
    change.refresh_from_db()
    held = holdings.held_by(change)
    assert (held.cordoned, held.scaling, [name for name, _ in held.outside]) == ((), None, [stuck])
    assert change.target_pool is not None
    assert is_open(change.target_pool)


# Labels that do not reach a node


def half_labelled(operator: Actor, admin: Actor, make: Maker, breaker: Breaker) -> tuple[ModeChange, NodePool, str]:
    pool = make("whole")
    stuck = names_of(pool)[0]
    breaker.begin("task-fail", task_type="nodepool_update", node=stuck, message=WHY)
    change = asked_for(operator, admin, pool, target_mode="cgpu")
    fails(change, "write_labels")
    return change, pool, stuck


def test_labels_that_do_not_reach_a_node_fail_the_change_with_the_task_and_the_node(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, pool, stuck = half_labelled(operator, admin, make, breaker)
    step = change.steps.get(kind="write_labels")
    assert WHY in change.note
    assert step.learned["task_id"] in change.note
    assert (step.learned["left"], len(step.learned["done"])) == ([stuck], 2)
    assert all(node.unschedulable for node in nodes_of(pool)), "nobody gets on before it is put right"
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert [node.labels[MODE] for node in nodes_of(pool)] == ["cgpu"] * 3
    assert is_open(pool)


def test_labels_that_did_not_reach_a_node_are_taken_back_from_the_others(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    change, pool, _ = half_labelled(operator, admin, make, breaker)
    changes.roll_back(operator, change, reason="back to work")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    assert labels_of(pool)[MODE] == "default"
    assert [node.labels[MODE] for node in nodes_of(pool)] == ["default"] * 3
    assert is_open(pool)


# Tasks that ended otherwise


def test_a_cancelled_task_fails_the_step_and_a_retry_goes_on_from_what_it_did(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    source, target = make("source", size=1), make("target", "cgpu", 0)
    # A machine whose node never gets ready keeps ACK's task running for as long as the test likes.
    breaker.begin("node-down", node=names_of(source)[0])
    change = moving(operator, admin, source, target)
    drive(lambda: "task_id" in change.steps.get(kind="attach").learned, what="a task that ACK has begun")
    task_id = change.steps.get(kind="attach").learned["task_id"]
    with gateways.pools_of(source.cluster) as (_, provider):
        provider._client.cancel_task(task_id)
    fails(change, "attach")
    assert f"The task was cancelled (task {task_id})." in change.note
    breaker.http.call("DELETE", "/faults")
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert (len(machines_of(source)), len(machines_of(target))) == (0, 1)


def test_a_task_that_ack_has_forgotten_is_judged_by_what_it_did(operator: Actor, admin: Actor, make: Maker) -> None:
    pool = make("forgotten")
    change = asked_for(operator, admin, pool, target_mode="cgpu")
    step = change.steps.get(kind="write_labels")
    drive(lambda: change.steps.filter(kind="drain", state="done").exists(), what="a change about to write")
    # As if ACK had dropped the record of a task that never came to anything.
    change.steps.filter(pk=step.pk).update(learned={"task_id": "T-none"})
    fails(change, "write_labels")
    assert "ACK knows nothing of the task T-none any more" in change.note
    assert "Done on no node; not on" in change.note
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")


# Machines that join the pool again that they left


def test_a_pool_set_up_anew_one_by_one_that_gets_stuck_is_rolled_back_without_touching_the_rest(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker
) -> None:
    pool = make("anew")
    uids = {node.name: node.uid for node in nodes_of(pool)}
    first, stuck, last = sorted(uids)
    breaker.begin("task-fail", task_type="nodepool_remove_nodes", node=stuck, message=WHY)
    change = asked_for(operator, admin, pool, target_mode="core_mem")
    fails(change, "remove")
    assert (change.steps.get(state="failed").wave, change.steps.get(state="failed").learned["left"]) == (2, [stuck])
    assert holdings.held_by(change).cordoned == (stuck,), "the first has been put back, the last never was closed"
    changes.roll_back(operator, change, reason="back to work")
    drive(reaches(change, State.ROLLED_BACK), what="a change rolled back")
    after = {node.name: node.uid for node in nodes_of(pool)}
    assert {name for name in uids if after[name] != uids[name]} == {first}
    assert [node.labels[MODE] for node in nodes_of(pool)] == ["default"] * 3
    assert labels_of(pool)[MODE] == "default"
    assert is_open(pool)


# Forward again after a way back that got stuck


@pytest.mark.parametrize("way", ["move", "anew"])
def test_a_way_back_that_gets_stuck_is_turned_forward_again_and_takes_along_what_had_come_back(
    operator: Actor, admin: Actor, make: Maker, breaker: Breaker, way: str
) -> None:
    source = make("there-and-back")
    first, second, third = names_of(source)
    machines = set(machines_of(source))
    breaker.begin("task-fail", task_type="nodepool_attach", node=third, message=WHY)
    if way == "move":
        home = make("home", "cgpu", 0)
        change = moving(operator, admin, source, home)
    else:
        home = source
        change = asked_for(operator, admin, source, target_mode="core_mem", way="batches", batch_size=3)
    fails(change, "attach")
    breaker.begin("task-fail", task_type="nodepool_attach", node=second, message=WHY)
    changes.roll_back(operator, change, reason="back to work")
    drive(reaches(change, State.FAILED), what="a way back that failed")
    assert change.steps.get(state="failed", is_rollback=True).learned["left"] == [second]
    assert set(names_of(source)) == {first, third}, "these two had come back"
    changes.retry(operator, change)
    drive(reaches(change, State.APPLIED), what="an applied change")
    assert set(machines_of(home)) == machines
    assert [node.labels[MODE] for node in nodes_of(home)] == [change.target_mode] * 3
    assert is_open(home)
    assert not holdings.held_by(change)
