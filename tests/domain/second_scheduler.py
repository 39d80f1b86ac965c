"""A second scheduler, written from the rules alone and slow: raw objects in, where a pod lands or the text out.

It must import nothing of the product, or it would agree for the wrong reason. Only well-formed objects are for it.
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from math import ceil

MEM, COUNT, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "aliyun.com/gpu-core.percentage"
WHOLE, TOPOLOGY = "nvidia.com/gpu", "aliyun.com/gpu"
SHARES = "scheduler.framework.gpushare.allocation"
SHARES_OF_CORE = "gpushare.alibabacloud.com/core-percentage"
UNITS_THEN = "gpushare.alibabacloud.com/device-resource"
CARDS = "gputopology.alibabacloud.com/allocation"
FACTORS = {"m": Fraction(1, 1000), "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}


def amount(name, text):
    for suffix, factor in FACTORS.items():
        if str(text).endswith(suffix):
            value = Fraction(text.removesuffix(suffix)) * factor
            break
    else:
        value = Fraction(text)
    return ceil(value * 1000 if name == "cpu" else value)


def merged(how, one, other):
    return {name: how((one.get(name, 0), other.get(name, 0))) for name in {*one, *other}}


def requests(container):
    resources = container.get("resources", {})
    written = resources.get("limits", {}) | resources.get("requests", {})
    return {name: amount(name, text) for name, text in written.items()}


def needs(spec):
    """What the node must have: all that runs at once, or the hungriest moment of the start, and what comes on top."""
    running, beside, peak = {}, {}, {}
    for container in spec["containers"]:
        running = merged(sum, running, requests(container))
    for container in spec.get("initContainers", ()):
        alone = merged(sum, beside, requests(container))
        if container.get("restartPolicy") == "Always":
            running, beside = merged(sum, running, requests(container)), alone
        peak = merged(max, peak, alone)
    total = merged(max, running, peak)
    total |= {name: amount(name, text) for name, text in spec.get("resources", {}).get("requests", {}).items()}
    return merged(sum, total, {name: amount(name, text) for name, text in spec.get("overhead", {}).items()})


def limit(spec, name):
    return sum(int(container.get("resources", {}).get("limits", {}).get(name, 0)) for container in spec["containers"])


def ports(spec):
    running = [*spec["containers"], *(c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always")]
    asked = [port for container in running for port in container.get("ports", ())]
    return [(port.get("hostIP") or "0.0.0.0", port["protocol"], port["hostPort"]) for port in asked]  # noqa: S104


def clash(one, other):
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))  # noqa: S104


def tolerates(toleration, taint):
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key", taint["key"]) == taint["key"]
    return (toleration["key"], toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def intolerable(spec, node, effects):
    return [
        taint
        for taint in node["spec"]["taints"]
        if taint["effect"] in effects and not any(tolerates(each, taint) for each in spec.get("tolerations", ()))
    ]


def holds(rule, found):
    values = rule.get("values", [])
    if rule["operator"] in ("Exists", "DoesNotExist"):
        return (found is not None) is (rule["operator"] == "Exists")
    if rule["operator"] in ("In", "NotIn"):
        return (found in values) is (rule["operator"] == "In")
    try:
        return int(found) > int(values[0]) if rule["operator"] == "Gt" else int(found) < int(values[0])
    except (TypeError, ValueError):
        return False


def matches(term, node):
    rules, fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    by_label = all(holds(rule, node["metadata"]["labels"].get(rule["key"])) for rule in rules)
    return bool(rules or fields) and by_label and all(holds(rule, node["metadata"]["name"]) for rule in fields)


def affinity(spec):
    rules = spec.get("affinity", {}).get("nodeAffinity", {})
    required = rules.get("requiredDuringSchedulingIgnoredDuringExecution")
    return (
        None if required is None else required["nodeSelectorTerms"],
        rules.get("preferredDuringSchedulingIgnoredDuringExecution", []),
    )


def named(terms):
    """The nodes that terms name, None when some term leaves the name open."""
    names = set()
    for term in terms or ():
        each = [set(rule["values"]) for rule in term.get("matchFields", ()) if rule["operator"] == "In"]
        if not each:
            return None
        names |= set.intersection(*each)
    return names if terms else None


def several(pod):
    return max(1, int(pod["metadata"]["labels"].get(COUNT, 1)))


def before_any_node(pod):
    spec = pod["spec"]
    names = named(affinity(spec)[0])
    if names is not None and not names:
        return "pod affinity terms conflict"
    asked = [
        {name: int(limits[name]) for name in (MEM, CORE) if name in limits}
        for limits in (container["resources"].get("limits", {}) for container in spec["containers"])
    ]
    asked = [each for each in asked if each]
    if any(each.keys() != asked[0].keys() for each in asked):
        return "The requested gpu resource types should be consistent for all containers"
    count = several(pod)
    for name, units in ((name, units) for each in asked for name, units in each.items()):
        if units % count:
            return f"invalid replica for resource {name},because {units} / {count} = {units / count:.1f}"
    return ""


def cards_of(node, pods):
    """Per card: units, units held, per cent held, pods; as ACK's ledger has it, which forgets pods that are ending."""
    resources = node["status"]["allocatable"]
    count = int(resources.get(COUNT, 0))
    units = int(resources[MEM]) // count
    held, core, crowd = [Fraction(0)] * count, [0] * count, [0] * count
    for pod in pods:
        notes = pod["metadata"]["annotations"]
        if "deletionTimestamp" in pod["metadata"] or SHARES not in notes:
            continue
        then = json.loads(notes.get(UNITS_THEN, "{}"))
        shares = [(int(c), n) for each in json.loads(notes[SHARES]).values() for c, n in each.items() if int(c) < count]
        for card, share in shares:
            held[card] += Fraction(share * units, then.get(str(card), units))
        for card in {card for card, _ in shares}:
            crowd[card] += 1
        for each in json.loads(notes.get(SHARES_OF_CORE, "{}")).values():
            for card, share in each.items():
                if int(card) < count:
                    core[int(card)] += share
    return units, [ceil(each) for each in held], core, crowd


