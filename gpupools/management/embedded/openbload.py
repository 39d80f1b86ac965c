"""The pods of the openb trace (Alibaba cluster-trace-gpu-v2023) by what they ask for, about 8,000 in all.

The trace shares cards by thousandths and says nothing of card memory. A share becomes units of gpu-mem of a reference
card of 15 units (16 GiB class): an assumption, stated here once. Cores and memory are rounded to whole ones.
"""

from __future__ import annotations

from typing import Any

REFERENCE_CARD_UNITS = 15

# (pods, cards, thousandths of a card, cores, GiB): below 1000 thousandths a share of one card, else whole cards.
SHAPES = (
    (15, 0, 0, 8, 15), (172, 0, 0, 8, 30), (14, 0, 0, 11, 56), (366, 0, 0, 12, 56), (120, 0, 0, 15, 50),
    (12, 0, 0, 16, 31), (99, 0, 0, 16, 50), (290, 0, 0, 32, 48), (4, 1, 50, 6, 22), (11, 1, 110, 4, 15),
    (16, 1, 110, 4, 22), (1, 1, 140, 1, 2), (54, 1, 160, 4, 15), (20, 1, 160, 6, 22), (24, 1, 220, 4, 15),
    (11, 1, 220, 4, 22), (8, 1, 220, 4, 30), (19, 1, 220, 8, 30), (12, 1, 230, 4, 15), (26, 1, 230, 4, 22),
    (84, 1, 230, 4, 30), (18, 1, 230, 8, 30), (4, 1, 270, 4, 10), (23, 1, 320, 1, 2), (78, 1, 320, 4, 15),
    (124, 1, 320, 4, 22), (43, 1, 320, 4, 30), (74, 1, 320, 8, 30), (47, 1, 370, 4, 10), (51, 1, 460, 6, 6),
    (9, 1, 460, 6, 8), (29, 1, 460, 6, 12), (39, 1, 460, 6, 18), (364, 1, 470, 8, 30), (388, 1, 470, 12, 46),
    (19, 1, 480, 4, 22), (72, 1, 550, 4, 10), (75, 1, 590, 3, 5), (16, 1, 650, 8, 30), (237, 1, 650, 12, 46),
    (1047, 1, 810, 3, 5), (31, 1, 810, 4, 10), (18, 1, 1000, 1, 6), (473, 1, 1000, 3, 5), (15, 1, 1000, 4, 16),
    (104, 1, 1000, 4, 24), (45, 1, 1000, 4, 31), (17, 1, 1000, 7, 29), (106, 1, 1000, 8, 16), (56, 1, 1000, 8, 32),
    (41, 1, 1000, 8, 33), (196, 1, 1000, 10, 41), (16, 1, 1000, 11, 37), (534, 1, 1000, 11, 47),
    (863, 1, 1000, 11, 48), (67, 1, 1000, 11, 76), (46, 1, 1000, 12, 15), (103, 1, 1000, 12, 16),
    (161, 1, 1000, 12, 24), (8, 1, 1000, 12, 32), (169, 1, 1000, 12, 46), (52, 1, 1000, 12, 76),
    (93, 1, 1000, 14, 57), (8, 1, 1000, 15, 72), (38, 1, 1000, 15, 79), (10, 1, 1000, 15, 88),
    (112, 1, 1000, 16, 32), (161, 1, 1000, 16, 57), (33, 1, 1000, 16, 64), (27, 1, 1000, 16, 123),
    (255, 1, 1000, 19, 63), (84, 1, 1000, 24, 91), (16, 2, 1000, 17, 42), (15, 4, 1000, 32, 129),
    (21, 8, 1000, 64, 257), (23, 8, 1000, 88, 320),
)  # fmt: skip
TOTAL = sum(shape[0] for shape in SHAPES)


def order(count: int) -> list[int]:
    """Return the shapes (by position) of the first ``count`` pods, evenly mixed; more than the trace's start over."""
    places = [((nth + 0.5) / shape[0], number) for number, shape in enumerate(SHAPES) for nth in range(shape[0])]
    mixed = [number for _, number in sorted(places)]
    return [mixed[position % TOTAL] for position in range(count)]


def pod(name: str, shape: int) -> dict[str, Any]:
    """Return a pod of a shape that runs until it is deleted."""
    _, cards, thousandths, cores, gib = SHAPES[shape]
    requests = {"cpu": str(cores), "memory": f"{gib}Gi"}
    limits: dict[str, str] = {}
    if cards and thousandths < 1000:
        limits["aliyun.com/gpu-mem"] = str(-(-thousandths * REFERENCE_CARD_UNITS // 1000))
    elif cards:
        limits["nvidia.com/gpu"] = str(cards)
    resources: dict[str, Any] = {"requests": requests, **({"limits": limits} if limits else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "openb"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.local/openb:1",
                    "command": ["sleep", "infinity"],
                    "resources": resources,
                }
            ],
        },
    }
