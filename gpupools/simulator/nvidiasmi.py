"""The nvidia-smi command inside a container: its table, its list and its queries, over the cards that the pod has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpupools.simulator.machines import CUDA_VERSION, DRIVER_VERSION


@dataclass(frozen=True, slots=True)
class VisibleCard:
    """A card as a container sees it. ``memory_mib`` is what it may use, less than the card's where that is enforced."""

    index: int  # on the node; inside the container cards are numbered from 0
    uuid: str
    bus_id: str
    model: str  # as the card model label has it
    memory_mib: int
    used_mib: int = 0

    @property
    def name(self) -> str:
        """The driver's name of the card: ``Tesla V100-SXM2-16GB``."""
        return self.model.replace("-", " ", 1)

    @property
    def power_limit_watts(self) -> int:
        """What the board may draw."""
        for part, watts in (("A100", 400), ("V100", 300), ("A10", 150), ("L20", 275), ("T4", 70)):
            if part in self.model:
                return watts
        return 250


_NO_DEVICES = "No devices were found"
_RULE = "+-----------------------------------------+------------------------+----------------------+"
_LINE = "+-----------------------------------------------------------------------------------------+"


def run(arguments: Sequence[str], cards: Sequence[VisibleCard], now: datetime) -> tuple[list[str], int]:
    """Return what nvidia-smi prints and its exit code: no card is code 6, an unknown option 1."""
    wanted = list(enumerate(cards))
    query = fmt = ""
    listing = False
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        name, _, value = option.partition("=")
        if name in ("-i", "--id"):
            value = value or (rest.pop(0) if rest else "")
            wanted = [(number, card) for number, card in wanted if value in (str(number), card.uuid, card.bus_id)]
        elif name in ("-L", "--list-gpus"):
            listing = True
        elif name == "--query-gpu":
            query = value
        elif name == "--format":
            fmt = value
        elif name not in ("-q", "--query"):
            return [f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help: {option}"], 1
    if not wanted:
        return [_NO_DEVICES], 6
    if listing:
        return [f"GPU {number}: {card.name} (UUID: {card.uuid})" for number, card in wanted], 0
    if query:
        return _answers(query.split(","), fmt.split(","), wanted, now)
    return _table(wanted, now), 0


def _answers(
    fields: list[str], fmt: list[str], cards: list[tuple[int, VisibleCard]], now: datetime
) -> tuple[list[str], int]:
    units = "nounits" not in fmt
    lines = []
    if "noheader" not in fmt:
        heads = [f"{field} [MiB]" if units and field.startswith("memory.") else field for field in fields]
        lines.append(", ".join(heads))
    for number, card in cards:
        known = {
            "index": str(number),
            "name": card.name,
            "gpu_name": card.name,
            "uuid": card.uuid,
            "gpu_uuid": card.uuid,
            "pci.bus_id": card.bus_id,
            "driver_version": DRIVER_VERSION,
            "count": str(len(cards)),
            "timestamp": now.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
            "temperature.gpu": "34",
            "utilization.gpu": "0 %" if units else "0",
            **{
                f"memory.{which}": f"{mib} MiB" if units else str(mib)
                for which, mib in (
                    ("total", card.memory_mib),
                    ("used", card.used_mib),
                    ("free", card.memory_mib - card.used_mib),
                )
            },
        }
        for field in fields:
            if field.strip() not in known:
                return [f'Field "{field}" is not a valid field to query.'], 2
        lines.append(", ".join(known[field.strip()] for field in fields))
    return lines, 0


def _table(cards: list[tuple[int, VisibleCard]], now: datetime) -> list[str]:
    lines = [
        now.strftime("%a %b %e %H:%M:%S %Y").ljust(31),
        _LINE,
        f"| NVIDIA-SMI {DRIVER_VERSION:<22} Driver Version: {DRIVER_VERSION:<14} CUDA Version: {CUDA_VERSION:<8} |",
        _RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for number, card in cards:
        idle_watts = 20 + card.power_limit_watts // 12
        lines += [
            f"| {number:>3}  {card.name:<28}   On  |   {card.bus_id} Off |                    0 |",
            f"| N/A   {31 + card.index:>2}C    P0{idle_watts:>15}W / {card.power_limit_watts:>4}W "
            f"| {card.used_mib:>7}MiB / {card.memory_mib:>6}MiB |      0%      Default |",
            "|                                         |                        |                  N/A |",
            _RULE,
        ]
    return [
        *lines,
        "",
        _LINE,
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
        "|  No running processes found                                                             |",
        _LINE,
    ]