def share(pod, node, pods):
    """Return a reason with whether evictions are of no help, or the score with all card sets that have it."""
    spec, labels = pod["spec"], node["metadata"]["labels"]
    count = several(pod)
    each, core = limit(spec, MEM) // count, limit(spec, CORE) // count
    units, held, core_held, crowd = cards_of(node, pods)
    cap = int(labels.get("ack.node.gpu.max-pod", 999))
    free = [card for card in range(len(held)) if crowd[card] < cap]
    if not free:
        return ("The number of pods per gpu device has reached the maximum allowed", False), None
    if bool(core) is not (CORE in node["status"]["allocatable"]):
        return ("node(s) owns gpu resources are not matched that pod requests", True), None
    able = [card for card in free if units - held[card] >= each and (not core or 100 - core_held[card] >= core)]
    spread = labels.get("ack.node.gpu.placement") == "spread"

    def points(cards, total, taken, more):
        fill = sum(Fraction(taken[card] + more, total) for card in cards) / count
        return 30 * (1 - fill if spread else fill) + Fraction(70, count**2)

    scores = {}
    for cards in combinations(able, count):
        score = points(cards, units, held, each)
        scores[cards] = (score + points(cards, 100, core_held, core)) / 2 if core else score
    if not scores:
        return ("node(s) didn't have enough device resources to allocate", False), None
    best = max(scores.values())
    return None, (int(best), [cards for cards, score in scores.items() if score == best])


