"""The list of failure scenarios is whole, and says what the rules and their tests say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = (ROOT / "docs/failure-scenarios.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| ([^|]+) \| ([a-z ]+) \| (.+) \|$", LIST, re.MULTILINE)
RULES = "\n".join(path.read_text() for path in (ROOT / "gpupools/domain/diagnosis").glob("*.py"))
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests/clusters").glob("test_diagnosis*.py"))
CODES = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', RULES))


def test_all_of_the_scenarios_are_listed_once():
    assert [int(number) for number, *_ in ROWS] == list(range(1, 46))


def test_at_least_thirty_five_are_detected_prevented_or_explained():
    found = Counter(kind.strip() for _, _, kind, _ in ROWS)
    assert set(found) == {"detected", "explained", "prevented", "not here"}
    assert 45 - found["not here"] >= 35


@pytest.mark.parametrize("number", [number for number, _, kind, _ in ROWS if kind.strip() == "detected"])
def test_what_is_said_to_be_detected_has_a_rule_and_a_test_that_makes_the_fault(number):
    by = next(by for each, _, _, by in ROWS if each == number)
    codes = [code for code in re.findall(r"`([a-z-]+)`", by) if code in CODES]
    assert codes, by
    for code in codes:
        assert f'"{code}"' in TESTS, code


@pytest.mark.parametrize("code", sorted(set(re.findall(r'(?:Diagnosis\(|pod,)\s*"([a-z-]+)"', RULES))))
def test_every_diagnosis_is_made_in_a_test_and_listed(code):
    assert f'"{code}"' in TESTS
    assert f"`{code}`" in LIST or code == "node-not-ready"
