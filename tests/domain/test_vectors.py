"""The worked cases that the engine is held to: each has a test under its number, and none is lost on a tidy day."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Gaps in the numbers are cases that were dropped.
ALLOCATION = "V01 V02 V03 V04 V06 V07 V09 V10 V11 V12 V14 V15 V17"
PLACEMENT = "V18 V19 V21 V22 V23 V24 V25 V27 V28 V29 V30 V31 V33 V33b V34 V35 V36 V37 V38a V38b V38c V38d V39"
OTHERS = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in OTHERS)
NAMED = set(re.findall(r'(?:id="|def test_)(v\d+[a-z]?)[-_]', TESTS, re.IGNORECASE))


@pytest.mark.parametrize("number", [*ALLOCATION.split(), *PLACEMENT.split()])
def test_a_worked_case_has_a_test_of_its_number(number):
    assert {number, number.lower(), f"{number}a"} & NAMED, sorted(NAMED)
