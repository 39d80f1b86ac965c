"""The openb fleet and its load: the numbers of the trace, and pods of its mix in a running cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from kubernetes import client

from gpupools.management.commands import loadpods
from gpupools.management.embedded import openbload
from gpupools.simulator import fleet
from gpupools.simulator.hardware import hardware_of
from tests.simulator.harness import SimulatorProcess


def test_the_fleet_has_the_nodes_and_cards_of_the_trace() -> None:
    cards: Counter[tuple[str, int]] = Counter()
    for pool in fleet.load("openb").pools:
        hardware = hardware_of(pool.instance_types[0])
        assert hardware is not None
        cards[(hardware.card, hardware.cards)] += pool.size
    assert cards[("", 0)] == 310
    assert sum(count for (_, number), count in cards.items() if number) == 1213
    assert sum(count * number for (_, number), count in cards.items()) == 6212
    assert (cards[("G2", 8)], cards[("Tesla-T4", 2)], cards[("Tesla-P100-PCIE-16GB", 2)]) == (549, 387, 131)


def test_what_is_assumed_is_marked_on_the_nodes() -> None:
    marked = {
        hardware.card
        for pool in fleet.load("openb").pools
        if "embedded.gpupools/assumed" in pool.labels and (hardware := hardware_of(pool.instance_types[0]))
    }
    assert marked == {"", "G2", "G3"}


def test_the_mix_of_pods_is_that_of_the_trace() -> None:
    kinds: Counter[str] = Counter()
    for pods, cards, thousandths, _, _ in openbload.SHAPES:
        kinds["shared" if 0 < thousandths < 1000 else str(cards)] += pods
    assert kinds == {"0": 1088, "shared": 3078, "1": 3911, "2": 16, "4": 15, "8": 44}
    assert openbload.TOTAL == 8152


def test_any_part_of_the_mix_is_mixed_alike_and_always_the_same() -> None:
    part = openbload.order(815)
    assert part == openbload.order(815)
    counts = Counter(part)
    assert all(abs(counts[shape] - openbload.SHAPES[shape][0] / 10) <= 1 for shape in range(len(openbload.SHAPES)))


@pytest.fixture
def kubeconfig(simulator: SimulatorProcess) -> Path:
    return simulator.kubeconfig


def test_a_cluster_is_filled_and_emptied_again(kubeconfig: Path, core: client.CoreV1Api) -> None:
    call_command(loadpods.Command(), "--kubeconfig", str(kubeconfig), "--count", "40", "--namespace", "filled")
    assert len(core.list_namespaced_pod("filled").items) == 40
    call_command(loadpods.Command(), "--kubeconfig", str(kubeconfig), "--namespace", "filled", "--delete")
    assert core.read_namespace("filled").metadata.deletion_timestamp is not None


def test_an_unreasonable_number_of_pods_is_refused(kubeconfig: Path) -> None:
    with pytest.raises(CommandError, match="from 1 to 100000"):
        call_command(loadpods.Command(), "--kubeconfig", str(kubeconfig), "--count", "0")
