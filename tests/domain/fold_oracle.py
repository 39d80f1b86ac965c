"""A slow second opinion on the fold, written from the rules alone. It must import nothing of the product.

Nodes and pods are plain dicts. A node: allocatable, capacity, sick (indexes). A pod: namespace, name, uid, limits (one
dict per container), init (the same), overhead, terminating, shares and cores (per container {card: amount}, None for
no annotation, "?" for an unreadable one), was (units of every card when it was bound), old (V1 index and units),
group (topology cards).
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"


def summed(per_container):
    total = {}
    for shares in per_container:
        for card, amount in shares.items():
            total[card] = total.get(card, 0) + amount
    return total


def needs(pod, resource):
    """kube-scheduler's request: the larger of all containers together and each init container, plus overhead."""
    alone = max((limits.get(resource, 0) for limits in pod["init"]), default=0)
    together = sum(limits.get(resource, 0) for limits in pod["limits"])
    return max(together, alone) + pod["overhead"].get(resource, 0)


def claim(pod, asked):
    """(units by card, per cent by card, problem) of a pod's annotations."""
    shares, problem = pod["shares"], pod["shares"] == "?"
    if shares not in (None, "?") and any(summed(shares).values()):
        if pod["cores"] == "?":
            return summed(shares), {}, True
        return summed(shares), summed(pod["cores"] or []), False
    if pod["old"] is not None:
        index, units = pod["old"]
        return {index: asked if units is None else units}, {}, False
    return {}, {}, problem


def size(node, resource, given):
    """(units of a card, cards that are out): what is missing of capacity are the units of whole cards, or nothing."""
    count, have, had = (node[part].get(name, 0) for part, name in (
        ("allocatable", COUNT), ("allocatable", resource), ("capacity", resource)
    ))  # fmt: skip
    if count and 0 < have < had and node["capacity"].get(COUNT) == count and had % count == 0:
        each = had // count
        if (had - have) % each == 0:
            return each, (had - have) // each
    return given, 0


