"""Template parameters: typed, and never able to become YAML structure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupools.domain import yamltext
from gpupools.domain.parameters import check_template, render
from gpupools.errors import Invalid

TEMPLATE = "metadata:\n  name: ${name}\nspec:\n  model: ${model} # the card\n  list: [${text}, x]\n  pods: ${pods}\n"
PARAMETERS: list[dict[str, Any]] = [
    {"name": "name", "kind": "name", "default": "train"},
    {"name": "model", "kind": "card_model", "default": "NVIDIA-A10"},
    {"name": "text", "kind": "string", "default": "", "required": False},
    {"name": "pods", "kind": "integer", "default": 1, "minimum": 1, "maximum": 64},
]


def test_values_stand_where_the_placeholders_were() -> None:
    text = render(TEMPLATE, PARAMETERS, {"name": "a-1", "pods": "3"})
    assert yamltext.load(text, max_bytes=10_000) == {
        "metadata": {"name": "a-1"},
        "spec": {"model": "NVIDIA-A10", "list": ["", "x"], "pods": 3},
    }
    assert "# the card" in text


@given(st.text(max_size=60))
def test_whatever_is_typed_stays_one_value(text: str) -> None:
    try:
        rendered = render(TEMPLATE, PARAMETERS, {"text": text})
    except Invalid as error:
        assert error.errors[0].field == "parameters.text"
        return
    read = yamltext.load(rendered, max_bytes=10_000)
    assert read["spec"] == {"model": "NVIDIA-A10", "list": [text.strip(), "x"], "pods": 1}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "A B"}, "parameters.name"),
        ({"name": ""}, "parameters.name"),
        ({"model": "Tesla V100"}, "parameters.model"),
        ({"pods": "0"}, "parameters.pods"),
        ({"pods": "65"}, "parameters.pods"),
        ({"pods": "1.5"}, "parameters.pods"),
        ({"pods": True}, "parameters.pods"),
        ({"text": "a\nb"}, "parameters.text"),
        ({"nonsense": "x"}, "parameters.nonsense"),
    ],
)
def test_a_wrong_value_is_refused_at_its_parameter(values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        render(TEMPLATE, PARAMETERS, values)
    assert [error.field for error in caught.value.errors] == [field]


def test_a_template_and_its_parameters_must_agree() -> None:
    assert check_template(TEMPLATE, PARAMETERS) == []
    assert check_template("a: ${missing}\n", [])
    assert check_template("a: 1\n", [{"name": "unused", "kind": "string"}])
    assert check_template("a: ${x}\n", [{"name": "x", "kind": "color"}])
    assert check_template("a: repo/${x}:tag\n", [{"name": "x", "kind": "string"}])
