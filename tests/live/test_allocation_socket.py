"""The socket of the dashboard, spoken to through the whole ASGI application and a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from redis import Redis

from console.asgi import application
from gpupools.live import consumer
from gpupools.models import ApiToken, Cluster, Grant, Role
from gpupools.services import bell, leases, tokens
from gpupools.services.access import Actor
from gpupools.services.publishing import Copy, Publisher
from gpupools.services.rows import ANOTHER_NAMESPACE
from tests.domain.builders import a_node, a_pod
from tests.services.builders import a_cluster, a_pool, an_actor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("empty_redis")]
TIMEOUT = 5
POOL = {"gpupools.internal/pool": "shared"}


@pytest.fixture
def cluster(transactional_db: None) -> Cluster:
    return a_cluster("lab")


@pytest.fixture
def publisher(cluster: Cluster, empty_redis: Redis) -> Publisher:
    """The holder of the cluster's lease, which has published two nodes."""
    lease = leases.take(cluster, "a watcher")
    assert lease is not None
    publisher = Publisher(cluster, lease)
    publisher.publish(a_copy())
    return publisher


def a_copy(*pods: Any, nodes: Any = None, error: str = "") -> Copy:
    return Copy(nodes or [a_node("n1"), a_node("n2", "exclusive")], pods, (), time.time(), error)


PODS = (
    a_pod("mine", mem=4, at={0: 4}, namespace="vision"),
    a_pod("other", mem=9, at={1: 9}, namespace="secret"),
)


def headers_of(actor: Actor | None, *, origin: str = "http://localhost") -> list[tuple[bytes, bytes]]:
    headers = [(b"origin", origin.encode())] if origin else []
    if actor is not None and actor.user is not None:
        client = Client()
        client.force_login(actor.user)
        headers.append((b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()))
    return headers


@asynccontextmanager
async def socket(
    headers: list[tuple[bytes, bytes]], name: str = "lab", what: str = "allocation"
) -> AsyncIterator[WebsocketCommunicator]:
    communicator = WebsocketCommunicator(application, f"/ws/clusters/{name}/{what}/", headers=headers)
    accepted, _ = await communicator.connect(timeout=TIMEOUT)
    assert accepted
    try:
        yield communicator
    finally:
        await communicator.disconnect(timeout=TIMEOUT)


async def as_viewer() -> list[tuple[bytes, bytes]]:
    return await sync_to_async(lambda: headers_of(an_actor(Role.VIEWER)))()


async def heard(communicator: WebsocketCommunicator, kind: str = "") -> dict[str, Any]:
    """The next message; with a kind, the next of that kind."""
    while True:
        message = json.loads(await communicator.receive_from(timeout=TIMEOUT))
        if not kind or message["type"] == kind:
            return message


async def closed_with(communicator: WebsocketCommunicator) -> int:
    while True:
        event = await communicator.receive_output(timeout=TIMEOUT)
        if event["type"] == "websocket.close":
            return int(event["code"])


def in_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    return sync_to_async(call)


# -- What a page hears


async def test_the_first_message_is_a_snapshot_of_everything(publisher: Publisher) -> None:
    async with socket(await as_viewer()) as page:
        snapshot = await heard(page)
        assert (snapshot["type"], snapshot["cluster"], snapshot["error"]) == ("snapshot", "lab", "")
        assert (snapshot["epoch"], snapshot["sequence"]) == (1, 1)
        assert [row["node"] for row in snapshot["nodes"]] == ["n1", "n2"]
        assert snapshot["totals"]["all"]["memory_units"] == 60


async def test_before_anything_is_published_the_snapshot_says_that_nothing_is_known(cluster: Cluster) -> None:
    async with socket(await as_viewer()) as page:
        snapshot = await heard(page)
        assert (snapshot["nodes"], snapshot["totals"], snapshot["taken_at"]) == ([], None, None)


async def test_a_change_is_one_delta_with_the_rows_that_changed(publisher: Publisher) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(publisher.publish)(a_copy(PODS[0]), {"n1"})
        delta = await heard(page)
        assert (delta["type"], delta["epoch"], delta["sequence"], delta["removed"]) == ("delta", 1, 2, [])
        [row] = delta["nodes"]
        assert (row["node"], row["memory_units_used"]) == ("n1", 4)
        assert delta["totals"]["all"]["memory_units_used"] == 4
        assert delta["taken_at"].endswith("Z")


async def test_a_node_that_is_gone_is_named(publisher: Publisher) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(publisher.publish)(a_copy(nodes=[a_node("n1")]), {"n2"})
        delta = await heard(page)
        assert (delta["nodes"], delta["removed"]) == ([], ["n2"])


