"""Faults on command, as a client of the cluster meets them: requests, watches, and calls of the ACK API."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import urllib3
from alibabacloud_cs20151215 import models
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from django.core.management import CommandError, call_command
from kubernetes import client

from gpupools.management.commands.faults import Command as FaultsCommand
from gpupools.management.embedded.faulthttp import FaultRefusal
from tests.simulator.ackcalls import Ack, tags
from tests.simulator.breaking import Breaker, breaking
from tests.simulator.clients import MODE, Cluster
from tests.simulator.harness import SimulatorProcess


def lines_of(core: client.CoreV1Api, **options: Any) -> Any:
    """Open a watch of config maps and return the response whose body is its lines."""
    version = core.list_namespaced_config_map("default").metadata.resource_version
    return core.list_namespaced_config_map(
        "default", watch=True, _preload_content=False, **{"resource_version": version, **options}
    )


def events(answer: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(4096):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def a_map(core: client.CoreV1Api, name: str) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": name}})


# The endpoint


def test_only_the_control_token_opens_the_endpoint(running: SimulatorProcess, breaker: Breaker) -> None:
    assert stat.S_IMODE((running.directory / "control.json").stat().st_mode) == 0o600
    admin = running.kubeconfig.read_text().split("token: ")[1].split()[0]
    access = json.loads((running.directory / "control.json").read_text())
    with urllib3.PoolManager(ca_certs=access["certificate_authority"]) as pool:
        headers = {"Authorization": f"Bearer {admin}"}
        answer = pool.request("GET", f"{running.server}/simulator/v1/faults", headers=headers)
        assert answer.status == 401
        headers = {"Authorization": f"Bearer {access['token']}"}
        assert pool.request("GET", f"{running.server}/api/v1/nodes", headers=headers).status == 401


def test_every_kind_of_fault_says_what_it_is(breaker: Breaker) -> None:
    kinds = breaker.http.call("GET", "/kinds")["kinds"]
    assert len(kinds) >= 17
    assert all(kind["what"] and isinstance(kind["fields"], dict) for kind in kinds)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "earthquake"}, "earthquake"),
        ({"kind": "latency", "secnds": 1}, "secnds"),
        ({"kind": "latency", "seconds": -1}, "seconds"),
        ({"kind": "node-down", "node": "nowhere"}, 'nodes "nowhere" not found'),
        ({"kind": "stuck-pod", "pod": "nowhere"}, 'pods "nowhere" not found'),
    ],
)
def test_what_is_no_fault_is_refused_by_its_field(breaker: Breaker, body: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultRefusal, match=words):
        breaker.http.call("POST", "/faults", body)


def test_cards_that_a_node_does_not_have_do_not_break(cluster: Cluster, breaker: Breaker, gpu: str) -> None:
    plain = next(n.metadata.name for n in cluster.core.list_node().items if MODE not in n.metadata.labels)
    for body, words in (
        ({"kind": "card", "node": gpu, "index": 9}, "has the cards 0 to 3, not 9"),
        ({"kind": "ecc", "node": plain}, "has no cards"),
        ({"kind": "label", "node": gpu, "labels": {"team": "not a value"}}, "Invalid value"),
    ):
        with pytest.raises(FaultRefusal, match=words):
            breaker.http.call("POST", "/faults", body)
    assert breaker.http.call("GET", "/faults")["faults"] == []


# Requests


def test_requests_are_refused_with_retry_after_for_as_often_as_was_said(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("error", status=429, retry_after_seconds=7, resources=["nodes"], verbs=["list"], times=1)
    cluster.core.list_namespaced_pod("default")
    with pytest.raises(client.exceptions.ApiException) as caught:
        cluster.core.list_node()
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "7")
    assert json.loads(caught.value.body)["details"]["retryAfterSeconds"] == 7
    cluster.core.list_node()
    assert breaker.http.call("GET", "/faults")["faults"] == []


@pytest.mark.parametrize("status", [500, 503])
def test_requests_fail_until_the_fault_ends(cluster: Cluster, breaker: Breaker, status: int) -> None:
    id_ = breaker.begin("error", status=status)
    for _ in range(2):
        with pytest.raises(client.exceptions.ApiException) as caught:
            cluster.core.list_node()
        assert caught.value.status == status
    assert breaker.hits(id_) == 2
    breaker.end(id_)
    cluster.core.list_node()


def test_answers_come_late_and_those_that_wait_come_when_the_fault_ends(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("latency", seconds=0.3, verbs=["get"], times=1)
    begin = time.monotonic()
    cluster.core.read_namespace("default")
    assert time.monotonic() - begin >= 0.3
    id_ = breaker.begin("latency", seconds=3600, verbs=["get"])
    waiting = cluster.core.read_namespace("default", async_req=True)
    while not breaker.hits(id_):
        pass
    breaker.end(id_)
    assert waiting.get(timeout=20).metadata.name == "default"


# Watches


def test_a_watch_breaks_off_in_mid_answer(cluster: Cluster, breaker: Breaker) -> None:
    answer = lines_of(cluster.core)
    a_map(cluster.core, "before-the-break")
    stream = answer.stream(4096)
    next(stream)
    breaker.begin("watch-drop", resources=["configmaps"])
    with pytest.raises(urllib3.exceptions.ProtocolError):
        for _ in stream:
            pass


def test_a_frozen_watch_says_nothing_and_then_everything(cluster: Cluster, breaker: Breaker) -> None:
    id_ = breaker.begin("watch-freeze", resources=["configmaps"])
    answer = lines_of(cluster.core, timeout_seconds=30)
    a_map(cluster.core, "while-frozen")
    # Another watch, of another kind, is not frozen.
    assert next(events(cluster.core.list_node(watch=True, _preload_content=False)))["type"] == "ADDED"
    assert answer.connection.sock.pending() == 0
    breaker.end(id_)
    assert next(events(answer))["object"]["metadata"]["name"] == "while-frozen"
    answer.close()


def test_events_come_twice_and_late(cluster: Cluster, breaker: Breaker) -> None:
    breaker.begin("watch-duplicate", resources=["configmaps"])
    breaker.begin("watch-late", resources=["configmaps"], seconds=0.3)
    answer = lines_of(cluster.core)
    begin = time.monotonic()
    a_map(cluster.core, "twice")
    seen = events(answer)
    first, second = next(seen), next(seen)
    assert first == second
    assert first["object"]["metadata"]["name"] == "twice"
    assert time.monotonic() - begin >= 0.3
    answer.close()


def test_after_a_compaction_old_watches_get_410_in_the_stream_or_as_status(cluster: Cluster, breaker: Breaker) -> None:
    old = cluster.core.list_namespaced_config_map("default").metadata.resource_version
    a_map(cluster.core, "compacted-away")
    breaker.begin("compaction")
    answer = lines_of(cluster.core, resource_version=old, timeout_seconds=5)
    (error,) = events(answer)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    breaker.begin("compaction", status=True)
    with pytest.raises(client.exceptions.ApiException) as caught:
        lines_of(cluster.core, resource_version=old, timeout_seconds=5)
    assert caught.value.status == 410
    page = cluster.core.list_node(limit=1)
    a_map(cluster.core, "moves-the-version-on")
    breaker.begin("compaction")
    with pytest.raises(client.exceptions.ApiException) as caught:
        cluster.core.list_node(limit=1, _continue=page.metadata._continue)
    assert caught.value.status == 410


def test_the_command_line_begins_lists_and_ends_faults(running: SimulatorProcess, breaker: Breaker) -> None:
    def command(*words: str) -> str:
        out = StringIO()
        call_command(FaultsCommand(), "--dir", str(running.directory), *words, stdout=out)
        return out.getvalue()

    assert "watch-freeze" in command("kinds")
    id_ = command("begin", "latency", "seconds=0", 'verbs=["get"]').split()[0]
    assert f"{id_} latency hits=0" in command("list")
    assert command("end", id_) == ""
    with pytest.raises(CommandError, match="earthquake"):
        command("begin", "earthquake")
    with pytest.raises(CommandError, match="no fault 'nothing' is on"):
        command("end", "nothing")


def test_a_directory_without_a_cluster_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No embedded cluster has run in"):
        call_command(FaultsCommand(), "--dir", str(tmp_path), "list")


# ACK


def test_a_task_fails_half_way(cluster: Cluster, breaker: Breaker, ack: Ack) -> None:
    pool = ack.pool_of("half", {MODE: "cgpu"}, size=2)
    breaker.begin("task-fail", task_type="nodepool_update", after=1, message="node i-2 did not answer")
    config = models.ModifyClusterNodePoolRequestKubernetesConfig(labels=tags({MODE: "share"}))
    ended = ack.ended(ack.modify(pool, kubernetes_config=config, update_nodes=True).task_id)
    assert (ended.state, ended.error.message) == ("fail", "node i-2 did not answer")
    modes = sorted(cluster.core.read_node(node.node_name).metadata.labels[MODE] for node in ack.nodes(pool))
    assert modes == ["cgpu", "share"]
    assert sorted(result.status for result in ended.task_result) == ["success"]


def test_calls_are_throttled(breaker: Breaker, ack: Ack) -> None:
    breaker.begin("ack-error", path="/nodepools", times=1)
    with pytest.raises(AlibabaCloudException) as caught:
        ack.pool("np-nothing")
    assert caught.value.code == "Throttling.User"
    with pytest.raises(AlibabaCloudException) as caught:
        ack.pool("np-nothing")
    assert caught.value.code == "ErrorNodePoolNotFound"


def test_a_state_file_is_not_needed_for_faults_to_end_with_the_process(tmp_path: Path) -> None:
    with SimulatorProcess(directory=tmp_path) as simulator:
        with breaking(simulator) as breaker:
            breaker.begin("latency", seconds=0)
            simulator.stop()
            simulator.start()
        with breaking(simulator) as breaker:
            assert breaker.http.call("GET", "/faults")["faults"] == []
