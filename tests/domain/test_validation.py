"""What the API server and ACK call invalid, in the server's own words."""

from __future__ import annotations

import msgspec
import pytest

from gpupools.domain.objects import PodSpecObject
from gpupools.domain.placement import preview
from gpupools.domain.validation import ack_problems, api_problems, api_text, invalid_text, validate_ask
from tests.domain.builders import an_ask, container


def spec(limits=None, requests=None, kind="containers"):
    resources = {"limits": limits or {}, "requests": requests or {}}
    return msgspec.convert({kind: [{"name": "c", "resources": resources}]}, PodSpecObject)


WHERE = "spec.containers[0].resources"


@pytest.mark.parametrize(
    ("limits", "requests", "message"),
    [
        pytest.param(
            {"nvidia.com/gpu": 0.5},
            {},
            f'Pod "q" is invalid: [{WHERE}.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer, '
            f'{WHERE}.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer]',
            id="V33-a-fraction-is-named-twice-because-limits-are-defaulted-into-requests",
        ),
        pytest.param(
            {},
            {"nvidia.com/gpu": "1"},
            f'Pod "q" is invalid: {WHERE}.limits: Required value: Limit must be set for non overcommitable resources',
            id="V33-only-requests",
        ),
        pytest.param(
            {"nvidia.com/gpu": "2"},
            {"nvidia.com/gpu": 1},
            f'Pod "q" is invalid: {WHERE}.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
            id="V33-requests-below-limits",
        ),
        pytest.param(
            {"cpu": "1"},
            {"cpu": "2"},
            f'Pod "q" is invalid: {WHERE}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            id="cpu-requests-above-limits",
        ),
        pytest.param(
            {"aliyun.com/gpu-mem": -1},
            {},
            f'Pod "q" is invalid: [{WHERE}.limits[aliyun.com/gpu-mem]: Invalid value: "-1": must be greater than or '
            f'equal to 0, {WHERE}.requests[aliyun.com/gpu-mem]: Invalid value: "-1": must be greater than '
            "or equal to 0]",
            id="negative",
        ),
    ],
)
def test_v33b_refusals_read_as_the_api_servers(limits, requests, message):
    assert invalid_text("q", api_problems(spec(limits, requests))) == message


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        pytest.param({"aliyun.com/gpu-mem": "4Gi"}, {}, id="V33b-4Gi-is-accepted-and-means-4294967296-units"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
        ({"cpu": "2"}, {"cpu": "0.5", "memory": "1Gi"}),
        ({"nvidia.com/gpu": "1000m"}, {}),
        ({}, {}),
    ],
)
def test_what_the_api_server_accepts_has_no_problem(limits, requests):
    assert api_problems(spec(limits, requests)) == ()


def test_init_containers_and_templates_have_their_own_paths():
    problems = api_problems(spec({"aliyun.com/gpu": "1.5"}, kind="initContainers"), path="spec.template.spec")
    assert problems[0].field == "spec.template.spec.initContainers[0].resources.limits[aliyun.com/gpu]"


def test_an_unreadable_quantity_is_one_problem_of_its_own():
    problems = api_problems(spec({"nvidia.com/gpu": "one"}, {"nvidia.com/gpu": "1"}))
    assert [problem.code for problem in problems] == ["quantity"]


def test_an_ask_of_whole_numbers_is_checked_alike():
    only_requests = msgspec.structs.replace(container(), requests={"nvidia.com/gpu": 1})
    differs = msgspec.structs.replace(container(whole=2), requests={"nvidia.com/gpu": 1})
    problems = validate_ask(an_ask(only_requests, differs))
    assert [api_text(problem) for problem in problems] == [
        f"{WHERE}.limits: Required value: Limit must be set for non overcommitable resources",
        'spec.containers[1].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
    ]
    assert validate_ask(an_ask(mem=4, core=30, cpu=500)) == ()


@pytest.mark.parametrize(
    ("core", "message"),
    [
        pytest.param(33, "must be a multiple of 5, at least 5", id="V27-33-per-cent"),
        (3, "must be a multiple of 5, at least 5"),
        (105, "must be a multiple of 5, at least 5 and at most 100"),
    ],
)
def test_compute_is_asked_in_steps_of_five_per_cent_of_one_card(core, message):
    (problem,) = ack_problems(an_ask(mem=4, core=core))
    assert (problem.message, problem.found) == (message, str(core))
    assert problem.field == f"{WHERE}.limits[aliyun.com/gpu-core.percentage]"


@pytest.mark.parametrize("core", [0, 5, 100])
def test_steps_of_five_are_fine(core):
    assert ack_problems(an_ask(mem=4, core=core)) == ()


def test_compute_on_several_cards_is_refused():
    labels = {"aliyun.com/gpu-count": "2"}
    assert [p.code for p in ack_problems(an_ask(mem=4, core=10, labels=labels))] == ["core-on-several-cards"]
    assert ack_problems(an_ask(mem=4, core=10, labels={"aliyun.com/gpu-count": "1"})) == ()
    assert ack_problems(an_ask(mem=4, labels=labels)) == ()


def test_an_invalid_ask_gets_no_verdicts_but_its_problems():
    seen = preview(an_ask(mem=4, core=33), [])
    assert (seen.chosen, seen.verdicts, len(seen.problems)) == (None, (), 1)
    assert 'Invalid value: "33": must be a multiple of 5' in seen.message
