"""What ConfigMaps say of the cards of nodes."""

from __future__ import annotations

import pytest

from gpupools.domain.objects import ConfigMapObject, read
from gpupools.domain.placement import node_states, preview
from gpupools.domain.reports import CardReport, by_node, card_report, with_reports
from tests.domain.builders import a_node, an_ask


def report_of(name, data=None, labels=None):
    return card_report(read({"metadata": {"name": name, "labels": labels}, "data": data}, ConfigMapObject))


DEVICES = """\
- deviceId: 0
  deviceType: gpu
  healthy: false
- deviceId: "2"
  deviceType: gpu
  healthy: false
- deviceId: 1
  deviceType: gpu
  healthy: true
- deviceId: 3
  deviceType: rdma
  healthy: false
"""


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("n1-device-status", {"devices": DEVICES}, CardReport("n1", None, (0, 2))),
        ("n1-device-status", {"devices": "- deviceId: 1\n  healthy: false"}, CardReport("n1", None, (1,))),
        ("n1-device-status", {"devices": "{bad"}, CardReport("n1")),
        ("n1-device-status", {"devices": "just text"}, CardReport("n1")),
        ("n1-device-status", {"devices": "- 1\n- {healthy: false}\n- {deviceId: x, healthy: false}"}, CardReport("n1")),
        ("n1-device-status", None, CardReport("n1")),
        ("unhealthy-gpu-n1", {"gpus": "2,0"}, CardReport("n1", None, (0, 2))),
        ("unhealthy-gpu-n1", {"gpus": " 1 , x,,-3"}, CardReport("n1", None, (1,))),
        ("unhealthy-gpu-n1", {"gpus": ""}, CardReport("n1")),
        ("unhealthy-gpu-n1", {}, CardReport("n1")),
        (
            "n1-gputopo-report",
            {"bandwidth": "[[0,50],[50,0]]", "devices": '{"0":"Healthy","1":"Unhealthy"}'},
            CardReport("n1", ((0.0, 50.0), (50.0, 0.0)), (1,)),
        ),
        ("coredns", {"Corefile": "."}, CardReport()),
    ],
)
def test_each_writer_has_its_shape(name, data, expected):
    assert report_of(name, data) == expected


def test_a_topology_report_may_name_its_node_by_label_alone():
    labels = {"ack.node.gpu.schedule": "topology", "nodename": "far"}
    assert report_of("anything", {"nodeName": "ignored"}, labels).node == "far"


def test_all_reports_of_a_node_count():
    reports = [
        CardReport("n1", ((0.0,),), (0,)),
        CardReport("n1", None, (2,)),
        CardReport("n2", None, (1,)),
        CardReport(),
    ]
    grouped = by_node(reports)
    assert grouped.keys() == {"n1", "n2"}
    node = with_reports(a_node(unhealthy=(3,)), grouped["n1"])
    assert (node.links, node.unhealthy) == (((0.0,),), (0, 2, 3))
    same = a_node()
    assert with_reports(same, []) is same


def test_a_card_that_a_report_calls_sick_gets_no_pod():
    node = with_reports(a_node(cards=2), [report_of("n1-device-status", {"devices": DEVICES})])
    assert preview(an_ask(mem=4), node_states([node], [])).tie_cards == (1,)
