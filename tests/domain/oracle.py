"""A slow second opinion on shared placement, written from the rules alone: every card set is tried.

It must import nothing of the product, or it would agree for the wrong reason. Nodes are plain dicts: name, policy,
tainted, resources (names), cards (per card one pair of total and held for each of the resources).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import floor


def score(node, cards, each):
    """Mean over resources of: 30 points for the mean fill (or emptiness) after the pod, 70 over the cards squared."""
    points = []
    for position, amount in enumerate(each):
        fills = [Fraction(node["cards"][c][position][1] + amount, node["cards"][c][position][0]) for c in cards]
        values = [1 - fill if node["policy"] == "spread" else fill for fill in fills]
        points.append(30 * sum(values) / len(values) + Fraction(70, len(cards) ** 2))
    return sum(points) / len(points)


def refusals(node, asked):
    """The reasons of kube-scheduler's own filters: (reason, unresolvable)."""
    if node["tainted"]:
        return [("node(s) had untolerated taint(s)", True)]
    found = []
    for name, amount in asked.items():
        pairs = [card[node["resources"].index(name)] for card in node["cards"]] if name in node["resources"] else []
        total, held = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        if amount > total - held:
            found.append((f"Insufficient {name}", amount > total))
    return found


def place(nodes, asked, count):
    """Return (chosen node, its best card sets, nodes that tie, reasons by node). ``asked``: amount by resource."""
    each = [amount // count for amount in asked.values()]
    best, reasons = {}, {}
    for node in nodes:
        if refused := refusals(node, asked):
            reasons[node["name"]] = refused
        elif list(asked) != node["resources"]:
            reasons[node["name"]] = [("node(s) owns gpu resources are not matched that pod requests", True)]
        else:
            able = [
                index
                for index, card in enumerate(node["cards"])
                if all(total - held >= amount for (total, held), amount in zip(card, each, strict=True))
            ]
            scored = [(score(node, cards, each), cards) for cards in combinations(able, count)]
            if not scored:
                reasons[node["name"]] = [("node(s) didn't have enough device resources to allocate", False)]
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
    words = [reason for refused in reasons.values() for reason, _ in refused]
    first = ", ".join(sorted(f"{words.count(word)} {word}" for word in set(words)))
    hopeless = sum(any(unresolvable for _, unresolvable in refused) for refused in reasons.values())
    kinds = [
        (count_of_nodes - hopeless, "No preemption victims found for incoming pod"),
        (hopeless, "Preemption is not helpful for scheduling"),
    ]
    second = ", ".join(sorted(f"{number} {words}" for number, words in kinds if number))
    head = f"0/{count_of_nodes} nodes are available: "
    return f"{head}{first}. no new claims to deallocate, preemption: {head}{second}."