def whole(pod, node, pods):
    """Score and card sets for everything but shares."""
    spec, resources = pod["spec"], node["status"]["allocatable"]
    taken = {}
    for each in pods:
        taken = merged(sum, taken, needs(each["spec"]))
    if asked := limit(spec, TOPOLOGY):
        notes = [each["metadata"]["annotations"] for each in pods if "deletionTimestamp" not in each["metadata"]]
        lists = [json.loads(note[CARDS])["allocatedGPUs"].values() for note in notes if CARDS in note]
        busy = {int(card) for each in lists for cards in each for card in cards}
        free = [card for card in range(int(resources[TOPOLOGY])) if card not in busy]
        if len(free) < asked:
            return ("not enough gpus with topology on the node", False), None
        return None, (100 * asked // len(free), [tuple(free[:asked])])
    wanted = merged(sum, taken, needs(spec))
    if needs(spec).get(WHOLE):
        return None, (100 * wanted[WHOLE] // int(resources[WHOLE]), [()])
    left = []
    for name in ("cpu", "memory"):
        total = amount(name, resources[name])
        left.append(max(0, 100 * (total - wanted.get(name, 0)) // total))
    return None, (sum(left) // 2, [()])


def judged(pod, node, pods):
    """Return the reasons against a node, whether evictions are of no help, and else its score and card sets."""
    spec, name, labels = pod["spec"], node["metadata"]["name"], node["metadata"]["labels"]
    terms, _ = affinity(spec)
    names = named(terms)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if names is not None and name not in names:
        return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"], True, None
    if node["spec"]["unschedulable"] and intolerable(spec, {"spec": {"taints": [cordon]}}, ("NoSchedule",)):
        return ["node(s) were unschedulable"], True, None
    if intolerable(spec, node, ("NoSchedule", "NoExecute")):
        return ["node(s) had untolerated taint(s)"], True, None
    selected = all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    if not selected or (terms is not None and not any(matches(term, node) for term in terms)):
        return ["node(s) didn't match Pod's node affinity/selector"], True, None
    if any(clash(one, other) for one in ports(spec) for each in pods for other in ports(each["spec"])):
        return ["node(s) didn't have free ports for the requested pod ports"], False, None
    resources = node["status"]["allocatable"]
    reasons, hopeless = ["Too many pods"] if len(pods) >= int(resources["pods"]) else [], False
    for resource, asked in needs(spec).items():
        total = amount(resource, resources.get(resource, 0))
        if asked > 0 and asked > total - sum(needs(each["spec"]).get(resource, 0) for each in pods):
            reasons.append(f"Insufficient {resource}")
            hopeless = hopeless or asked > total
    if reasons:
        return reasons, hopeless, None
    no, yes = (share if limit(spec, MEM) else whole)(pod, node, pods)
    return ([no[0]], no[1], None) if no else ([], False, yes)


def text(nodes, reasons, hopeless):
    def counted(phrases):
        return ", ".join(sorted(f"{count} {phrase}" for phrase, count in phrases.items() if count))

    none = f"0/{nodes} nodes are available: "
    victims = {
        "No preemption victims found for incoming pod": nodes - hopeless,
        "Preemption is not helpful for scheduling": hopeless,
    }
    said = reasons if isinstance(reasons, str) else counted(reasons)
    return f"{none}{said}. no new claims to deallocate, preemption: {none}{counted(victims)}."


def schedule(pod, nodes, pods):
    """Return the best nodes by name with the card sets of the first one, or the text of the failure."""
    if not nodes:
        return None, None, "no nodes available to schedule pods"
    if reason := before_any_node(pod):
        return None, None, text(len(nodes), reason, len(nodes))
    able, against, hopeless = {}, {}, 0
    for node in nodes:
        name = node["metadata"]["name"]
        there = [
            each
            for each in pods
            if each["spec"].get("nodeName") == name and each["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        reasons, useless, yes = judged(pod, node, there)
        hopeless += useless
        for reason in reasons:
            against[reason] = against.get(reason, 0) + 1
        if yes:
            able[name] = (node, *yes)
    if not able:
        return None, None, text(len(nodes), against, hopeless)
    _, preferred = affinity(pod["spec"])
    liked = {n: sum(p["weight"] for p in preferred if matches(p["preference"], node)) for n, (node, *_) in able.items()}
    soft = {n: len(intolerable(pod["spec"], node, ("PreferNoSchedule",))) for n, (node, *_) in able.items()}
    points = {
        name: score
        + 2 * (100 * liked[name] // max(1, *liked.values()))
        - 3 * (100 * soft[name] // max(1, *soft.values()))
        for name, (_, score, _) in able.items()
    }
    best = sorted(name for name, each in points.items() if each == max(points.values()))
    return best, able[best[0]][2], ""