async def test_a_big_change_comes_in_several_messages_that_follow_each_other(publisher: Publisher) -> None:
    many = [a_node(f"m{number:03}") for number in range(250)]
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(publisher.publish)(a_copy(nodes=many))
        deltas = [await heard(page) for _ in range(3)]
        assert [delta["sequence"] for delta in deltas] == [2, 3, 4]
        assert sum(len(delta["nodes"]) for delta in deltas) == 250
        assert [delta["removed"] for delta in deltas] == [["n1", "n2"], [], []]
        await in_thread(publisher.publish)(a_copy(PODS[0], nodes=[a_node("n1"), *many]), {"n1"})
        assert (await heard(page))["sequence"] == 5


async def test_a_pulse_tells_the_age_and_what_is_wrong(publisher: Publisher) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(publisher.pulse)(a_copy())
        pulse = await heard(page)
        assert (pulse["type"], pulse["sequence"], pulse["error"]) == ("pulse", 1, "")
        await in_thread(publisher.pulse)(a_copy(error="Node: The cluster did not answer."))
        assert (await heard(page))["error"] == "Node: The cluster did not answer."


async def test_a_page_that_saw_a_gap_gets_a_new_snapshot(publisher: Publisher) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await page.send_to(text_data=json.dumps({"type": "resync"}))
        assert (await heard(page))["type"] == "snapshot"


