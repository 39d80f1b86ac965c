"""Parts that need no cluster: programs and their shell, nvidia-smi, fleets, add-ons as the console knows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from gpupools.domain.components import CATALOGUE as COMPONENTS
from gpupools.domain.instances import INSTANCE_TYPES
from gpupools.domain.modes import CHOOSABLE, MODES
from gpupools.simulator import fleet
from gpupools.simulator.addons import CATALOGUE, DEVICE_PLUGIN_NEEDS, DEVICE_PLUGINS
from gpupools.simulator.devices import reported
from gpupools.simulator.hardware import hardware_of
from gpupools.simulator.machines import address, link_bandwidths, link_types
from gpupools.simulator.nvidiasmi import VisibleCard, run
from gpupools.simulator.programs import Situation, program
from gpupools.simulator.shell import Step

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CARDS = tuple(
    VisibleCard(index, f"GPU-{index}", f"00000000:00:0{7 + index}.0", "Tesla-V100-SXM2-16GB", 16130)
    for index in range(2)
)


def steps_of(*command: str, cards: tuple[VisibleCard, ...] = (), may_end: bool = True) -> Iterator[Step]:
    return program(
        Situation("registry.local/test:1", command, (), {"GREETING": "hello you"}, cards, NOW, may_end=may_end)
    )


def played(*command: str, cards: tuple[VisibleCard, ...] = ()) -> tuple[list[str], float, int]:
    """Run a program to its end: its lines, how long it took, its exit code."""
    lines, at = [], 0.0
    steps = steps_of(*command, cards=cards)
    while True:
        try:
            at, line = next(steps)
        except StopIteration as end:
            return lines, at, end.value
        if line is not None:
            lines.append(line)


@pytest.mark.parametrize(
    ("script", "lines", "seconds", "code"),
    [
        ("echo one; sleep 3; echo two", ["one", "two"], 3.0, 0),
        ('echo "$GREETING" && exit 4', ["hello you"], 0.0, 4),
        ("echo '$GREETING'", ["$GREETING"], 0.0, 0),
        ("false || echo rescued", ["rescued"], 0.0, 0),
        ("false && echo never", [], 0.0, 1),
        ("for i in 1 2 3; do echo $i; sleep 2; done", ["1", "2", "3"], 6.0, 0),
        ("for i in $(seq 2); do echo n$i; done", ["n1", "n2"], 0.0, 0),
        ("echo hidden > /dev/null 2>&1; echo shown", ["shown"], 0.0, 0),
        ("true # a comment\necho next", ["next"], 0.0, 0),
        ("sleep 0.5m", [], 30.0, 0),
        ("sleep soon", ["sleep: invalid time interval 'soon'"], 0.0, 1),
        ("echo 'open", ["sh: syntax error: unterminated quoted string"], 0.0, 2),
    ],
)
def test_a_shell_script_says_what_and_when(script: str, lines: list[str], seconds: float, code: int) -> None:
    assert played("sh", "-c", script) == (lines, seconds, code)


def test_an_endless_loop_goes_on_printing() -> None:
    steps = steps_of("sh", "-c", "while true; do echo tick; sleep 5; done", may_end=False)
    printed = [(at, line) for at, line in islice(steps, 10) if line]
    assert printed[:3] == [(0.0, "tick"), (5.0, "tick"), (10.0, "tick")]


def test_a_loop_that_takes_no_time_still_lets_time_pass() -> None:
    steps = steps_of("sh", "-c", "while true; do :; done")
    assert [at for at, _ in islice(steps, 3)] == [1.0, 2.0, 3.0]


def test_the_documented_ways_to_ask_for_the_card_model_work() -> None:
    name = "nvidia-smi --query-gpu=gpu_name --format=csv,noheader --id=0 | sed -e 's/ /-/g'"
    assert played("sh", "-c", name, cards=CARDS)[0] == ["Tesla-V100-SXM2-16GB"]
    memory = "nvidia-smi --id=0 --query-gpu=memory.total --format=csv,noheader | sed -e 's/ //g'"
    assert played("sh", "-c", memory, cards=CARDS)[0] == ["16130MiB"]
    assert played("sh", "-c", "nvidia-smi -L | wc -l", cards=CARDS)[0] == ["2"]


def test_nvidia_smi_prints_a_table_whose_lines_are_of_one_width() -> None:
    lines, code = run([], CARDS, NOW)
    assert code == 0
    assert {len(line) for line in lines[1:] if line} == {91}
    assert sum("Tesla V100-SXM2-16GB" in line for line in lines) == 2


def test_without_a_card_there_is_no_nvidia_smi() -> None:
    assert played("nvidia-smi") == (["sh: nvidia-smi: not found"], 0.0, 127)


def test_a_training_program_ends_after_its_last_step() -> None:
    lines, seconds, code = played("python", "mnist/main.py", "--max_steps=200", cards=CARDS)
    assert (seconds, code) == (60.0, 0)
    assert lines[0].startswith("Created TensorFlow device")
    assert "Accuracy at step 200: " in lines[-2]


@pytest.mark.parametrize(("may_end", "seconds"), [(True, 30.0), (False, float("inf"))])
def test_an_unknown_program_ends_only_where_it_may(may_end: bool, seconds: float) -> None:
    *_, last = islice(steps_of("/opt/serve", may_end=may_end), 3)
    assert last == (seconds, None)


def test_every_instance_type_of_the_console_is_sold_here() -> None:
    for known in INSTANCE_TYPES:
        hardware = hardware_of(known.name)
        assert hardware is not None
        assert (hardware.cards, hardware.card_units) == (known.cards, known.card_memory_units)


def test_links_are_symmetric_and_worst_between_sockets() -> None:
    hardware = hardware_of("ecs.gn6v-c8g1.16xlarge")
    assert hardware is not None
    bandwidth, kinds = link_bandwidths(hardware), link_types(hardware)
    assert all(bandwidth[a][b] == bandwidth[b][a] for a in range(8) for b in range(8))
    assert (kinds[0][0], kinds[0][1], kinds[0][3], kinds[0][5]) == ("X", "NV1", "NV2", "SYS")


def test_the_add_ons_are_those_of_the_console_with_the_same_daemonsets() -> None:
    for component, facts in COMPONENTS.items():
        here = {daemon.name: set(daemon.modes) for daemon in CATALOGUE[component].daemons}
        for daemonset in facts.daemonsets:
            assert here[daemonset.name] == {MODES[mode].label_value for mode in daemonset.modes}


def test_every_choosable_mode_has_a_plugin_that_reports_its_resources() -> None:
    hardware = hardware_of("ecs.gn6v-c8g1.8xlarge")
    assert hardware is not None
    for mode in CHOOSABLE:
        facts = MODES[mode]
        assert DEVICE_PLUGINS[facts.label_value]
        amounts = reported(facts.label_value, hardware)
        assert {name for name, value in amounts.items() if int(value) > 0} >= set(facts.resources)
        assert not amounts.keys() & set(facts.zero_resources)
    assert DEVICE_PLUGIN_NEEDS == {"mps": ("ack-mps-control",)}


def test_machines_have_documentation_addresses_first() -> None:
    found = [address(number) for number in (1, 254, 255, 762, 763)]
    assert found == ["192.0.2.1", "192.0.2.254", "198.51.100.1", "203.0.113.254", "10.0.0.1"]


@pytest.mark.parametrize("name", fleet.names())
def test_built_in_fleets_can_be_read(name: str) -> None:
    assert fleet.load(name).name == name


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name: [", "YAML"),
        ("name: x\n", "cluster"),
        ("name: x\ncluster: {name: x, region: r, zones: [z], version: '1'}\nnodez: []\n", "nodez"),
        (
            "name: x\ncluster: {name: x, region: r, zones: [z], version: '1'}\n"
            "nodes: [{prefix: n, instance_type: ecs.none, count: 1}]\n",
            "ecs.none",
        ),
        ("name: x\ncluster: {name: x, region: r, zones: [z], version: '1'}\naddons: [nothing]\n", "nothing"),
    ],
)
def test_a_fleet_that_cannot_be_used_says_why(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(fleet.FleetError, match=word):
        fleet.load(str(path))


def test_an_unknown_fleet_names_the_known_ones() -> None:
    with pytest.raises(fleet.FleetError, match="demo, openb, small"):
        fleet.load("nowhere")
