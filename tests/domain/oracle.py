"""A slow second opinion on shared placement, written from the rules alone: every card set is tried.

It must import nothing of the product, or it would agree for the wrong reason. Nodes are plain dicts: name, policy,
cards (list of (total, held)), shared, tainted.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import floor


def score(node, cards, each):
    """30 points for the mean fill (or emptiness) of the cards after the pod, 70 over the square of their number."""
    fills = [Fraction(node["cards"][card][1] + each, node["cards"][card][0]) for card in cards]
    values = [1 - fill if node["policy"] == "spread" else fill for fill in fills]
    return 30 * sum(values) / len(values) + Fraction(70, len(cards) ** 2)


def place(nodes, asked, count):
    """Return (chosen node, its best card sets, nodes that tie, reasons by node)."""
    each = asked // count
    best, reasons = {}, {}
    for node in nodes:
        total = sum(t for t, _ in node["cards"]) if node["shared"] else 0
        held = sum(h for _, h in node["cards"])
        if node["tainted"]:
            reasons[node["name"]] = ("node(s) had untolerated taint(s)", True)
        elif asked > total - held:
            reasons[node["name"]] = ("Insufficient aliyun.com/gpu-mem", asked > total)
        else:
            open_cards = [i for i, (t, h) in enumerate(node["cards"]) if t - h >= each]
            scored = [(score(node, cards, each), cards) for cards in combinations(open_cards, count)]
            if not scored:
                reasons[node["name"]] = ("node(s) didn't have enough device resources to allocate", False)
            else:
                top = max(points for points, _ in scored)
                best[node["name"]] = (top, [cards for points, cards in scored if points == top])
    if not best:
        return None, [], [], reasons
    highest = max(floor(points) for points, _ in best.values())
    tied = sorted(name for name, (points, _) in best.items() if floor(points) == highest)
    return tied[0], best[tied[0]][1], tied, reasons


def text(count_of_nodes, reasons):
    """The whole FailedScheduling text."""
    words = [reason for reason, _ in reasons.values()]
    first = ", ".join(sorted(f"{words.count(word)} {word}" for word in set(words)))
    hopeless = sum(unresolvable for _, unresolvable in reasons.values())
    kinds = [
        (count_of_nodes - hopeless, "No preemption victims found for incoming pod"),
        (hopeless, "Preemption is not helpful for scheduling"),
    ]
    second = ", ".join(sorted(f"{number} {words}" for number, words in kinds if number))
    head = f"0/{count_of_nodes} nodes are available: "
    return f"{head}{first}. no new claims to deallocate, preemption: {head}{second}."
