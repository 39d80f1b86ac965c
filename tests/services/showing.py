"""Puts pictures of clusters where the console reads them, for tests that start from what a watcher has published."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gpupools.domain.gpus import GpuNode, Picture, Pod, Workload
from gpupools.models import Cluster
from gpupools.services import pictures


def show(
    cluster: Cluster,
    nodes: Iterable[GpuNode] = (),
    pods: Iterable[Pod] = (),
    workloads: Iterable[Workload] = (),
    *,
    epoch: int = 1,
    taken_at: float | None = None,
) -> Picture:
    """Store the next picture of a cluster, as the holder of its lease would."""
    stored = pictures.load(cluster.pk)
    sequence = stored.picture.sequence + 1 if stored and stored.picture.epoch == epoch else 1
    picture = Picture(
        epoch, sequence, time.time() if taken_at is None else taken_at, tuple(nodes), tuple(pods), tuple(workloads)
    )
    pictures.store(cluster.pk, picture)
    return picture


def a_daemonset(name: str, *, wanted: int = 1, ready: int = 1) -> Workload:
    """A DaemonSet of a component, in kube-system."""
    return Workload("DaemonSet", "kube-system", name, uid=f"uid-{name}", wanted=wanted, active=wanted, ready=ready)
