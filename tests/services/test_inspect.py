"""``manage.py inspect``: the table of kubectl inspect cgpu, from the current picture."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from gpupools.models import Cluster
from tests.domain.builders import a_node, filled
from tests.services.builders import a_cluster
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
NAME = "cn-shanghai.192.0.2.109"


def printed(*arguments: str) -> str:
    out = StringIO()
    call_command("inspect", *arguments, stdout=out)
    return out.getvalue()


def test_a_node_with_whole_cards_that_is_named_has_the_other_table_and_a_unit_without_a_guess(lab: Cluster) -> None:
    show(lab, [a_node("whole", "exclusive")], [])
    text = printed("whole")
    assert "GPU Memory(units)" in text
    assert "Whole GPUs:" in text
    assert "0/4" in text
    assert "Whole GPUs:" not in printed()


def test_it_prints_the_documented_table(lab: Cluster) -> None:
    nodes = [a_node(NAME, ip="192.0.2.109"), a_node("whole", "exclusive")]
    show(lab, nodes, filled(15, 9, on=NAME))
    lines = printed().splitlines()
    assert lines[0].split() == [
        "NAME",
        "IPADDRESS",
        *(f"GPU{index}(Allocated/Total)" for index in range(4)),
        "GPU",
        "Memory(GiB)",
    ]
    assert lines[1].split() == [NAME, "192.0.2.109", "15/15", "9/15", "0/15", "0/15", "24/60"]
    assert lines[2] == "-" * 83
    assert lines[3] == "Allocated/Total GPU Memory In Cluster:"
    assert lines[4].rstrip() == "24/60 (40%)"


def test_one_node_can_be_asked_for(lab: Cluster) -> None:
    show(lab, [a_node("n1"), a_node("n2", cards=1)], filled(3, on="n2"))
    text = printed("n2")
    assert "n1 " not in text
    assert "3/15 (20%)" in text


def test_whole_cards_are_a_table_of_their_own(lab: Cluster) -> None:
    show(lab, [a_node("n1"), a_node("whole", "exclusive")])
    assert "whole" not in printed()
    assert "whole" in printed("--whole")


def test_with_several_clusters_one_must_be_named(lab: Cluster) -> None:
    show(a_cluster("other"), [a_node("n9")])
    with pytest.raises(CommandError, match="--cluster; connected: lab, other"):
        printed()
    assert "n9" in printed("--cluster", "other")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("n7",), "no GPU node n7"), (("--cluster", "nowhere"), "no cluster nowhere; connected: lab")],
)
def test_what_is_not_there_is_said(lab: Cluster, arguments: tuple[str, ...], said: str) -> None:
    show(lab, [a_node("n1")])
    with pytest.raises(CommandError, match=said):
        printed(*arguments)


def test_without_numbers_it_says_that_nothing_is_known(lab: Cluster) -> None:
    with pytest.raises(CommandError, match="Nothing is known"):
        printed()


def test_details_list_the_pods_of_each_node(lab: Cluster) -> None:
    show(lab, [a_node(NAME, ip="192.0.2.109")], filled(15, 9, on=NAME))
    text = printed("-d")
    assert text.startswith(f"\nNAME:       {NAME}\nIPADDRESS:  192.0.2.109\n\n")
    assert "used-1       default    0                9                0                0                \n" in text
    assert text.endswith("\n\nAllocated/Total GPU Memory In Cluster:  24/60 (40%)  \n")


def test_json_has_the_cluster_and_the_age_of_its_numbers(lab: Cluster) -> None:
    show(lab, [a_node("n1", cards=1), a_node("n2")], filled(3, on="n1"))
    found = json.loads(printed("--json", "n1"))
    assert (found["cluster"], found["memory_units_used"], found["memory_units"]) == ("lab", 3, 15)
    assert [node["name"] for node in found["nodes"]] == ["n1"]
    assert found["taken_at"].endswith("Z")
