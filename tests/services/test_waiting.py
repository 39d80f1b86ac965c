"""Why a pod waits: the scheduler's words in reasons, and beside them what the numbers say now."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.gpus import Taint
from gpupools.domain.messages import GATED
from gpupools.domain.placement import node_states, preview
from gpupools.errors import Missing, NotAllowed
from gpupools.models import Cluster, Role
from gpupools.services import waiting
from gpupools.services.access import Actor
from tests.domain.builders import a_node, a_pod, an_ask, filled
from tests.services.builders import a_pool, an_actor
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
TAINTED = a_node("t", taints=(Taint("gpu", "yes"),))


@pytest.fixture
def viewer(lab: Cluster) -> Actor:
    return an_actor(Role.VIEWER, lab)


def pending(name="w", message="", **fields):
    return a_pod(name, on="", phase="Pending", reason="Unschedulable", message=message, **fields)


def looked(viewer: Actor, lab: Cluster, nodes, pods, name="w") -> waiting.Waiting:
    show(lab, nodes, pods)
    found = waiting.look(viewer, lab, "default", name)
    assert found is not None
    return found


def test_the_scheduler_and_the_estimate_agree(viewer: Actor, lab: Cluster) -> None:
    nodes = [a_node(cards=1), TAINTED]
    message = preview(an_ask(mem=8), node_states(nodes, filled(10))).message
    found = looked(viewer, lab, nodes, [pending(mem=8, message=message), *filled(10)])
    assert found.said is not None
    assert [(each.count, each.code) for each in found.said.reasons] == [(1, "insufficient"), (1, "taint")]
    assert found.said.reasons[1].meaning == "It does not tolerate gpu=yes:NoSchedule."
    assert (found.agrees, found.preview.message) == (True, message)
    assert {option.code for option in found.help.options} == {"smaller", "toleration"}


@pytest.mark.parametrize(
    "message",
    [
        "0/2 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 1 node(s) had taint {gpu: yes}, that the pod "
        "didn't tolerate.",
        "0/2 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 1 node(s) had untolerated taint {gpu: yes}. "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not "
        "helpful for scheduling.",
    ],
)
def test_older_words_for_the_same_reasons_agree_too(viewer: Actor, lab: Cluster, message: str) -> None:
    found = looked(viewer, lab, [a_node(cards=1), TAINTED], [pending(mem=8, message=message), *filled(10)])
    assert found.agrees is True


@pytest.mark.parametrize(
    "message",
    [
        "0/2 nodes are available: 2 Insufficient aliyun.com/gpu-mem.",
        "0/3 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 2 node(s) had untolerated taint(s).",
        "0/2 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 1 node(s) had volume node affinity conflict.",
    ],
)
def test_other_reasons_do_not_agree(viewer: Actor, lab: Cluster, message: str) -> None:
    found = looked(viewer, lab, [a_node(cards=1), TAINTED], [pending(mem=8, message=message), *filled(10)])
    assert found.agrees is False


def test_taints_that_an_older_release_tells_apart_are_counted_together(viewer: Actor, lab: Cluster) -> None:
    message = (
        "0/2 nodes are available: 1 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 1 node(s) had taint "
        "{own: }, that the pod didn't tolerate."
    )
    nodes = [TAINTED, a_node("u", taints=(Taint("own"),))]
    found = looked(viewer, lab, nodes, [pending(mem=8, message=message)])
    assert found.said is not None
    assert [each.meaning for each in found.said.reasons] == [
        "It does not tolerate gpu: yes.",
        "It does not tolerate own.",
    ]
    assert found.agrees is True


def test_room_that_came_free_is_said(viewer: Actor, lab: Cluster) -> None:
    message = "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem."
    found = looked(viewer, lab, [a_node()], [pending(mem=8, message=message)])
    assert (found.preview.chosen, found.agrees, found.help) == ("n1", False, waiting.NO_HELP)


def test_words_that_nobody_knows_stand_as_they_are(viewer: Actor, lab: Cluster) -> None:
    found = looked(viewer, lab, [a_node()], [pending(mem=8, message="binding rejected: timed out")])
    assert found.said == waiting.Said("binding rejected: timed out", unread=True)
    assert found.agrees is None
    silent = looked(viewer, lab, [a_node()], [pending(mem=8)])
    assert (silent.said, silent.agrees) == (None, None)


def test_a_reason_for_all_nodes_is_kept_apart(viewer: Actor, lab: Cluster) -> None:
    pod = pending(mem=5, label_count=2)
    message = preview(pod.ask, node_states([a_node()], [])).message
    found = looked(viewer, lab, [a_node()], [pending(mem=5, label_count=2, message=message)])
    assert found.said is not None
    assert found.said.prefilter == "invalid replica for resource aliyun.com/gpu-mem,because 5 / 2 = 2.5"
    assert found.said.meaning.startswith("It stands for every node")
    assert (found.said.reasons, found.agrees) == ((), True)


def test_a_new_node_is_reckoned_with_its_daemons(viewer: Actor, lab: Cluster) -> None:
    node = a_node(labels={"alibabacloud.com/nodepool-id": "np"}, resources={"cpu": 4000})
    daemon = a_pod("d", cpu=1000, owner_kind="DaemonSet", owner_name="plugin")
    full = filled(15, 15, 15, 15)
    fits = looked(viewer, lab, [node], [pending(mem=4, cpu=3000), daemon, *full])
    assert "with 1 DaemonSet pod (plugin)." in next(each.sentence for each in fits.help.options if each.code == "node")
    tight = looked(viewer, lab, [node], [pending(mem=4, cpu=3001), daemon, *full])
    assert "node" not in {each.code for each in tight.help.options}


def test_the_pods_of_a_topology_group_count_without_itself(viewer: Actor, lab: Cluster) -> None:
    labels = {"gputopology.alibabacloud.com/pod-group": "g", "gputopology.alibabacloud.com/replica": "2"}

    def member(name: str):
        pod = pending(name, topology=1)
        return type(pod)(pod.uid, pod.namespace, name, an_ask(topology=1, name=name, labels=labels), phase="Pending")

    nodes = [a_node("n1", "topology")]
    assert looked(viewer, lab, nodes, [member("w"), member("v")]).preview.chosen == "n1"
    alone = looked(viewer, lab, nodes, [member("w")])
    assert alone.preview.prefilter.startswith("Number(1) of of GPUTopologyGroup(g)")


@pytest.mark.parametrize(
    "fields", [{"on": "n1"}, {"on": "", "phase": "Succeeded"}, {"on": "", "phase": "Pending", "terminating": True}]
)
def test_a_pod_that_does_not_wait_has_no_reasons(viewer: Actor, lab: Cluster, fields) -> None:
    show(lab, [a_node()], [a_pod("w", mem=4, **fields)])
    assert waiting.look(viewer, lab, "default", "w") is None


def test_a_pod_that_is_not_there_is_missing_and_other_namespaces_are_closed(viewer: Actor, lab: Cluster) -> None:
    with pytest.raises(Missing):
        waiting.look(viewer, lab, "default", "w")
    show(lab, [a_node()], [])
    with pytest.raises(Missing):
        waiting.look(viewer, lab, "default", "w")
    with pytest.raises(NotAllowed):
        waiting.look(an_actor(Role.VIEWER, lab, "vision"), lab, "default", "w")


def test_daemons_of_namespaces_out_of_reach_are_not_named(lab: Cluster) -> None:
    node = a_node(labels={"alibabacloud.com/nodepool-id": "np"})
    secret = a_pod("d", namespace="payroll", owner_kind="DaemonSet", owner_name="secret")
    narrow = an_actor(Role.VIEWER, lab, "default", name="narrow")
    found = looked(narrow, lab, [node], [pending(mem=4), secret, *filled(15, 15, 15, 15)])
    (option,) = [each for each in found.help.options if each.code == "node"]
    assert option.sentence == "One more node of pool np would take it, if made as n1 is with 1 DaemonSet pod."


def test_a_gated_pod_is_helped_by_nothing_but_its_gates(viewer: Actor, lab: Cluster) -> None:
    pod = pending(mem=8, message=GATED)
    gated = msgspec.structs.replace(pod, ask=msgspec.structs.replace(pod.ask, gated=True))
    found = looked(viewer, lab, [a_node()], [gated])
    assert (found.preview.prefilter, found.agrees, found.help.tried) == (GATED, True, False)
    assert found.meaning.startswith("It has scheduling gates")


def test_a_pod_of_another_scheduler_is_said_to_be_of_that_one(viewer: Actor, lab: Cluster) -> None:
    pod = pending(mem=8)
    foreign = msgspec.structs.replace(pod, ask=msgspec.structs.replace(pod.ask, scheduler="volcano"))
    found = looked(viewer, lab, [a_node()], [foreign])
    assert (found.preview.chosen, found.scheduler, found.agrees) == ("n1", "volcano", None)
    assert looked(viewer, lab, [a_node()], [pod]).scheduler == ""


def test_pools_are_called_by_their_names(viewer: Actor, lab: Cluster) -> None:
    a_pool(lab, "pcore", pool_id="np26ef")
    node = a_node(cards=1, labels={"gpupools.internal/pool": "np26ef"})
    found = looked(viewer, lab, [node], [pending(mem=15), *filled(15)])
    (option,) = found.help.options
    assert (option.code, option.pool) == ("node", "pcore")
    assert option.sentence.startswith("One more node of pool pcore would take it")
