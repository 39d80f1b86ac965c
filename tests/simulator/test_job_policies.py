"""A Job's policies on pods that ended, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.simulator import jobpolicies as policies
from gpupools.simulator.kinds import Object


def failed_pod(code: int = 1, index: int | None = None, failures: int = 0, **condition: str) -> Object:
    notes = {} if index is None else {policies.INDEX: str(index), policies.INDEX_FAILURES: str(failures)}
    return {
        "metadata": {"namespace": "n", "name": "p", "annotations": notes},
        "status": {
            "phase": "Failed",
            "conditions": [condition] if condition else [],
            "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}],
        },
    }


def on_codes(action: str, operator: str, *values: int, **more: Any) -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


@pytest.mark.parametrize(
    ("rules", "code", "action"),
    [
        ([], 1, "Count"),
        ([on_codes("FailJob", "In", 42)], 42, "FailJob"),
        ([on_codes("FailJob", "In", 42)], 1, "Count"),
        ([on_codes("Ignore", "NotIn", 1, 2)], 3, "Ignore"),
        ([on_codes("Ignore", "NotIn", 1, 2)], 2, "Count"),
        ([on_codes("FailIndex", "In", 5), on_codes("FailJob", "In", 5)], 5, "FailIndex"),
        ([on_codes("FailJob", "In", 5, containerName="other")], 5, "Count"),
        # An exit of 0 is no failure, whatever an operator that excludes others says.
        ([on_codes("FailJob", "NotIn", 1)], 0, "Count"),
    ],
)
def test_the_first_rule_that_matches_an_exit_code_decides(rules: list[Object], code: int, action: str) -> None:
    assert policies.verdict({"podFailurePolicy": {"rules": rules}}, failed_pod(code))[0] == action


def test_rules_match_conditions_too() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {"podFailurePolicy": {"rules": [rule]}}
    disrupted = failed_pod(type="DisruptionTarget", status="True")
    assert policies.verdict(spec, disrupted) == (
        "Ignore",
        "Pod n/p has condition DisruptionTarget matching Ignore rule at index 0",
    )
    assert policies.verdict(spec, failed_pod()) == ("Count", "")


@pytest.mark.parametrize(
    ("rules", "completed", "met"),
    [
        ([{"succeededIndexes": "0,2-3"}], [0, 2, 3], True),
        ([{"succeededIndexes": "0,2-3"}], [0, 2], False),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], [0, 1, 3], True),
        ([{"succeededCount": 2}], [7, 9], True),
        ([{"succeededCount": 2}], [7], False),
        ([{"succeededIndexes": "5"}, {"succeededCount": 1}], [0], True),
    ],
)
def test_success_comes_early_when_a_rule_is_met(rules: list[Object], completed: list[int], met: bool) -> None:
    assert bool(policies.success({"successPolicy": {"rules": rules}}, completed)) is met


def test_a_pod_on_its_way_out_is_counted_at_once_or_at_its_end() -> None:
    going = {"metadata": {"deletionTimestamp": "now", "deletionGracePeriodSeconds": 30}, "status": {"phase": "Running"}}
    gone = {**going, "metadata": {**going["metadata"], "deletionGracePeriodSeconds": 0}}
    at_end = {"podReplacementPolicy": "Failed"}
    assert [policies.counts_as_ended(spec, going) for spec in ({}, at_end)] == [True, False]
    assert [policies.counts_as_ended(spec, gone) for spec in ({}, at_end)] == [True, True]


def test_an_index_remembers_how_often_it_failed() -> None:
    pods = [failed_pod(index=0, failures=0), failed_pod(index=0, failures=1), failed_pod(index=1, failures=0)]
    assert [policies.failures_of(index, pods) for index in range(3)] == [2, 1, 0]


@given(st.sets(st.integers(0, 60)))
def test_indexes_are_written_and_read_back(found: set[int]) -> None:
    assert policies.indexes(policies.ranges(found)) == sorted(found)
