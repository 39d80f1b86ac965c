"""Edits of a manifest, field by field: what it takes to turn one ask into another, and a manifest with them made.

Whoever makes all edits of a list by hand gets what was tried. It knows no node and judges nothing.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpupools.domain import objects
from gpupools.domain.gpus import AffinityTerm, Ask, ContainerAsk, Pod, Toleration
from gpupools.domain.manifests import Manifest
from gpupools.domain.quantities import format_quantity
from gpupools.domain.validation import is_extended

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = f"spec.affinity.nodeAffinity.{REQUIRED}"
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_PLAIN = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*")
# Words that YAML takes for something else than text where they stand without quotes.
_NO_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class Edit(msgspec.Struct, frozen=True):
    """One field to change. ``found`` and ``value`` are as they stand in YAML; empty: nothing stands there.

    A field of a list beyond its end adds to it. Resources and labels stand in brackets: they have dots of their own.
    """

    field: str
    found: str = ""
    value: str = ""


def edits_between(before: Ask, after: Ask, pod: Mapping[str, Any] | None = None) -> tuple[Edit, ...]:
    """Return the edits of a pod's manifest that make its ask another; fields are below the pod.

    ``pod`` is the manifest's pod as written, where there is one: requests that it states are edited with its limits.
    """
    return tuple(
        edit
        for edit in (
            *_of_containers(before, after, pod),
            *_of_map("metadata.labels", before.labels, after.labels),
            *_of_map("spec.nodeSelector", before.node_selector, after.node_selector),
            *_of_terms(before.required_terms, after.required_terms),
            *_of_tolerations(before.tolerations, after.tolerations, pod),
            *_of_host_ipc(before, after),
        )
        if edit.found != edit.value
    )


def _of_containers(before: Ask, after: Ask, pod: Mapping[str, Any] | None) -> Iterator[Edit]:
    for index, (old, new) in enumerate(zip(before.containers, after.containers, strict=True)):
        if old == new:
            continue
        path = f"spec.containers[{index}].resources"
        written = _written(pod, index)
        for name in sorted({*old.limits, *new.limits}):
            yield _amount(f"{path}.limits[{name}]", name, old.limits, new.limits)
        for name in sorted({*old.requests, *new.requests}):
            # A request of what is never overcommitted follows from its limit, unless it is written down.
            if name in written or not is_extended(name):
                yield _amount(f"{path}.requests[{name}]", name, old.requests, new.requests)


def _written(pod: Mapping[str, Any] | None, index: int) -> Mapping[str, Any]:
    if pod is None:
        return {}
    resources = pod["spec"]["containers"][index].get("resources") or {}
    return resources.get("requests") or {}


def _amount(field: str, name: str, old: Mapping[str, int], new: Mapping[str, int]) -> Edit:
    return Edit(
        field,
        format_quantity(name, old[name]) if name in old else "",
        format_quantity(name, new[name]) if name in new else "",
    )


def _of_map(path: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Edit]:
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old != new:
            yield Edit(f"{path}[{key}]", in_yaml(old), in_yaml(new))


def _of_terms(before: Sequence[AffinityTerm] | None, after: Sequence[AffinityTerm] | None) -> Iterator[Edit]:
    if before == after or before is None:
        return
    if after is None:
        yield Edit(AFFINITY, f"{len(before)} term{'' if len(before) == 1 else 's'}")
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        for place, (one, other) in enumerate(zip(old.expressions, new.expressions, strict=True)):
            field = f"{AFFINITY}.nodeSelectorTerms[{index}].matchExpressions[{place}].values"
            if one != other:
                yield Edit(field, in_yaml(list(one.values)), in_yaml(list(other.values)))


def _of_tolerations(
    before: Sequence[Toleration], after: Sequence[Toleration], pod: Mapping[str, Any] | None
) -> Iterator[Edit]:
    there = len((pod["spec"].get("tolerations") or ()) if pod is not None else before)
    for index, more in enumerate(after[len(before) :]):
        fields = {"key": more.key, "operator": more.operator, "value": more.value, "effect": more.effect}
        yield Edit(
            f"spec.tolerations[{there + index}]", "", in_yaml({key: value for key, value in fields.items() if value})
        )


def _of_host_ipc(before: Ask, after: Ask) -> Iterator[Edit]:
    if before.host_ipc != after.host_ipc:
        yield Edit("spec.hostIPC", "true" if before.host_ipc else "", "true" if after.host_ipc else "")


def in_yaml(value: str | list[str] | dict[str, str] | None) -> str:
    """Write a value as it can stand in YAML: plain where that is a text there too, in quotes otherwise."""
    if value is None:
        return ""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


# -- Made


def edited(manifest: Manifest, edits: Iterable[Edit]) -> Manifest:
    """Return a manifest with edits made, whose fields are below its pod. Raises Invalid where that cannot be read."""
    raw = copy.deepcopy(manifest.raw)
    changed = msgspec.structs.replace(manifest, raw=raw)
    for edit in edits:
        _make(changed.pod, edit)
    metadata = {**(changed.pod.get("metadata") or {}), "namespace": manifest.namespace, "name": manifest.name}
    pod = objects.convert("Pod", {"metadata": metadata, "spec": changed.pod["spec"]})
    assert isinstance(pod, Pod)  # noqa: S101  # convert returns by kind
    return msgspec.structs.replace(changed, ask=pod.ask)


def _make(pod: dict[str, Any], edit: Edit) -> None:
    steps = [inside or name for inside, name in _STEP.findall(edit.field)]
    here: Any = pod
    for step, following in zip(steps, steps[1:], strict=False):
        if isinstance(here, list):
            here = here[int(step)]
            continue
        if here.get(step) is None:
            here[step] = [] if following.isdigit() else {}
        here = here[step]
    last = steps[-1]
    if not edit.value:
        here.pop(last, None)
    elif isinstance(here, list):
        here.append(_value(edit.value))
    else:
        here[last] = _value(edit.value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def written_ask(ask: Ask) -> Manifest:
    """Return a pod that asks for this as a manifest, as far as rules look at one: for a pod that nobody wrote here."""
    spec = {"containers": [_container(each) for each in ask.containers], "hostIPC": ask.host_ipc}
    raw = {"metadata": {"labels": ask.labels}, "spec": spec}
    return Manifest("Pod", ask.namespace, ask.name, raw, ask, 1, 1, "")


def _container(ask: ContainerAsk) -> dict[str, Any]:
    limits = {name: format_quantity(name, amount) for name, amount in ask.limits.items()}
    return {"name": ask.name, "resources": {"limits": limits}}
