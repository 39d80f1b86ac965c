"""Amounts and whole numbers as Kubernetes reads them, where Python would read more, less or something else."""

from __future__ import annotations

import pytest

from gpupools.domain.quantities import LARGEST, integer, is_integer, parse_quantity, parse_resources
from gpupools.errors import Invalid
from tests.domain.rawobjects import COUNT, MEM, WHOLE, box, exclusive, raw_pod, seen, shared


@pytest.mark.parametrize(
    ("text", "resource", "value"),
    [
        ("1e3", "cpu", 1_000_000),
        ("100u", "cpu", 1),
        ("1n", "cpu", 1),
        (".5", "cpu", 500),
        ("007", "cpu", 7000),
        ("0.1Gi", "memory", 107_374_183),
        ("128974848000m", "memory", 128_974_848),
        ("1E", "memory", 10**18),
        ("1e+2", "memory", 100),
        ("-0", "memory", 0),
        ("0.5Ki", MEM, 512),
        ("2000m", MEM, 2),
        (None, WHOLE, 0),
    ],
)
def test_an_amount_of_a_resource_is_a_whole_number_of_its_unit(text, resource, value):
    assert parse_resources({resource: text}) == {resource: value}


@pytest.mark.parametrize("text", ["9223372036854775808", "9" * 64, "1e99", "8Ei", "100000E"])
def test_what_does_not_fit_into_64_bits_counts_as_the_largest_number(text):
    assert parse_quantity(text) == LARGEST
    assert parse_quantity(f"-{text}"[:64]) == -LARGEST or len(text) == 64
    assert parse_quantity("9223372036854775807", milli=True) == LARGEST


@pytest.mark.parametrize("text", [" 1", "1 ", "\t1", "1Gi\n", "nan", "Infinity", "１", "1e3Ki", "1.2.3", "m", "1K"])
def test_blanks_and_other_scripts_make_an_amount_none(text):
    with pytest.raises(Invalid):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("-12", -12),
        ("0" * 5000 + "3", 3),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("9" * 19, None),
        (str(-(2**63) - 1), None),
        ("9" * 5000, None),
        ("1_0", None),
        ("４", None),
        ("²", None),
        ("", None),
        ("+", None),
        ("--1", None),
        ("+-1", None),
        (" 1", None),
        ("1.0", None),
    ],
)
def test_a_whole_number_is_what_the_clusters_own_programs_read(text, number):
    assert integer(text) == number


def test_a_number_out_of_range_is_a_number_still():
    assert (is_integer("9" * 5000), is_integer("9x"), is_integer("")) == (True, False, False)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("two", 'strconv.Atoi: parsing "two": invalid syntax'),
        ("", 'strconv.Atoi: parsing "": invalid syntax'),
        ("2.0", 'strconv.Atoi: parsing "2.0": invalid syntax'),
        ("1_0", 'strconv.Atoi: parsing "1_0": invalid syntax'),
        ("9" * 20, f'strconv.Atoi: parsing "{"9" * 20}": value out of range'),
    ],
)
def test_a_count_of_cards_that_is_no_number_is_quoted_as_the_plugin_does(label, reason):
    said = seen(raw_pod("p", box({MEM: "10"}), labels={COUNT: label}), shared())
    assert said.prefilter == f"failed to parse request device count from pod label {COUNT},reason: {reason}"


@pytest.mark.parametrize(("label", "cards"), [("02", (0, 1)), ("+2", (0, 1)), ("1", (0,)), ("0", (0,)), ("-0", (0,))])
def test_a_count_of_cards_may_have_zeros_and_a_sign(label, cards):
    assert seen(raw_pod("p", box({MEM: "8"}), labels={COUNT: label}), shared()).cards == cards


def test_an_amount_beyond_all_nodes_is_refused_by_the_nodes():
    for amount in (str(2**70), "1e90", "9E"):
        said = seen(raw_pod("p", box({MEM: amount}), box({MEM: amount})), shared())
        assert said.message.startswith("0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem. ")


@pytest.mark.parametrize("amount", ["0.5", "1500m", "1e-3", "1.0000001"])
def test_a_part_of_a_card_is_invalid_though_a_node_has_room(amount):
    said = seen(raw_pod("p", box({WHOLE: amount})), exclusive())
    assert said.chosen is None
    assert [problem.field for problem in said.problems] == [
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
        "spec.containers[0].resources.requests[nvidia.com/gpu]",
    ]
    assert {problem.message for problem in said.problems} == {"must be an integer"}


@pytest.mark.parametrize(("amount", "cards"), [("2000m", 2), ("1e0", 1), ("1.0", 1), ("0.9999", 1)])
def test_wholes_in_other_forms_are_wholes(amount, cards):
    said = seen(raw_pod("p", box({WHOLE: amount})), exclusive(cards=cards))
    assert (said.problems, said.chosen) == ((), "n1")


@pytest.mark.parametrize(
    ("limits", "requests", "messages"),
    [
        ({"gpu": "1"}, {}, ["must be a standard resource type or fully qualified",
                            "must be a standard resource for containers"] * 2),
        ({"pods": "1"}, {}, ["must be a standard resource for containers"] * 2),
        ({"requests.nvidia.com/gpu": "1"}, {}, ["doesn't follow extended resource name standard"] * 2),
        ({WHOLE: "-1"}, {}, ["must be greater than or equal to 0"] * 2),
        ({WHOLE: "1"}, {WHOLE: "1.5"}, ["must be an integer", "must be equal to nvidia.com/gpu limit of 1"]),
        ({}, {WHOLE: "1"}, ["Limit must be set for non overcommitable resources"]),
        ({"cpu": "1"}, {"cpu": "2"}, ["must be less than or equal to cpu limit of 1"]),
        ({"kubernetes.io/x": "0.5", "hugepages-2Mi": "4Mi", "cpu": "0.5"}, {}, []),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_reaches_no_node(limits, requests, messages):
    said = seen(raw_pod("p", box(limits, requests)), exclusive(**{"kubernetes.io/x": "1", "hugepages-2Mi": "8Mi"}))
    assert [problem.message for problem in said.problems] == messages
    assert (said.chosen is None) is bool(messages)