def fold(node, pods):
    """Everything that a fold says of a node, but for its holders' names: those are pairs of name and amounts."""
    total = node["allocatable"]
    shared = total.get(MEM, 0) > 0
    topology = not shared and total.get(TOPOLOGY, 0) > 0
    exclusive = not shared and not topology and total.get(WHOLE, 0) > 0
    count = (
        total.get(COUNT, 0) if shared else max(total[TOPOLOGY], node["capacity"].get(TOPOLOGY, 0)) if topology else 0
    )
    given = total.get(MEM, 0) // count if shared and count else 0
    given_core = total.get(CORE, 0) // count if shared and count else 0
    units, out = size(node, MEM, given)
    percent, _ = size(node, CORE, given_core)
    cards = [[] for _ in range(count)]  # of (pod, units, per cent, whole cards, ratio)
    kept, lost, codes, strays = [], [], [], {}
    for pod in sorted(pods, key=lambda pod: (pod["namespace"], pod["name"], pod["uid"])):
        name = pod["name"]
        asked = sum(limits.get(MEM, 0) for limits in pod["limits"])
        core = sum(limits.get(CORE, 0) for limits in pod["limits"])
        if asked:
            by_card, cores, problem = claim(pod, asked)
            codes += ["unreadable-allocation"] if problem else []
            held = sum(by_card.values()) if by_card else asked
            # What the cards had is written beside the current annotation only.
            current = pod["shares"] not in (None, "?") and any(summed(pod["shares"]).values())
            if not shared:
                holding = (name, held, sum(cores.values()) or core, 0, pod["terminating"])
                kept.append((holding, False))
                lost.append((holding, "former-mode"))
                codes.append("former-mode")
            elif not by_card:
                holding = (name, asked, core, 0, pod["terminating"])
                kept.append((holding, True))
                lost.append((holding, "pending"))
            else:
                codes += ["limit-differs"] if held != asked else []
                if core and not cores:
                    cores = dict.fromkeys(by_card, core // len(by_card))
                kept.append(((name, held, sum(cores.values()), 0, pod["terminating"]), True))
                changed = False
                for card in sorted(by_card.keys() | cores.keys()):
                    amount = by_card.get(card, 0)
                    if card < count:
                        was = (pod["was"] if current else 0) or given
                        changed = changed or was not in (units, given)
                        ratio = Fraction(given, was) if was else Fraction(1)
                        cards[card].append((pod, amount, cores.get(card, 0), 0, ratio))
                    else:
                        strays[card] = strays.get(card, 0) + amount
                away = [card for card in by_card.keys() | cores.keys() if card >= count]
                if away:
                    gone = sum(by_card.get(card, 0) for card in away), sum(cores.get(card, 0) for card in away)
                    lost.append(((name, *gone, 0, pod["terminating"]), "unknown-card"))
                    codes.append("unknown-card")
                codes += ["unit-changed"] if changed else []
        elif core:
            holding = (name, 0, core, 0, pod["terminating"])
            kept.append((holding, total.get(CORE, 0) > 0))
            lost.append((holding, "pending" if total.get(CORE, 0) else "former-mode"))
        if number := needs(pod, TOPOLOGY):
            if not topology:
                kept.append(((name, 0, 0, number, pod["terminating"]), False))
                lost.append(((name, 0, 0, number, pod["terminating"]), "former-mode"))
                codes.append("former-mode")
            else:
                group = sorted(set(pod["group"] or ()))
                kept.append(((name, 0, 0, max(number, len(group)), pod["terminating"]), True))
                for card in group:
                    if card < count:
                        cards[card].append((pod, 0, 0, 1, Fraction(1)))
                if away := [card for card in group if card >= count]:
                    lost.append(((name, 0, 0, len(away), pod["terminating"]), "unknown-card"))
                    codes.append("unknown-card")
                if number > len(group):
                    lost.append(((name, 0, 0, number - len(group), pod["terminating"]), "pending"))
        if number := needs(pod, WHOLE):
            kept.append(((name, 0, 0, number, pod["terminating"]), exclusive))
            if not exclusive:
                lost.append(((name, 0, 0, number, pod["terminating"]), "former-mode"))
                codes.append("former-mode")
    counted = [holding for holding, counts in kept if counts]
    used = sum(holding[3] for holding in counted)
    if shared and not count:
        codes.append("no-cards")
    codes += ["cards-out"] if out > len(node["sick"]) else []
    for card in cards:
        over = sum(h[1] for h in card) > units or (percent and sum(h[2] for h in card) > percent)
        codes += ["over-allocated"] if over or sum(h[3] for h in card) > 1 else []
    whole = total.get(WHOLE, 0) or total.get(TOPOLOGY, 0)
    codes += ["over-allocated"] if not shared and used > whole else []
    going = [card for card in cards if card and all(h[0]["terminating"] for h in card)]
    return {
        "gpus": [
            {
                "index": index,
                "memory_units": units,
                "core_percent": percent,
                "memory_units_used": sum(h[1] for h in card),
                "memory_units_releasing": sum(h[1] for h in card if h[0]["terminating"]),
                "memory_units_held": ceil(sum((h[1] * h[4] for h in card if not h[0]["terminating"]), Fraction(0))),
                "core_percent_used": sum(h[2] for h in card),
                "core_percent_held": sum(h[2] for h in card if not h[0]["terminating"]),
                "cards_used": int(bool(card)) if shared else sum(h[3] for h in card),
                "memory_units_withheld": units - given,
                "core_percent_withheld": percent - given_core,
                "healthy": index not in node["sick"],
                "holdings": [(h[0]["name"], *h[1:4], h[0]["terminating"]) for h in card],
            }
            for index, card in enumerate(cards)
        ],
        "cards": count if shared else whole,
        "cards_used": sum(1 for card in cards if card) if shared else used,
        "cards_releasing": len(going) if shared else sum(h[3] for h in counted if h[4]),
        "memory_units": total.get(MEM, 0),
        "memory_units_used": sum(h[1] for h in counted),
        "memory_units_releasing": sum(h[1] for h in counted if h[4]),
        "memory_units_pending": sum(h[1] for h, why in lost if why == "pending"),
        "memory_units_orphan": sum(h[1] for h, why in lost if why != "pending"),
        "core_percent": total.get(CORE, 0),
        "core_percent_used": sum(h[2] for h in counted),
        "holdings": [holding for holding, _ in kept],
        "unplaced": lost,
        "strays": strays,
        "codes": sorted(codes),
    }
