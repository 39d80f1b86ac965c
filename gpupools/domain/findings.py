"""What a rule says about a manifest, and the manifest as rules see it. The rules are in lint.py and serverrules.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from gpupools.domain.gpus import ContainerAsk
from gpupools.domain.manifests import Manifest, selects_mode
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_MEM, TOPOLOGY_GPU, Mode, mode_of_label

ERROR, WARNING = "error", "warning"
GPU_ASKS = (EXCLUSIVE_GPU, GPU_MEM, GPU_CORE, TOPOLOGY_GPU)
API_SERVER, SCHEDULER, NODE, CONSOLE = "api-server", "scheduler", "node", "console"
# Who does not do as it is written -> what comes of it, as a sentence; the first to look at a manifest comes first.
REFUSALS = {
    API_SERVER: "The API server would refuse this manifest.",
    SCHEDULER: "The API server would take this manifest, but ACK's scheduler would leave its pods pending.",
    NODE: "The cluster would take this manifest, but on the node its pods would not run as their mode needs it.",
    CONSOLE: "The console does not send this manifest: the cluster would not do what it says.",
}


def refusal(findings: Iterable[Finding]) -> str:
    """Say who is the first not to do as a manifest is written; empty when nobody refuses it."""
    named = {each.refused_by for each in findings}
    return next((sentence for who, sentence in REFUSALS.items() if who in named), "")


class Finding(msgspec.Struct, frozen=True):
    """One thing about a manifest: ``severity`` error or warning, ``path`` inside the YAML, what to do instead.

    ``refused_by`` says of an error who does not do as it is written: see ``REFUSALS``. A warning has none.
    """

    code: str
    severity: str
    path: str
    message: str
    fix: str = ""
    refused_by: str = ""


class Subject:
    """The manifest with what the rules ask of it again and again."""

    def __init__(self, manifest: Manifest, modes_present: frozenset[Mode] | None) -> None:
        self.manifest = manifest
        self.modes_present = modes_present
        self.ask = manifest.ask
        self.path = manifest.pod_path
        self.selected = selects_mode(manifest.ask)
        self.mode = mode_of_label(self.selected) if self.selected is not None else None

    def containers(self) -> Iterator[tuple[str, ContainerAsk, dict[str, Any]]]:
        """Yield each main container: where it stands, what it asks for, and how it was written."""
        raw = self.manifest.pod["spec"]["containers"]
        for position, container in enumerate(self.ask.containers):
            yield f"{self.path}spec.containers[{position}]", container, raw[position]

    def total(self, resource: str) -> int:
        """Return what all main containers ask of a resource together."""
        return sum(container.limits.get(resource, 0) for container in self.ask.containers)

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the GPU resources that the pod asks for."""
        return tuple(name for name in GPU_ASKS if self.total(name))


Rule = Callable[[Subject], Iterable[Finding]]