async def test_a_message_lost_on_the_way_is_made_good_by_a_snapshot(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        with monkeypatch.context() as losing:
            losing.setattr(Publisher, "_tell", lambda *_, **__: None)
            await in_thread(publisher.publish)(a_copy(PODS[0]), {"n1"})
        await in_thread(publisher.publish)(a_copy(*PODS), {"n1"})
        message = await heard(page)
        assert (message["type"], message["sequence"]) == ("snapshot", 3)
        assert message["nodes"][0]["memory_units_used"] == 13
        await in_thread(publisher.publish)(a_copy(), {"n1"})
        assert (await heard(page))["type"] == "delta"


async def test_a_new_epoch_begins_with_a_snapshot(publisher: Publisher, cluster: Cluster) -> None:
    def take_over() -> None:
        leases.release(publisher.lease)
        lease = leases.take(cluster, "another watcher")
        assert lease is not None
        Publisher(cluster, lease).publish(a_copy(PODS[0]))

    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(take_over)()
        message = await heard(page)
        assert (message["type"], message["epoch"], message["sequence"]) == ("snapshot", 2, 1)


async def test_an_edit_of_a_pool_changes_the_drift_of_its_nodes(publisher: Publisher, cluster: Cluster) -> None:
    nodes = [a_node("n1", labels=POOL)]
    await in_thread(publisher.publish)(a_copy(nodes=nodes))
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(a_pool)(cluster, "shared", labels={"team": "vision"})
        publisher._pools_read_at = float("-inf")  # as after two seconds
        await in_thread(publisher.pulse)(a_copy(nodes=nodes))
        delta = await heard(page, "delta")
        (drift,) = delta["nodes"][0]["drift"]
        assert (drift["key"], drift["wanted"], drift["found"]) == ("team", "vision", "")


async def test_pages_are_told_that_other_rows_of_their_cluster_changed(publisher: Publisher, cluster: Cluster) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(bell.ring_cluster)(cluster.pk)
        assert await heard(page) == {"type": "touched"}


# -- Who hears it


async def test_names_of_other_namespaces_are_not_sent(publisher: Publisher, cluster: Cluster) -> None:
    await in_thread(publisher.publish)(a_copy(*PODS), {"n1"})
    headers = await in_thread(lambda: headers_of(an_actor(Role.VIEWER, cluster, "vision")))()
    async with socket(headers) as page:
        texts = [await page.receive_from(timeout=TIMEOUT)]
        extra = a_pod("third", mem=1, at={2: 1}, namespace="secret")
        await in_thread(publisher.publish)(a_copy(*PODS, extra), {"n1"})
        texts.append(await page.receive_from(timeout=TIMEOUT))
    for text in texts:
        assert "secret" not in text
        assert "third" not in text
        [row] = [row for row in json.loads(text)["nodes"] if row["node"] == "n1"]
        assert [each["pod"] for each in row["gpus"][0]["holdings"]] == ["mine"]
        assert [each["pod"] for each in row["gpus"][1]["holdings"]] == [ANOTHER_NAMESPACE]
        assert row["gpus"][1]["memory_units_used"] == 9


async def test_nobody_is_let_in_without_signing_in(publisher: Publisher) -> None:
    async with socket(headers_of(None)) as page:
        assert await closed_with(page) == 4401


async def test_to_a_stranger_there_is_no_such_cluster(publisher: Publisher) -> None:
    headers = await in_thread(lambda: headers_of(an_actor()))()
    async with socket(headers) as page:
        assert await closed_with(page) == 4404


async def test_there_is_no_socket_of_a_cluster_that_is_not_there(publisher: Publisher) -> None:
    async with socket(await as_viewer(), name="nowhere") as page:
        assert await closed_with(page) == 4404


@pytest.mark.parametrize("origin", ["http://evil.example.com", "null", ""])
async def test_another_sites_pages_are_refused(publisher: Publisher, origin: str) -> None:
    headers = await in_thread(lambda: headers_of(an_actor(Role.VIEWER), origin=origin))()
    communicator = WebsocketCommunicator(application, "/ws/clusters/lab/allocation/", headers=headers)
    accepted, _ = await communicator.connect(timeout=TIMEOUT)
    assert not accepted


async def test_an_api_token_opens_it_and_a_revoked_one_does_not(publisher: Publisher) -> None:
    def issue() -> tuple[ApiToken, str]:
        return tokens.issue(an_actor(Role.VIEWER), name="robot", role="viewer")

    token, plaintext = await in_thread(issue)()
    headers = [*headers_of(None), (b"authorization", f"Bearer {plaintext}".encode())]
    async with socket(headers) as page:
        assert (await heard(page))["type"] == "snapshot"
    await in_thread(lambda: ApiToken.objects.filter(pk=token.pk).update(revoked_at="2026-01-01T00:00:00Z"))()
    async with socket(headers) as page:
        assert await closed_with(page) == 4401


@pytest.mark.parametrize("loss", ["grant", "session", "account"])
async def test_whoever_loses_the_right_to_look_is_closed_while_the_page_is_open(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    monkeypatch.setattr(consumer, "RECHECK_SECONDS", 0.05)
    actor = await in_thread(lambda: an_actor(Role.VIEWER))()
    headers = await in_thread(headers_of)(actor)

    def lose() -> None:
        assert actor.user is not None
        if loss == "grant":
            Grant.objects.filter(user=actor.user).delete()
        elif loss == "session":
            key = dict(headers)[b"cookie"].decode().partition("=")[2]
            session = SessionStore(key)
            assert SESSION_KEY in session
            session.flush()
        else:
            actor.user.is_active = False
            actor.user.save()

    async with socket(headers) as page:
        await heard(page)
        await in_thread(lose)()
        assert await closed_with(page) == {"grant": 4404, "session": 4401, "account": 4401}[loss]


async def test_a_grant_that_shrinks_masks_what_comes_next(
    publisher: Publisher, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "RECHECK_SECONDS", 0.05)
    actor = await in_thread(lambda: an_actor(Role.VIEWER))()
    async with socket(await in_thread(headers_of)(actor)) as page:
        await heard(page)
        await in_thread(lambda: Grant.objects.filter(user=actor.user).update(cluster=cluster, namespace="vision"))()
        turn = 0
        while True:
            turn += 1
            await in_thread(publisher.publish)(a_copy(*PODS[: 1 + turn % 2]), {"n1"})
            await in_thread(publisher.publish)(a_copy(*PODS), {"n1"})
            texts = [await page.receive_from(timeout=TIMEOUT) for _ in range(2)]
            if ANOTHER_NAMESPACE in texts[-1]:
                break
            assert turn < 200
            await asyncio.sleep(0.01)


# -- What goes wrong


@pytest.mark.parametrize("text", ["no json", "{}", '{"type": "drop"}', '{"type": "resync", "x": 1}', "[" * 300])
async def test_what_a_page_may_not_say_closes_it(publisher: Publisher, text: str) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await page.send_to(text_data=text)
        assert await closed_with(page) == 4400


async def test_a_page_that_falls_behind_is_closed(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    async with socket(await as_viewer()) as page:
        await heard(page)
        await in_thread(publisher.publish)(a_copy(PODS[0]), {"n1"})
        assert (await heard(page))["type"] == "delta"
        real = time.time
        with monkeypatch.context() as late:
            # What is read now was sent long ago, though the clocks agreed a moment before.
            late.setattr("gpupools.services.publishing.time.time", lambda: real() - consumer.LAG_SECONDS - 5)
            await in_thread(publisher.publish)(a_copy(), {"n1"})
        assert await closed_with(page) == 4408


async def test_without_a_broker_a_page_is_told_to_come_back_later(publisher: Publisher, settings: Any) -> None:
    headers = await as_viewer()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    async with socket(headers) as page:
        assert await closed_with(page) == 4503
