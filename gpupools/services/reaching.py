"""Whether a cluster answers, as its row says it: noted by the probe, and at once when the watcher sees it turn.

It asks no cluster itself.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from gpupools.models import Cluster
from gpupools.services import bell

logger = logging.getLogger(__name__)

LONGEST_ERROR: Final = 500


def note_silence(cluster_id: int, reason: str, *, asked_at: datetime | None = None) -> None:
    """Note that a cluster does not answer and why, and tell its open pages when that is news.

    Whoever asked before the cluster was last seen knows less than the row: a probe that waited out its time during
    an outage must not deny the recovery.
    """
    now = timezone.now()
    asked_at = asked_at or now
    rows = Cluster.objects.filter(Q(last_seen_at=None) | Q(last_seen_at__lte=asked_at), pk=cluster_id)
    is_news = rows.exclude(state=Cluster.State.UNREACHABLE).exists()
    rows.update(
        state=Cluster.State.UNREACHABLE,
        last_error=reason[:LONGEST_ERROR],
        unreachable_since=Coalesce("unreachable_since", now),
    )
    if is_news:
        logger.warning("Cluster %s does not answer: %s", cluster_id, reason)
        bell.ring_cluster(cluster_id)


def ask_to_probe(cluster_id: int) -> None:
    """Have a cluster probed now that it was seen to answer: the probe also asks ACK's door, which nobody watches."""
    bell.ring_probe(cluster_id)
