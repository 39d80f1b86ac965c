"""What the API server refuses of a pod's resources, in its own words, and what ACK documents as invalid.

It looks at the pod alone and knows no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpupools.domain.asks import card_count, limit_of
from gpupools.domain.gpus import Ask
from gpupools.domain.modes import GPU_CORE
from gpupools.domain.quantities import CPU, canonical, exact_quantity, quantity_text
from gpupools.domain.wire import ContainerObject, PodSpecObject, Resources
from gpupools.errors import FieldError, Invalid

CORE_STEP_PERCENT = 5
CARD_PERCENT = 100


_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"
# Names without a domain that the API server knows from quotas; a container cannot ask for them.
_OF_QUOTAS = frozenset(
    f"{before}{name}" for before in ("requests.", "limits.") for name in ("cpu", "memory", "ephemeral-storage")
) | {
    "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "requests.storage", "resourcequotas",
    "secrets", "services", "services.loadbalancers", "services.nodeports", "storage",
}  # fmt: skip


def _native(resource: str) -> bool:
    return "/" not in resource or "kubernetes.io/" in resource


def is_extended(resource: str) -> bool:
    """Whether a resource is counted in whole units and never overcommitted: it has a foreign domain."""
    return not _native(resource) and not resource.startswith("requests.")


def _overcommits(resource: str) -> bool:
    return _native(resource) and not resource.startswith(_HUGE_PAGES)


def api_problems(spec: PodSpecObject, *, path: str = "spec") -> tuple[FieldError, ...]:
    """Return what the API server says about a raw pod spec's resources, after its own defaulting.

    ``api_text`` of each problem is the server's wording, byte for byte.
    """
    groups = (("containers", spec.containers), ("initContainers", spec.init_containers))
    return tuple(
        problem
        for group, containers in groups
        for index, container in enumerate(containers or ())
        for problem in _of_container(container, f"{path}.{group}[{index}].resources")
    )


def _of_container(container: ContainerObject, path: str) -> Iterator[FieldError]:
    resources = container.resources or Resources()
    limits = {name: quantity_text(value) for name, value in (resources.limits or {}).items()}
    requests = {name: quantity_text(value) for name, value in (resources.requests or {}).items()}
    return _of_resources(limits, {**limits, **requests}, path)


def validate_ask(ask: Ask, *, path: str = "spec") -> tuple[FieldError, ...]:
    """Return the same problems for an ask, whose numbers are whole: fractions that must not be are kept beside them."""
    groups = (("containers", ask.containers), ("initContainers", ask.init_containers))
    return tuple(
        problem
        for group, containers in groups
        for index, container in enumerate(containers)
        for problem in _of_resources(
            _texts(container.limits, container.fractions.get("limits", {})),
            _texts(container.requests, container.fractions.get("requests", {})),
            f"{path}.{group}[{index}].resources",
        )
    )


def _texts(resources: Mapping[str, int], fractions: Mapping[str, str]) -> dict[str, str]:
    return {name: f"{value}m" if name == CPU else f"{value}" for name, value in resources.items()} | dict(fractions)


def _of_resources(limits: Mapping[str, str], requests: Mapping[str, str], path: str) -> Iterator[FieldError]:
    readable: dict[str, set[str]] = {"limits": set(), "requests": set()}
    for group, resources in (("limits", limits), ("requests", requests)):
        for name in sorted(resources):
            yield from name_problems(name, f"{path}.{group}[{name}]")
            problem = _of_value(name, resources[name], f"{path}.{group}[{name}]")
            if problem is None or problem.code != "quantity":
                readable[group].add(name)
            if problem is not None:
                yield problem
    for name in sorted(readable["requests"]):
        if name not in limits:
            if not _overcommits(name):
                yield FieldError(
                    f"{path}.limits", "Limit must be set for non overcommitable resources", code="required", found=name
                )
        elif name in readable["limits"]:
            asked, limit = exact_quantity(requests[name]), exact_quantity(limits[name])
            word = "less than or equal to" if _overcommits(name) else "equal to"
            if asked > limit or (asked != limit and not _overcommits(name)):
                message = f"must be {word} {name} limit of {canonical(limits[name])}"
                yield FieldError(f"{path}.requests", message, found=canonical(requests[name]))


def name_problems(name: str, field: str) -> Iterator[FieldError]:
    """Yield what the API server says of a resource that containers cannot ask for by that name."""
    if not _native(name):
        if not is_extended(name):
            yield FieldError(field, "doesn't follow extended resource name standard", found=name)
    elif "/" not in name and name not in _OF_CONTAINERS and not name.startswith(_HUGE_PAGES):
        if name not in _OF_QUOTAS:
            yield FieldError(field, "must be a standard resource type or fully qualified", found=name)
        yield FieldError(field, "must be a standard resource for containers", found=name)


def _of_value(name: str, text: str, field: str) -> FieldError | None:
    try:
        value = exact_quantity(text)
    except Invalid as error:
        return FieldError(field, f"{text[:80]!r} is not a quantity.", code="quantity", allowed=error.errors[0].allowed)
    if value < 0:
        return FieldError(field, "must be greater than or equal to 0", found=canonical(text))
    # As the API server looks at it: in thousandths, which round up.
    if is_extended(name) and -(-1000 * value // 1) % 1000:
        return FieldError(field, "must be an integer", found=canonical(text))
    return None


def ack_problems(ask: Ask, *, path: str = "spec") -> tuple[FieldError, ...]:
    """Return what ACK documents as invalid and the API server lets through: compute outside its steps of one card."""
    problems = []
    for index, container in enumerate(ask.containers):
        percent = container.limits.get(GPU_CORE, 0)
        if percent % CORE_STEP_PERCENT or percent > CARD_PERCENT:
            problems.append(
                FieldError(
                    f"{path}.containers[{index}].resources.limits[{GPU_CORE}]",
                    f"must be a multiple of {CORE_STEP_PERCENT}, at least {CORE_STEP_PERCENT}"
                    + (f" and at most {CARD_PERCENT}" if percent > CARD_PERCENT else ""),
                    code="core-step",
                    found=str(percent),
                    allowed="5, 10, 15 ... 100",
                )
            )
    count = card_count(ask)
    if count > 1 and limit_of(ask, GPU_CORE):
        problems.append(
            FieldError(
                "metadata.labels[aliyun.com/gpu-count]",
                f"must not ask for several cards together with {GPU_CORE}: ACK gives compute on one card only",
                code="core-on-several-cards",
                found=str(count),
                allowed="no label, or 1",
            )
        )
    return tuple(problems)


def api_text(problem: FieldError) -> str:
    """Return a problem as the API server words it in the answer's message."""
    if problem.code == "required":
        return f"{problem.field}: Required value: {problem.message}"
    return f'{problem.field}: Invalid value: "{problem.found}": {problem.message}'


def invalid_text(name: str, problems: Sequence[FieldError] | Iterable[FieldError], *, kind: str = "Pod") -> str:
    """Return the message of the API server's 422: one problem plain, several in brackets."""
    texts = [api_text(problem) for problem in problems]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{kind} "{name}" is invalid: {joined}'
