"""What a check says beyond the verdicts: the pods in turn, the first that does not fit, and what would help it."""

from __future__ import annotations

import pytest

from gpupools.models import Cluster, Role
from gpupools.services import jobpreviews, jobs
from tests.domain.builders import a_node, a_pod
from tests.domain.test_topology import DGX
from tests.services.builders import an_actor
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  parallelism: %(pods)s
  completions: %(pods)s
  template:
    metadata: {labels: {%(labels)s}}
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example.com/x:1
          resources: {limits: {%(limits)s}}
"""


def checked(cluster: Cluster, limits: str, *, pods: int = 1, labels: str = "") -> jobpreviews.Checked:
    yaml = JOB % {"pods": pods, "limits": limits, "labels": labels}
    return jobs.check(an_actor(Role.OPERATOR, cluster), cluster, yaml)


def test_the_first_of_a_jobs_pods_that_does_not_fit(lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=2)])
    found = checked(lab, "aliyun.com/gpu-mem: 10", pods=3)
    assert [each.chosen for each in found.previews] == ["n1", "n1", None]
    assert found.first_unfit == 2
    assert found.help.largest is not None
    assert found.help.largest.amount == 5
    assert [option.code for option in found.help.options] == ["smaller"]


def test_nothing_needs_help_when_all_pods_fit(lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=2)])
    found = checked(lab, "aliyun.com/gpu-mem: 10", pods=2)
    assert (found.first_unfit, found.help) == (None, jobpreviews.NO_HELP)


def test_a_topology_group_is_placed_with_the_pods_that_wait_already(lab: Cluster) -> None:
    node = a_node("dgx", "topology", 8, links=tuple(tuple(row) for row in DGX))
    show(lab, [node])
    labels = 'gputopology.alibabacloud.com/pod-group: g, gputopology.alibabacloud.com/replica: "2"'
    found = checked(lab, "aliyun.com/gpu: 2", pods=2, labels=labels)
    assert [each.chosen for each in found.previews] == ["dgx", "dgx"]
    held = [card for each in found.previews for card in each.cards]
    assert len(set(held)) == 4
    assert [each.label for each in found.alternatives] == ["ack", "best-effort", "largest-sum"]
    alone = checked(lab, "aliyun.com/gpu: 2", labels=labels)
    assert alone.preview is not None
    assert alone.preview.prefilter.startswith("Number(1) of of GPUTopologyGroup(g) pods")


def test_one_more_node_of_a_pool_helps_a_full_cluster(lab: Cluster) -> None:
    pool = {"gpupools.internal/pool": "np"}
    show(lab, [a_node("n1", cards=1, labels=pool)], [a_pod("full", mem=15, at={0: 15}, on="n1")])
    found = checked(lab, "aliyun.com/gpu-mem: 4")
    assert [(option.code, option.pool) for option in found.help.options] == [("node", "np")]


def test_every_pod_that_a_manifest_may_have_is_placed(lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=8)])
    found = checked(lab, "aliyun.com/gpu-mem: 5", pods=1000)
    assert (found.manifest.parallelism, len(found.previews), found.first_unfit) == (1000, 1000, 24)


def test_the_reason_of_the_first_pod_without_room_is_given(lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=2)])
    found = checked(lab, "aliyun.com/gpu-mem: 10", pods=3)
    assert found.preview is not None
    assert found.unfit is not None
    assert (found.preview.message, found.unfit.verdicts[0].rejections[0].best) == ("", 5)
    assert "1 node(s) didn't have enough device resources to allocate" in found.unfit.message
    assert [(option.code, option.pods) for option in found.help.options] == [("smaller", 3)]


@pytest.mark.parametrize("field", ["parallelism", "completions"])
def test_a_job_without_pods_lands_nowhere_and_says_why(lab: Cluster, field: str) -> None:
    show(lab, [a_node("n1")])
    yaml = (JOB % {"pods": 2, "limits": "aliyun.com/gpu-mem: 4", "labels": ""}).replace(f"{field}: 2", f"{field}: 0")
    found = jobs.check(an_actor(Role.OPERATOR, lab), lab, yaml)
    assert (found.preview, found.previews) == (None, ())
    assert found.unknown == f"It makes no pods: its {field} is 0."


def test_a_suspended_job_is_previewed_as_if_it_were_resumed(lab: Cluster) -> None:
    show(lab, [a_node("n1")])
    yaml = JOB % {"pods": 2, "limits": "aliyun.com/gpu-mem: 4", "labels": ""}
    found = jobs.check(
        an_actor(Role.OPERATOR, lab), lab, yaml.replace("  parallelism", "  suspend: true\n  parallelism")
    )
    assert len(found.previews) == 2
    assert found.note.startswith("It is suspended and makes no pods")
    assert jobs.check(an_actor(Role.OPERATOR, lab), lab, yaml).note == ""
