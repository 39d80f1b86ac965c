"""The process: its files, its ports, its state file, and its ends, clean and otherwise."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.simulator.harness import ROOT, SimulatorProcess


def core_of(simulator: SimulatorProcess) -> client.CoreV1Api:
    return client.CoreV1Api(config.new_client_from_config(str(simulator.kubeconfig)))


def close(core: client.CoreV1Api) -> None:
    core.api_client.rest_client.pool_manager.clear()


def test_files_are_private_and_say_where_it_serves(tmp_path: Path) -> None:
    with SimulatorProcess(fleet="demo", directory=tmp_path, ack=True) as simulator:
        ready = json.loads((tmp_path / "ready.json").read_text())
        assert ready == {
            "server": simulator.server,
            "ack_endpoint": simulator.ack["endpoint"],
            "pid": simulator.pid,
        }
        assert {"endpoint", "protocol", "cluster_id", "region", "access_key_id", "access_key_secret"} <= (
            simulator.ack.keys()
        )
        for name in ("kubeconfig", "ack.json", "tokens.json", "pki/server.key", "pki/ca.key"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
        assert simulator.stop() == 0
    assert not (tmp_path / "ready.json").exists()


def test_ports_tokens_and_certificates_survive_a_restart(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path) as simulator:
        first = simulator.kubeconfig.read_text()
        simulator.stop()
        simulator.start()
        assert simulator.kubeconfig.read_text() == first


def test_objects_survive_a_stop_and_old_watches_are_told_to_list_again(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path, state=True) as simulator:
        core = core_of(simulator)
        made = core.create_namespaced_config_map("default", {"metadata": {"name": "kept"}, "data": {"a": "b"}})
        nodes = {node.metadata.name: node.metadata.uid for node in core.list_node().items}
        close(core)
        simulator.stop()
        simulator.start()
        core = core_of(simulator)
        found = core.read_namespaced_config_map("kept", "default")
        assert (found.metadata.uid, found.data) == (made.metadata.uid, {"a": "b"})
        assert {node.metadata.name: node.metadata.uid for node in core.list_node().items} == nodes
        version = int(core.list_namespaced_config_map("default").metadata.resource_version)
        assert version > int(made.metadata.resource_version)
        answer = core.list_namespaced_config_map(
            "default",
            watch=True,
            resource_version=made.metadata.resource_version,
            timeout_seconds=5,
            _preload_content=False,
        )
        events = [json.loads(line) for line in answer.data.splitlines()]
        assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
        close(core)


def test_a_crash_leaves_the_last_whole_state(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path, state=True) as simulator:
        core = core_of(simulator)
        made = core.create_namespaced_config_map("default", {"metadata": {"name": "kept"}})
        state = tmp_path / "state.json"
        deadline = time.monotonic() + 30
        while not (state.exists() and '"name":"kept"' in state.read_text()):
            assert time.monotonic() < deadline, "the state was never saved"
            # Saving is by the clock; each look costs a request, so that the loop does not spin.
            core.read_namespaced_config_map("kept", "default")
            threading.Event().wait(0.1)
        close(core)
        simulator.kill()
        simulator.start()
        core = core_of(simulator)
        assert core.read_namespaced_config_map("kept", "default").metadata.uid == made.metadata.uid
        close(core)


def test_a_state_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    done = subprocess.run(
        [sys.executable, "manage.py", "runsimulator", "--dir", str(tmp_path), "--state", str(tmp_path / "state.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"},
    )
    assert done.returncode == 1
    assert "is not a state file of the embedded cluster" in done.stderr


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path):
        second = SimulatorProcess(directory=tmp_path)
        with pytest.raises(RuntimeError, match="is running in .* already"):
            second.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_within_two_seconds_though_watches_are_open(tmp_path: Path, number: int) -> None:
    with SimulatorProcess(directory=tmp_path, state=True) as simulator:
        core = core_of(simulator)
        answers = [core.list_node(watch=True, _preload_content=False) for _ in range(5)]
        firsts = [answer.stream(64) for answer in answers]
        for stream in firsts:
            next(stream)
        started = time.monotonic()
        simulator.signal(number)
        # Every stream ends properly: no error while the rest is read.
        for stream in firsts:
            for _ in stream:
                pass
        assert simulator.wait() == 0
        assert time.monotonic() - started < 2
        for answer in answers:
            answer.release_conn()
        close(core)
        assert (tmp_path / "state.json").exists()
