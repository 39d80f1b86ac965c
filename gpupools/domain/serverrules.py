"""Rules of Kubernetes' API server over a manifest: what it refuses, drops or fills in by itself. Pure.

What ACK's scheduler makes of one is in lint.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpupools.domain.fieldcheck import unknown_fields
from gpupools.domain.findings import API_SERVER, ERROR, GPU_ASKS, SCHEDULER, WARNING, Finding, Subject
from gpupools.domain.modes import EXCLUSIVE_GPU, GPU_CORE, GPU_COUNT, GPU_MEM, GPU_RESOURCES
from gpupools.domain.quantities import exact_quantity
from gpupools.domain.validation import name_problems

_SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})


def extended_resources_are_whole_and_equal(subject: Subject) -> Iterator[Finding]:
    """The API server's rules for extended resources: whole numbers, limits given, requests equal to limits."""
    for path, _, raw in subject.containers():
        resources = raw.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in (*GPU_ASKS, GPU_COUNT):
            limit, request = limits.get(name), requests.get(name)
            for kind, value in (("limits", limit), ("requests", request)):
                if value is not None and not re.fullmatch(r"[0-9]+", str(value)):
                    yield Finding(
                        "whole-number", ERROR, f"{path}.resources.{kind}[{name}]",
                        f"{name} is {value}: it must be a plain whole number.",
                        _whole_number_fix(name),
                        _refuses_amount(str(value)),
                    )  # fmt: skip
            if request is not None and limit is None:
                yield Finding(
                    "limit-required", ERROR, f"{path}.resources.limits",
                    f"{name} stands under requests only: limit must be set for non overcommitable resources.",
                    "Write it under limits; requests follow by themselves.",
                    API_SERVER,
                )  # fmt: skip
            elif request is not None and str(request) != str(limit):
                yield Finding(
                    "request-equals-limit", ERROR, f"{path}.resources.requests[{name}]",
                    f"The request of {name} is {request}: it must be equal to the limit of {limit}.",
                    "Leave the request out.",
                    API_SERVER,
                )  # fmt: skip


def resources_are_ones_that_containers_ask_for(subject: Subject) -> Iterator[Finding]:
    """The API server refuses names without a domain that it does not know itself, such as plain ``gpu-mem``."""
    for path, container, _ in subject.containers():
        for name in sorted({*container.limits, *container.requests}):
            if any(name_problems(name, path)):
                full = f"aliyun.com/{name}"
                fix = full if full in GPU_RESOURCES else f"a name with a domain, such as {EXCLUSIVE_GPU}"
                where = f"{path}.resources.{'limits' if name in container.limits else 'requests'}[{name}]"
                message = f"{name} is no resource that a container can ask for."
                yield Finding("unknown-resource", ERROR, where, message, f"Write {fix}.", API_SERVER)


def _whole_number_fix(resource: str) -> str:
    if resource == GPU_MEM:
        return "GPU memory is counted in units of 1/N of a card, without a suffix: write 4, not 4Gi or 0.5."
    if resource == GPU_CORE:
        return "Compute is counted in per cent of one card: write 50, not 0.5."
    return f"Cards are counted whole: write 1. For a part of a card ask for {GPU_MEM} on a node that shares its cards."


def the_namespace_is_not_the_clusters_own(subject: Subject) -> Iterator[Finding]:
    """Kubernetes keeps some namespaces for itself; work there lives beside what the cluster runs on."""
    if subject.manifest.namespace in _SYSTEM_NAMESPACES:
        yield Finding(
            "system-namespace", WARNING, "metadata.namespace",
            f"{subject.manifest.namespace} belongs to the cluster itself: scheduler and device plugins run there.",
            "Choose a namespace of your own.",
        )  # fmt: skip


def a_job_restarts_never_or_on_failure(subject: Subject) -> Iterator[Finding]:
    """The API server refuses a Job whose pods always restart."""
    if subject.manifest.kind == "Job":
        policy = subject.manifest.pod["spec"].get("restartPolicy")
        if policy not in ("Never", "OnFailure"):
            yield Finding(
                "restart-policy", ERROR, "spec.template.spec.restartPolicy",
                f"A Job's restartPolicy is {policy or 'missing'}: it must be Never or OnFailure.",
                "Set restartPolicy: Never.",
                API_SERVER,
            )  # fmt: skip


def _refuses_amount(text: str) -> str:
    # The API server counts 4Gi as 4294967296 whole units, which no card has.
    amount = exact_quantity(text)
    return SCHEDULER if amount >= 0 and amount.denominator == 1 else API_SERVER


def resources_have_an_amount(subject: Subject) -> Iterator[Finding]:
    """The API server reads an amount that is left empty as zero."""
    for path, _, raw in subject.containers():
        for kind, amounts in (raw.get("resources") or {}).items():
            for name in (name for name, amount in (amounts or {}).items() if amount is None):
                yield Finding(
                    "no-amount", WARNING, f"{path}.resources.{kind}[{name}]",
                    f"{name} has no amount here: the API server reads that as 0.",
                    "Write the amount after the colon, or leave the line out.",
                )  # fmt: skip


def fields_are_ones_that_the_kind_has(subject: Subject) -> Iterator[Finding]:
    """The API server refuses a field that it does not know, since the console asks it to be strict.

    A warning only: a newer cluster may know a field that is not known here.
    """
    for each in unknown_fields(subject.manifest.kind, subject.manifest.raw):
        yield Finding(
            "unknown-field", WARNING, each.path,
            f"There is no field {each.name} here: the API server refuses a manifest with a field it does not know.",
            f"Did you mean {each.nearest}?" if each.nearest else "Leave it out.",
        )  # fmt: skip
