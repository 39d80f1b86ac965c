"""Commands inside containers: kubectl exec and the Python client's stream, over the channel protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL, WSClient

from tests.simulator.clients import WHOLE, Cluster, connected
from tests.simulator.harness import SimulatorProcess

KUBECTL = shutil.which("kubectl", path=".venv/bin") or shutil.which("kubectl")
CARD = "Tesla V100-SXM2-16GB"


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=20) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def gpu(running: SimulatorProcess) -> Iterator[Cluster]:
    """A pod ``gpu`` with two cards, and a pod ``plain`` with none."""
    with connected(running) as cluster:
        cluster.create_pod("gpu", limits={WHOLE: 2}, terminationGracePeriodSeconds=1)
        cluster.create_pod("plain", terminationGracePeriodSeconds=1)
        for name in ("gpu", "plain"):
            cluster.pod_in_phase(name, "Running")
        yield cluster


def kubectl(simulator: SimulatorProcess, *words: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    assert KUBECTL
    return subprocess.run(
        [KUBECTL, "--kubeconfig", str(simulator.kubeconfig), *words],
        input=typed,
        stdin=None if typed is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


@needs_kubectl
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["nvidia-smi", "--query-gpu=gpu_name", "--format=csv,noheader", "--id=0"], f"{CARD}\n"),
        (["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader", "-i", "1"], "16130 MiB\n"),
        (["sh", "-c", "nvidia-smi -L | wc -l"], "2\n"),
        (
            ["sh", "-c", "nvidia-smi --query-gpu=gpu_name --format=csv,noheader --id=0 | sed -e 's/ /-/g'"],
            "Tesla-V100-SXM2-16GB\n",
        ),
        (["printenv", "HOSTNAME"], "gpu\n"),
    ],
)
def test_commands_print_what_they_would_on_a_card(
    running: SimulatorProcess, gpu: Cluster, command: list[str], printed: str
) -> None:
    done = kubectl(running, "exec", "gpu", "--", *command)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


@needs_kubectl
def test_exit_codes_come_back(running: SimulatorProcess, gpu: Cluster) -> None:
    done = kubectl(running, "exec", "gpu", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert "exit code 7" in done.stderr


@needs_kubectl
def test_what_is_not_there_cannot_be_run(running: SimulatorProcess, gpu: Cluster) -> None:
    done = kubectl(running, "exec", "plain", "--", "nvidia-smi")
    assert done.returncode == 1
    assert 'exec: "nvidia-smi": executable file not found in $PATH' in done.stderr


@needs_kubectl
def test_a_shell_reads_its_input_and_complains_on_standard_error(running: SimulatorProcess, gpu: Cluster) -> None:
    done = kubectl(running, "exec", "-i", "gpu", "--", "sh", typed="X=two\necho one $X\nnothing-like-it\n")
    assert done.stdout == "one two\n"
    assert "sh: nothing-like-it: not found" in done.stderr
    assert done.returncode == 127


@needs_kubectl
def test_attach_is_refused_in_plain_words(running: SimulatorProcess, gpu: Cluster) -> None:
    done = kubectl(running, "attach", "gpu")
    assert done.returncode == 1
    assert "the embedded cluster serves no attach" in done.stderr


@contextmanager
def opened(simulator: SimulatorProcess, *command: str, **options: object) -> Iterator[WSClient]:
    with config.new_client_from_config(str(simulator.kubeconfig)) as api:
        socket = stream(
            client.CoreV1Api(api).connect_get_namespaced_pod_exec, "gpu", "default", command=list(command),
            stdout=True, stderr=True, _preload_content=False, **options,
        )  # fmt: skip
        try:
            yield socket
        finally:
            socket.sock.shutdown()


def test_the_older_protocol_is_spoken_too_and_says_how_it_ended(running: SimulatorProcess, gpu: Cluster) -> None:
    with opened(running, "sh", "-c", "echo out; false") as socket:
        socket.run_forever(timeout=20)
        assert socket.read_stdout() == "out\n"
        assert socket.returncode == 1


def test_a_terminal_echoes_edits_and_knows_its_size(running: SimulatorProcess, gpu: Cluster) -> None:
    with opened(running, "sh", stdin=True, tty=True) as socket:
        seen = ""

        def read_until(text: str) -> None:
            nonlocal seen
            while text not in seen:
                assert socket.is_open(), seen
                socket.update(timeout=20)
                seen += socket.read_stdout() if socket.peek_stdout() else ""

        read_until("# ")
        socket.write_channel(4, json.dumps({"Width": 132, "Height": 43}))
        socket.write_stdin("echo aX\x7fb\r")
        read_until("\r\nab\r\n")
        socket.write_stdin("stty size\r")
        read_until("43 132\r\n")
        socket.write_stdin("exit 4\r")
        socket.run_forever(timeout=20)
        assert "\b \b" in seen
        assert json.loads(socket.read_channel(ERROR_CHANNEL))["details"]["causes"] == [
            {"reason": "ExitCode", "message": "4"}
        ]


def test_a_stop_does_not_wait_for_open_terminals(tmp_path: Path) -> None:
    with SimulatorProcess(fleet="small", speed=50, directory=tmp_path) as simulator:
        with connected(simulator) as cluster:
            cluster.create_pod("gpu", limits={WHOLE: 1})
            cluster.pod_in_phase("gpu", "Running")
        with opened(simulator, "sh", stdin=True, tty=True) as socket:
            socket.update(timeout=20)
            begin = time.monotonic()
            assert simulator.stop() == 0
            assert time.monotonic() - begin < 4


@needs_kubectl
def test_only_who_may_create_exec_gets_in(running: SimulatorProcess, gpu: Cluster) -> None:
    done = subprocess.run(
        [str(KUBECTL), "--kubeconfig", str(running.kubeconfig_of("viewer")), "exec", "gpu", "--", "env"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot" in done.stderr
    assert "pods/exec" in done.stderr
