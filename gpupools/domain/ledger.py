"""The folds of a cluster kept up to date: an event on one pod folds one node again, and nothing else.

Pods are known by UID alone, so a late delete of an old pod cannot harm the new one of its name. The result is always
that of folding everything anew; which event is older than another is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gpupools.domain.allocation import fold_holders
from gpupools.domain.gpus import GpuNode, NodeAllocation, Pod


class Ledger:
    """Nodes, pods and the fold of each GPU node. Not safe for two threads at once."""

    def __init__(self, nodes: Iterable[GpuNode] = (), pods: Iterable[Pod] = ()) -> None:
        self._nodes: dict[str, GpuNode] = {}
        self._pods: dict[str, Pod] = {}
        self._holders: dict[str, dict[str, Pod]] = {}  # node -> UID -> what holds something there
        self._folds: dict[str, NodeAllocation] = {}
        self.follow(nodes, pods)

    @property
    def allocations(self) -> Mapping[str, NodeAllocation]:
        """The folds by node name, as they are at any time; only GPU nodes have one."""
        return MappingProxyType(self._folds)

    def put_pod(self, pod: Pod) -> frozenset[str]:
        """Take in a pod that is new or changed; return the names of the nodes that were folded again."""
        return self._fold_again(self._set_pod(pod))

    def drop_pod(self, uid: str) -> frozenset[str]:
        """Forget a pod; one that is not known changes nothing."""
        return self._fold_again(self._unset_pod(uid))

    def put_node(self, node: GpuNode) -> frozenset[str]:
        """Take in a node that is new or changed."""
        self._nodes[node.name] = node
        return self._fold_again({node.name})

    def drop_node(self, name: str) -> frozenset[str]:
        """Forget a node. Its pods stay known: the node may come back before they are gone."""
        self._nodes.pop(name, None)
        return self._fold_again({name})

    def follow(self, nodes: Iterable[GpuNode], pods: Iterable[Pod]) -> frozenset[str]:
        """Take the whole in the stead of what is known; only nodes that differ are folded again.

        Returns their names, those of nodes that came or went among them.
        """
        touched: set[str] = set()
        there = {node.name: node for node in nodes}
        known = self._nodes
        touched.update(known.keys() - there.keys())
        touched.update(name for name, node in there.items() if not _same(known.get(name), node))
        self._nodes = there
        seen = {pod.uid: pod for pod in pods}
        for uid in self._pods.keys() - seen.keys():
            touched |= self._unset_pod(uid)
        for uid, pod in seen.items():
            if not _same(self._pods.get(uid), pod):
                touched |= self._set_pod(pod)
        return self._fold_again(touched)

    def _set_pod(self, pod: Pod) -> set[str]:
        touched = self._unset_pod(pod.uid)
        self._pods[pod.uid] = pod
        if pod.node and not pod.finished:
            self._holders.setdefault(pod.node, {})[pod.uid] = pod
            touched.add(pod.node)
        return touched

    def _unset_pod(self, uid: str) -> set[str]:
        """Take a pod from where it was; return its node if it held something there."""
        old = self._pods.pop(uid, None)
        if old is None:
            return set()
        holders = self._holders.get(old.node, {})
        if holders.pop(uid, None) is None:
            return set()
        if not holders:
            del self._holders[old.node]
        return {old.node}

    def _fold_again(self, names: Iterable[str]) -> frozenset[str]:
        folded = set()
        for name in names:
            node = self._nodes.get(name)
            if node is not None and node.is_gpu:
                self._folds[name] = fold_holders(node, self._holders.get(name, {}).values())
                folded.add(name)
            elif self._folds.pop(name, None) is not None:
                folded.add(name)
        return frozenset(folded)


def _same(old: object, new: object) -> bool:
    # Values that did not change are mostly the very same object, which is quick to see.
    return old is new or old == new
