"""How large a memory unit of a shared card is: nothing on a node says it, so it is told from the card's size."""

from __future__ import annotations

import math
from functools import lru_cache

from gpupools.domain.gpus import GpuNode
from gpupools.domain.modes import GPU_MEM

UNIT_SIZES_MIB = (1024, 128, 1)  # ACK's unit of gpu-mem, its alternative, and the open-source plugin's MiB


def unit_mib(node: GpuNode) -> int | None:
    """Return the size of a memory unit: the card's label divided by its units, snapped to the sizes that exist.

    A card's units are rounded down and its label leaves reserved memory out, so the quotient is never exact.
    None when the label is missing, or the quotient is far from all sizes.
    """
    cards, card_mib = node.shared_cards, node.card_memory_mib
    units = node.per_card(GPU_MEM) if cards else 0
    if not card_mib or not units:
        return None
    return _nearest_unit(card_mib, units)


@lru_cache(maxsize=256)
def _nearest_unit(card_mib: int, units: int) -> int | None:
    quotient = card_mib / units
    nearest = min(UNIT_SIZES_MIB, key=lambda size: abs(math.log(quotient / size)))
    return nearest if nearest / 2 < quotient < nearest * 2 else None
