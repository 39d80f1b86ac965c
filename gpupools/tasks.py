"""The Celery door: each task is one call of a service. Beat rings them; the rows say what there is to do.

A task that comes twice, or twice at once, does nothing the second time: rows are claimed, not messages.
"""

from __future__ import annotations

import logging

from celery import shared_task

from gpupools.errors import Refused, Unreachable
from gpupools.models import Cluster
from gpupools.services import allocation, changes, clusters, components, notices, poolsync, pushing, requests

logger = logging.getLogger(__name__)


@shared_task(name="gpupools.push_due")
def push_due() -> None:
    """Carry out the operations on clusters that are due."""
    pushing.run_due()


@shared_task(name="gpupools.poll_allocation")
def poll_allocation() -> None:
    """Poll every cluster, each in a task of its own: one that does not answer holds no other up."""
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        poll_cluster.delay(cluster_id)


@shared_task(name="gpupools.poll_cluster")
def poll_cluster(cluster_id: int) -> None:
    """List one cluster in full and keep what its cards hold."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    try:
        allocation.poll(cluster)
    except (Unreachable, Refused) as error:
        # The pages show the age of what they have; the probe notes that the cluster is away.
        logger.warning("Cluster %s was not polled: %s", cluster.name, error.message)


@shared_task(name="gpupools.sync_pools")
def sync_pools() -> None:
    """Bring the rows of node pools up to date with their providers."""
    poolsync.sync_all()


@shared_task(name="gpupools.check_components")
def check_components() -> None:
    """Look which components clusters have."""
    components.check_all()


@shared_task(name="gpupools.probe_clusters")
def probe_clusters() -> None:
    """Probe every cluster, each in a task of its own: one that does not answer holds no other up."""
    for cluster_id in Cluster.objects.values_list("pk", flat=True):
        probe_cluster.delay(cluster_id)


@shared_task(name="gpupools.probe_cluster")
def probe_cluster(cluster_id: int) -> None:
    """Note whether one cluster answers, and if not, since when and why."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is not None:
        clusters.probe(cluster)


@shared_task(name="gpupools.expire_changes")
def expire_changes() -> None:
    """Let mode changes and other requests expire that nobody decided on in time, and lapse what moved."""
    changes.expire_due()
    requests.expire_due()


@shared_task(name="gpupools.send_notices")
def send_notices() -> None:
    """Send the e-mails that are due."""
    notices.send_due()
