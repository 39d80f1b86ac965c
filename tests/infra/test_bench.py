"""The bench measures real work: its fleet folds to the numbers that it was made with."""

import json

from django.core.management import call_command

from gpupools.domain import allocation, objects
from gpupools.domain.modes import Mode
from gpupools.management import benching


def test_the_made_up_fleet_is_what_it_claims_to_be():
    nodes = [objects.convert("Node", benching.raw_node(number)) for number in range(2)]
    pods = [objects.convert("Pod", benching.raw_pod(number, nodes=2)) for number in range(6)]
    folded = allocation.fold_all(nodes, pods)
    assert {one.mode for one in folded.values()} == {Mode.CGPU}
    assert [one.memory_units for one in folded.values()] == [240, 240]
    assert [one.memory_units_used for one in folded.values()] == [18, 18]
    assert not any(one.unplaced or one.warnings for one in folded.values())


def test_it_prints_one_json_object_and_a_line_per_measure(capsys):
    call_command("bench", "--nodes", "3", "--pods", "9", "--repeat", "1")
    first, *table = capsys.readouterr().out.splitlines()
    report = json.loads(first)
    assert report["nodes"] == 3
    assert len(table) == len(report["measures"])
    assert all(measure["seconds"] > 0 for measure in report["measures"])
