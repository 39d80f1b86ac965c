"""Label and field selectors as they come in a query string: parsed once, then asked per object.

Knows which fields each kind lets select on from the kinds table, and nothing of HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpupools.simulator import names
from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.kinds import Kind, Object

Test = Callable[[Object], bool]

# Words of the selector language; whatever else stands between them is an identifier.
_SYMBOLS = ("==", "!=", "=", "!", "(", ")", ",", ">", "<")
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),><]|[^ \t\r\n=!(),><]+)")
_BINARY = ("!=", "<", "=", "==", ">", "in", "notin")
# As the real parser lists them when it wanted one.
_BINARY_TEXT = "in, notin, =, ==, !=, gt, lt"
_END = ""


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


class _Parser:
    """Reads a label selector word by word; errors name the word at which it stopped making sense."""

    def __init__(self, text: str) -> None:
        self._words = [*_TOKEN.findall(text), _END]
        self._place = 0

    def _look(self) -> str:
        return self._words[self._place]

    def _take(self) -> str:
        word = self._words[self._place]
        self._place = min(self._place + 1, len(self._words) - 1)
        return word

    def parse(self) -> Iterator[Requirement]:
        """Yield the requirements between the commas."""
        while True:
            word = self._look()
            if word == _END:
                return
            if word in _SYMBOLS and word != "!":
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            word = self._take()
            if word == _END:
                return
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if self._look() == _END or (self._look() in _SYMBOLS and self._look() != "!"):
                raise bad_request(f"found '{self._look()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self._look() == "!"
        if absent:
            self._take()
        key = self._take()
        if key == _END or key in _SYMBOLS:
            raise _unparsable(f"found '{key}', expected: identifier")
        if texts := list(names.key_problems(key)):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {"; ".join(texts)}')
        if self._look() in (_END, ","):
            return Requirement(key, "absent" if absent else "exists")
        operator = self._take()
        if operator not in _BINARY:
            raise _unparsable(f"found '{operator}', expected: {_BINARY_TEXT}")
        values = self._values() if operator in ("in", "notin") else frozenset((self._value(),))
        if operator in "<>":
            self._check_number(key, next(iter(values)))
        for value in sorted(values):
            if texts := list(names.value_problems(value)):
                raise _unparsable(f'values[0][{key}]: Invalid value: "{value}": {"; ".join(texts)}')
        return Requirement(key, {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator), values)

    @staticmethod
    def _check_number(key: str, value: str) -> None:
        if not re.fullmatch(r"[-+]?\d+", value):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f'values[0][{key}]: Invalid value: "{value}": {text}')

    def _value(self) -> str:
        if self._look() in (_END, ","):
            return ""
        word = self._take()
        if word in _SYMBOLS:
            raise _unparsable(f"found '{word}', expected: identifier")
        return word

    def _values(self) -> frozenset[str]:
        word = self._take()
        if word != "(":
            raise _unparsable(f"found '{word}' expected: '('")
        values: set[str] = set()
        before = "("
        while True:
            word = self._take()
            if word == ")":
                if before in "(,":
                    values.add("")
                return frozenset(values)
            if word == ",":
                if before in "(,":
                    values.add("")
            elif word == _END or word in _SYMBOLS:
                raise _unparsable(f"found '{word}', expected: ',', or identifier")
            elif before not in "(,":
                raise _unparsable(f"found '{word}', expected: ',' or ')'")
            else:
                values.add(word)
            before = word


def _unparsable(why: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {why}")


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector (``a=b,c!=d,e in (x,y),!f``); 400 when it is none."""
    return tuple(_Parser(text).parse())


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
    ("Pod", "status.podIPs"): lambda obj: value_at(obj, "status.podIP"),
    ("Event", "source"): lambda obj: value_at(obj, "source.component") or value_at(obj, "reportingComponent"),
    ("Job", "status.successful"): lambda obj: value_at(obj, "status.succeeded") or "0",
}


# Names from events.k8s.io/v1 and from old clients -> where the field is.
_RENAMED: Mapping[tuple[str, str], str] = {
    ("Event", "reportingController"): "reportingComponent",
    ("Pod", "spec.host"): "spec.nodeName",
}


def _field_reader(row: Kind, path: str) -> Callable[[Object], str]:
    path = _RENAMED.get((row.kind, path), path)
    if row.kind == "Event" and path.startswith("regarding."):
        path = f"involvedObject.{path.removeprefix('regarding.')}"
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
        wanted = _unescaped(found[3])
        tests.append(_field_test(reader, wanted, equal=found[2] != "!="))
    return tuple(tests)


def _unescaped(value: str) -> str:
    if found := re.search(r"(?<!\\)(?:\\\\)*(\\(?![,=\\])|=)", value):
        raise bad_request(f"invalid field selector: unescaped character in value: {found[1]}")
    return re.sub(r"\\([,=\\])", r"\1", value)


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
