"""Quantities: what Kubernetes accepts, how it rounds and how it repeats them."""

from __future__ import annotations

import pytest

from gpupools.domain.quantities import canonical, format_quantity, parse_quantity, parse_resources
from gpupools.errors import Invalid


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("4", 4),
        (4, 4),
        ("0", 0),
        ("16Gi", 16 * 1024**3),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("4G", 4 * 10**9),
        ("10k", 10_000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 1024**6),
        (".5Ki", 512),
        ("5.", 5),
        ("+3", 3),
        ("-2", -2),
        ("500m", 1),
        ("1500m", 2),
        ("1n", 1),
        (0.5, 1),
    ],
)
def test_a_quantity_is_read_in_base_units_and_rounds_up(text, whole):
    assert parse_quantity(text) == whole


@pytest.mark.parametrize(("text", "milli"), [("4", 4000), ("500m", 500), ("0.1", 100), ("100u", 1), ("1.5", 1500)])
def test_cpu_is_read_in_millicores(text, milli):
    assert parse_quantity(text, milli=True) == milli


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Gi",
        "four",
        "4 Gi",
        "4gi",
        "1e",
        "1e999",
        "--1",
        "0x10",
        "1_000",
        "٤",
        "4Kii",
        "9" * 65,
        ".",
        "1e3Gi",
    ],
)
def test_what_kubernetes_refuses_is_refused_here(text):
    with pytest.raises(Invalid) as refusal:
        parse_quantity(text)
    assert refusal.value.errors[0].code == "quantity"


def test_a_bad_quantity_in_a_resource_list_names_its_field():
    with pytest.raises(Invalid) as refusal:
        parse_resources({"cpu": "1", "aliyun.com/gpu-mem": "4GB"}, field="spec.containers[0].resources.limits")
    error = refusal.value.errors[0]
    assert error.field == "spec.containers[0].resources.limits[aliyun.com/gpu-mem]"
    assert error.found == "4GB"


def test_a_resource_list_has_cpu_in_millicores_and_the_rest_in_base_units():
    read = parse_resources({"cpu": "2", "memory": "1Ki", "pods": "110", "nvidia.com/gpu": 4})
    assert read == {"cpu": 2000, "memory": 1024, "pods": 110, "nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 2500, "2500m"),
        ("memory", 16 * 1024**3, "16Gi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 2 * 1024**2, "2Mi"),
        ("aliyun.com/gpu-mem", 1024, "1024"),
    ],
)
def test_values_are_written_back_as_people_write_them(resource, value, text):
    assert format_quantity(resource, value) == text


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("0.5", "500m"), (0.5, "500m"), ("1000", "1k"), ("1500", "1500"), ("4Gi", "4Gi"), ("0.5Gi", "512Mi"),
        ("1025Ki", "1025Ki"), ("0", "0"), ("0.0001", "100u"), ("1.5", "1500m"), ("0.3Ki", "307200m"),
        ("1e3", "1e3"), ("5Gi", "5Gi"), ("-0.5", "-500m"),
    ],
)  # fmt: skip
def test_a_quantity_is_repeated_as_the_api_server_repeats_it(text, repeated):
    assert canonical(text) == repeated
