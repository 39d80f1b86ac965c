"""Rules of the house that a machine can hold: module length and opening, documented settings and modes."""

import ast
import re
from pathlib import Path

import pytest

from gpupools.domain.modes import CHOOSABLE, MODES

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400
# Tables of worked cases are read row by row, not as a whole.
MAX_TEST_LINES = 800
MODULES = sorted(
    path
    for folder in ("console", "gpupools", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "migrations" not in path.parts and path.stat().st_size
)
README = (ROOT / "README.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r'env(?:str|bool|int|list|words|origins|path|zone|secret|redis|database)\(\s*"([A-Z_]+)"')


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_says_what_it_is(path: Path):
    source = path.read_text(encoding="utf-8")
    is_test = path.is_relative_to(ROOT / "tests")
    assert len(source.splitlines()) <= (MAX_TEST_LINES if is_test else MAX_LINES)
    opening = ast.get_docstring(ast.parse(source))
    assert opening, "it must open with what it owns"
    assert len(opening.splitlines()) <= 6


def test_the_readme_names_exactly_the_variables_that_the_settings_read():
    read = set(VARIABLE.findall((ROOT / "console" / "settings.py").read_text(encoding="utf-8")))
    told = set(re.findall(r"^\| `([A-Z][A-Z_]+)` \|", README, re.MULTILINE))
    assert len(read) > 15
    assert told == read


def test_the_readme_names_the_defaults_that_the_settings_have():
    rows = dict(re.findall(r"^\| `([A-Z][A-Z_]+)` \| ([^|]*) \|", README, re.MULTILINE))
    settings = (ROOT / "console" / "settings.py").read_text(encoding="utf-8")
    numbers = re.findall(r'envint\("([A-Z_]+)", (\d+)(?: \* KIB)?,', settings)
    assert numbers
    for name, number in numbers:
        assert re.search(rf"\b{number}\b", rows[name]), f"{name}: the default is {number}"


@pytest.mark.parametrize("mode", CHOOSABLE)
def test_the_readme_tells_each_modes_label_and_resources(mode: str):
    facts = MODES[mode]
    row = next((line for line in README.splitlines() if line.startswith(f"| `{mode.value}` |")), "")
    assert f"`{facts.label_value}`" in row
    for resource in facts.resources:
        assert f"`{resource}`" in row
    for component in facts.components:
        assert f"`{component.value}`" in row


def test_the_first_screen_of_the_readme_has_the_two_commands():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make run" in first_screen
    assert "make test" in first_screen


def test_the_lock_files_name_no_place_of_one_machine():
    for name in ("requirements.txt", "requirements-dev.txt"):
        lock = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"file:|find-links|index-url|^/", lock, re.MULTILINE)
        pins = [line for line in lock.splitlines() if line and not line.startswith(("#", " "))]
        assert pins
        assert all("==" in line for line in pins)
