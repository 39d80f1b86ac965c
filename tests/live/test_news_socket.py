"""The socket of pages that the server draws: it says that something changed, and nothing of what."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async

from gpupools.models import Cluster
from gpupools.services import bell
from gpupools.services.publishing import Publisher
from tests.domain.builders import a_node
from tests.live.test_allocation_socket import (
    PODS,
    a_copy,
    as_viewer,
    closed_with,
    cluster,
    heard,
    publisher,
    socket,
)

__all__ = ["cluster", "publisher"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("empty_redis")]


async def test_a_page_hears_of_each_change_and_of_no_pulse(publisher: Publisher) -> None:
    async with socket(await as_viewer(), what="news") as page:
        assert await heard(page) == {"type": "listening"}
        await sync_to_async(publisher.publish)(a_copy(PODS[0]), {"n1"})
        assert await heard(page) == {"type": "touched"}
        await sync_to_async(publisher.pulse)(a_copy(PODS[0]))
        assert await page.receive_nothing(timeout=0.2)
        relabelled = [a_node("n1", "share"), a_node("n2", "exclusive")]
        await sync_to_async(publisher.publish)(a_copy(PODS[0], nodes=relabelled), {"n1"})
        assert await heard(page) == {"type": "touched"}


async def test_a_page_hears_when_rows_about_its_cluster_change(cluster: Cluster) -> None:
    async with socket(await as_viewer(), what="news") as page:
        assert await heard(page) == {"type": "listening"}
        await sync_to_async(bell.ring_cluster)(cluster.pk)
        assert await heard(page) == {"type": "touched"}


async def test_what_a_page_says_ends_the_socket(cluster: Cluster) -> None:
    async with socket(await as_viewer(), what="news") as page:
        await page.send_to(text_data='{"type": "resync"}')
        assert await closed_with(page) == 4400


async def test_nobody_hears_without_signing_in(cluster: Cluster) -> None:
    async with socket([(b"origin", b"http://localhost")], what="news") as page:
        assert await closed_with(page) == 4401
