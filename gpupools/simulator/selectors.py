"""Label and field selectors as they come in a query string: parsed once, then asked per object.

Knows which fields each kind lets select on from the kinds table, and nothing of HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.kinds import Kind, Object

Test = Callable[[Object], bool]

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_COMPARE = re.compile(rf"^({_KEY})\s*(==|=|!=|>|<)\s*([-A-Za-z0-9_.]*)$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One part of a label selector; ``operator`` is in, notin, exists, absent, > or <."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet this part."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        try:
            found, bound = int(value or ""), int(next(iter(self.values)))
        except ValueError:
            return False
        return found > bound if self.operator == ">" else found < bound


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector (``a=b,c!=d,e in (x,y),!f``); 400 when it is none."""
    return tuple(_requirement(part, text) for part in _split(text))


def _requirement(part: str, whole: str) -> Requirement:
    if found := _SET.match(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return Requirement(found[1], found[2], values)
    if found := _COMPARE.match(part):
        operator = {"=": "in", "==": "in", "!=": "notin"}.get(found[2], found[2])
        if operator in "<>" and not re.fullmatch(r"-?\d+", found[3]):
            raise bad_request(
                f'unable to parse requirement: values[0][{found[1]}]: Invalid value: "{found[3]}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return Requirement(found[1], operator, frozenset((found[3],)))
    if found := _EXISTS.match(part):
        return Requirement(found[2], "absent" if found[1] else "exists")
    raise bad_request(f'unable to parse requirement: found "{part}" in "{whole}": invalid label selector')


def value_at(obj: Object, path: str) -> str:
    """Return the field at a dotted path as field selectors compare it: missing is empty, booleans are words."""
    found: Any = obj
    for part in path.split("."):
        if not isinstance(found, dict):
            return ""
        found = found.get(part)
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)


# Fields that read differently from where they are stored.
_COMPUTED: Mapping[tuple[str, str], Callable[[Object], str]] = {
    ("Node", "spec.unschedulable"): lambda obj: value_at(obj, "spec.unschedulable") or "false",
    ("Pod", "spec.hostNetwork"): lambda obj: value_at(obj, "spec.hostNetwork") or "false",
    ("Event", "source"): lambda obj: value_at(obj, "source.component") or value_at(obj, "reportingComponent"),
    ("Job", "status.successful"): lambda obj: value_at(obj, "status.succeeded") or "0",
}


def _field_reader(row: Kind, path: str) -> Callable[[Object], str]:
    known = ("metadata.name", *(("metadata.namespace",) if row.namespaced else ()), *row.field_labels)
    if path not in known:
        raise _unknown_field(row, path)
    return _COMPUTED.get((row.kind, path)) or (lambda obj: value_at(obj, path))


def _unknown_field(row: Kind, path: str) -> ApiError:
    if row.kind == "Job":
        return bad_request(f'field label "{path}" not supported for Job')
    if row.field_labels:
        return bad_request(f"field label not supported: {path}")
    names = '"metadata.name", "metadata.namespace"'
    return bad_request(f'"{path}" is not a known field selector: only {names}')


def parse_fields(row: Kind, text: str) -> tuple[Test, ...]:
    """Parse a field selector (``spec.nodeName=n1,status.phase!=Running``); 400 for unknown fields."""
    tests: list[Test] = []
    for part in re.split(r"(?<!\\),", text):
        if not part.strip():
            continue
        found = re.match(r"^([^=!]+)(!=|==|=)(.*)$", part.strip())
        if not found:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        reader = _field_reader(row, found[1].strip())
        wanted = re.sub(r"\\([,=\\])", r"\1", found[3])
        tests.append(_field_test(reader, wanted, equal=found[2] != "!="))
    return tuple(tests)


def _field_test(reader: Callable[[Object], str], wanted: str, *, equal: bool) -> Test:
    return lambda obj: (reader(obj) == wanted) is equal


def selection(row: Kind, labels: str, fields: str) -> Test | None:
    """Return the test for both selectors together, None when everything is selected."""
    requirements = parse_labels(labels)
    field_tests = parse_fields(row, fields)
    if not requirements and not field_tests:
        return None

    def matches(obj: Object) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(part.matches(found) for part in requirements) and all(test(obj) for test in field_tests)

    return matches


def pinned_name(fields: str) -> str:
    """Return the name that a field selector pins (``metadata.name=n1``), or an empty string."""
    found = re.search(r"(?:^|,)metadata\.name==?([^,]+)(?:,|$)", fields)
    return found[1] if found else ""
