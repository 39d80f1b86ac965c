"""What writing a pool's labels and taints does to each of its nodes, key by key. Pure; it knows no provider.

Who owns which keys of a node (what may be taken off again) is told by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpupools.domain.gpus import GpuNode, Taint


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a pool wants on its nodes: every label, those of its mode among them, and taints."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The names of what is wanted, as ``KeyWrite.key`` has them."""
        return frozenset(self.labels) | {taint_key(taint) for taint in self.taints}


@dataclass(frozen=True, slots=True)
class KeyWrite:
    """One label, or one taint (``taint <key>:<effect>``), before and after. None: it is not there.

    An empty text is a value like any other: labels and taints may have none.
    """

    key: str
    old: str | None
    new: str | None

    @property
    def kind(self) -> str:
        """``added``, ``changed`` or ``removed``."""
        return "added" if self.old is None else "removed" if self.new is None else "changed"

    @property
    def is_taint(self) -> bool:
        """Whether it is a taint, and not a label."""
        return self.key.startswith(_TAINT)


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes to which exactly the same happens; no write means: they stay as they are."""

    writes: tuple[KeyWrite, ...]
    nodes: tuple[str, ...]


_TAINT = "taint "


def taint_key(taint: Taint) -> str:
    """Return what tells taints apart: Kubernetes keeps one per key and effect."""
    return f"{_TAINT}{taint.key}:{taint.effect}"


def differences(before: Wishes, after: Wishes) -> tuple[KeyWrite, ...]:
    """Return what an edit changes of the pool's own wishes, labels first, each by key."""
    return _compare(_flat(before.labels, before.taints), _flat(after.labels, after.taints))


def node_writes(node: GpuNode, wanted: Wishes, *, owned: Iterable[str]) -> tuple[KeyWrite, ...]:
    """Return what writing a pool's wishes changes on a node; empty when it carries them already.

    ``owned``: the keys (labels, and taints as ``taint_key`` names them) that the pool had put there. Those that it no
    longer wants are taken off; whatever else the node carries stays.
    """
    due = wanted.keys | frozenset(owned)
    found = {key: value for key, value in _flat(node.labels, node.taints).items() if key in due}
    return _compare(found, _flat(wanted.labels, wanted.taints))


def grouped(rows: Iterable[tuple[str, tuple[KeyWrite, ...]]]) -> tuple[Group, ...]:
    """Put nodes with the same writes together: the largest group first, untouched nodes last."""
    found: dict[tuple[KeyWrite, ...], list[str]] = {}
    for name, writes in rows:
        found.setdefault(writes, []).append(name)
    ordered = sorted(found.items(), key=lambda item: (not item[0], -len(item[1]), item[1][0]))
    return tuple(Group(writes, tuple(nodes)) for writes, nodes in ordered)


def _flat(labels: Mapping[str, str], taints: Iterable[Taint]) -> dict[str, str]:
    return {**labels, **{taint_key(taint): taint.value for taint in taints}}


def _compare(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[KeyWrite, ...]:
    # A label key has no blank in it, so it is never mistaken for a taint.
    keys = sorted(old.keys() | new.keys(), key=lambda key: (key.startswith(_TAINT), key))
    return tuple(KeyWrite(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key))
