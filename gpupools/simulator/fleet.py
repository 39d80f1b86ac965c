"""Fleets: what machines and node pools an embedded cluster starts with, read from YAML and checked.

A fleet has node pools (an ACK cluster, whose machines ACK makes) or plain nodes, or both. It makes nothing itself.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from gpupools.simulator.addons import CATALOGUE
from gpupools.simulator.hardware import hardware_of

FLEETS = Path(__file__).parent / "fleets"


class FleetError(Exception):
    """A fleet file that cannot be used; the message says where and why."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of a fleet's parts: a misspelt key is an error, not a default."""


class FleetTaint(Part, frozen=True):
    """A taint of a pool or of plain nodes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class FleetCluster(Part, frozen=True):
    """The cluster's own facts. ``spec`` is ACK's cluster_spec, empty for a cluster that is not ACK's.

    ``memory_unit_mib`` is the size of a unit of gpu-mem: 1024, or ACK's alternative of 128.
    """

    name: str
    region: str
    zones: list[str]
    version: str
    spec: str = ""
    memory_unit_mib: int = 1024


class FleetPool(Part, frozen=True):
    """A node pool that is there from the start; its machines are made when the cluster first runs."""

    name: str
    instance_types: list[str]
    size: int
    default: bool = False
    labels: dict[str, str] = {}
    taints: list[FleetTaint] = []


class FleetNodes(Part, frozen=True):
    """Nodes without a pool: ``count`` machines named ``<prefix>-01`` and so on."""

    prefix: str
    instance_type: str
    count: int
    labels: dict[str, str] = {}
    taints: list[FleetTaint] = []


class Fleet(Part, frozen=True):
    """A whole fleet. ``addon_not_found`` names add-ons that the OpenAPI shall refuse with AddonNotFound."""

    name: str
    cluster: FleetCluster
    addons: list[str] = []
    addon_not_found: list[str] = []
    pools: list[FleetPool] = []
    nodes: list[FleetNodes] = []


def load(name_or_path: str) -> Fleet:
    """Read a built-in fleet by its name, or a fleet file by its path; raise FleetError when it is not usable."""
    path = FLEETS / f"{name_or_path}.yaml"
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(names())
        raise FleetError(f"There is no fleet {name_or_path!r}. Built-in fleets: {known}; or give a file's path.")
    try:
        fleet = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Fleet)
    except yaml.YAMLError as error:
        raise FleetError(f"{path} is not YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise FleetError(f"{path}: {error}") from None
    _check(fleet, path)
    return fleet


def names() -> list[str]:
    """Return the names of the built-in fleets."""
    return sorted(path.stem for path in FLEETS.glob("*.yaml"))


def _check(fleet: Fleet, path: Path) -> None:
    if not fleet.cluster.zones:
        raise FleetError(f"{path}: cluster.zones needs at least one zone.")
    if fleet.cluster.memory_unit_mib not in (1024, 128):
        raise FleetError(f"{path}: cluster.memory_unit_mib is 1024 or 128, not {fleet.cluster.memory_unit_mib}.")
    types = [name for pool in fleet.pools for name in pool.instance_types]
    types += [group.instance_type for group in fleet.nodes]
    for name in types:
        if hardware_of(name) is None:
            raise FleetError(f"{path}: nobody sells the instance type {name!r} here.")
    for name in (*fleet.addons, *fleet.addon_not_found):
        if name not in CATALOGUE:
            raise FleetError(f"{path}: there is no add-on {name!r}; there are {', '.join(CATALOGUE)}.")
    for pool in fleet.pools:
        if not pool.instance_types:
            raise FleetError(f"{path}: the pool {pool.name!r} needs an instance type.")
