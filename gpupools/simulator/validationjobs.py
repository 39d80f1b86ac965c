"""What the API server refuses in Jobs, in its wording; their templates are pods' business."""

from __future__ import annotations

from typing import Any

from gpupools.simulator.kinds import Object
from gpupools.simulator.problems import Problems, immutable, not_below_zero, required, unsupported, wrong
from gpupools.simulator.validationpods import check_template


def _map(holder: Any, key: str) -> Object:
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def check_job(job: Object, problems: Problems) -> None:
    """Check a new Job."""
    spec = _map(job, "spec")
    for field in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        not_below_zero(spec.get(field), f"spec.{field}", problems)
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        problems.add(unsupported("spec.completionMode", mode, ("Indexed", "NonIndexed")))
    elif mode == "Indexed" and spec.get("completions") is None:
        problems.add(required("spec.completions", "when completion mode is Indexed"))
    template = _map(spec, "template")
    _check_indexed(spec, mode, problems)
    _check_failure_policy(spec, template, problems)
    if not spec.get("manualSelector"):
        wanted = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
        if _map(spec, "selector").get("matchLabels") != wanted and template:
            problems.add(wrong("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
    check_template(template, "spec.template", problems, restart=("OnFailure", "Never"), required_text=True)


def _check_indexed(spec: Object, mode: object, problems: Problems) -> None:
    """Check what makes sense only where pods have indexes."""
    completions, most = spec.get("completions"), spec.get("maxFailedIndexes")
    if spec.get("backoffLimitPerIndex") is not None and mode != "Indexed":
        problems.add(
            wrong("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], "requires indexed completion mode")
        )
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        problems.add(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if isinstance(most, int) and isinstance(completions, int) and most > completions:
        problems.add(wrong("spec.maxFailedIndexes", most, "must be less than or equal to completions"))
    if mode == "Indexed" and isinstance(spec.get("parallelism"), int) and spec["parallelism"] > _MOST_INDEXED:
        text = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
        problems.add(wrong("spec.parallelism", spec["parallelism"], text))
    if spec.get("successPolicy") is not None and mode != "Indexed":
        problems.add(wrong("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode"))
    replacement = spec.get("podReplacementPolicy")
    if replacement not in ("Failed", "TerminatingOrFailed"):
        problems.add(unsupported("spec.podReplacementPolicy", replacement, ("Failed", "TerminatingOrFailed")))


_MOST_INDEXED = 100_000
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _check_failure_policy(spec: Object, template: Object, problems: Problems) -> None:
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return
    where = "spec.podFailurePolicy"
    if _map(template, "spec").get("restartPolicy") != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        problems.add(wrong("spec.template.spec.restartPolicy", _map(template, "spec").get("restartPolicy"), text))
    if spec.get("podReplacementPolicy") != "Failed":
        problems.add(unsupported("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), ("Failed",)))
    for index, rule in enumerate(policy.get("rules") or ()):
        path, action = f"{where}.rules[{index}]", rule.get("action")
        if not action:
            problems.add(required(f"{path}.action", "valid values: " + ", ".join(f'"{word}"' for word in _ACTIONS)))
        elif action not in _ACTIONS:
            problems.add(unsupported(f"{path}.action", action, _ACTIONS))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and conditions:
            problems.add(wrong(path, "", "specifying both OnExitCodes and OnPodConditions is not supported"))
        elif not codes and not conditions:
            problems.add(wrong(path, "", "specifying one of OnExitCodes and OnPodConditions is required"))
        if codes and codes.get("operator") not in ("In", "NotIn"):
            problems.add(unsupported(f"{path}.onExitCodes.operator", codes.get("operator"), ("In", "NotIn")))
        if codes and not codes.get("values"):
            problems.add(wrong(f"{path}.onExitCodes.values", codes.get("values"), "at least one value is required"))
        if codes and codes.get("operator") == "In" and 0 in (codes.get("values") or ()):
            text = "must not be 0 for the In operator"
            problems.add(wrong(f"{path}.onExitCodes.values[{codes['values'].index(0)}]", 0, text))


def check_job_update(job: Object, old: Object, problems: Problems) -> None:
    """Check a Job's change: how much at once and whether at all, hardly what."""
    new, before = _map(job, "spec"), _map(old, "spec")
    for field in ("parallelism", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        not_below_zero(new.get(field), f"spec.{field}", problems)
    same_size = new.get("completions") == before.get("completions")
    elastic = new.get("completionMode") == "Indexed" and new.get("completions") == new.get("parallelism")
    if not same_size and not elastic:
        problems.add(immutable("spec.completions", new.get("completions")))
    for field in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"):
        if new.get(field) != before.get(field):
            problems.add(immutable(f"spec.{field}", new.get(field)))
    started = _map(old, "status").get("startTime")
    template, template_before = new.get("template"), before.get("template")
    if before.get("suspend") and not started:
        # A Job that never ran may still be told where to run.
        template, template_before = _without_placement(template), _without_placement(template_before)
    if template != template_before:
        problems.add(immutable("spec.template", new.get("template")))


def _without_placement(template: Any) -> Any:
    spec = {
        key: value
        for key, value in _map(template, "spec").items()
        if key not in ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    }
    meta = {key: value for key, value in _map(template, "metadata").items() if key not in ("labels", "annotations")}
    return {"metadata": meta, "spec": spec}
