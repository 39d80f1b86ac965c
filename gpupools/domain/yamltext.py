"""YAML text -> one plain mapping, or a refusal that names line and column.

Untrusted input: no aliases, no duplicate keys, bounded size and depth, one document. Words without quotes are
read as kubectl reads them, so that a text means here what it means there. It knows nothing of manifests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable
from typing import Any

import yaml

from gpupools.errors import Invalid

DEEPEST = 40
_KINDS = {str: "a text", int: "a number", float: "a number", bool: "true or false", list: "a list"}
_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
_NULL = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LARGEST = 2**64 - 1
_TAGS = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")))
_PLAIN = "tag:gpupools,plain"


class _PlainLoader(yaml.CSafeLoader):
    """Safe loader that refuses duplicate keys and reads plain words as kubectl does."""

    # Every plain word comes to ``_scalar``: what kubectl makes of one does not follow from PyYAML's patterns.
    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; a key that stands twice is an error, not the last one's win."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key_node.value[:60]}' stands here twice", key_node.start_mark
                )
            seen.add(key_node.value)
            read = plain_value(key_node.value) if key_node.tag == _PLAIN else key_node.value
            said = str(read).lower() if isinstance(read, bool) else str(read)
            if read is None or (type(read) is not float and said != key_node.value):
                word = "nothing" if read is None else said
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"kubectl reads the key '{key_node.value[:60]}' as {word}: put it in quotes",
                    key_node.start_mark,
                )
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


def plain_value(text: str) -> str | int | float | bool | None:
    """Return what kubectl (sigs.k8s.io/yaml on go-yaml 2) reads a word without quotes as.

    YAML 1.1: ``yes``, ``on`` and ``n`` are true or false, ``010`` is 8, ``0x10`` is 16, underscores in numbers do not
    count. Dates and ``1:30`` stay text, and so do infinities, which JSON does not know.
    """
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text in _NULL:
        return None
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    if found := _INTEGER.fullmatch(digits):
        sign, hexadecimal, binary, octal, decimal = found.groups()
        pairs = ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10))
        value = next(_whole(part, base) for part, base in pairs if part is not None)
        if value <= _LARGEST:
            return -value if sign == "-" else value
    if _NUMBER.fullmatch(digits) and abs(number := float(digits)) <= sys.float_info.max:
        # Go writes a whole number without a point, so 1e3 is taken where a whole number is wanted.
        return int(number) if number.is_integer() and abs(number) < 1e21 else number
    return text


def _whole(digits: str, base: int) -> int:
    # Longer ones are beyond 64 bits in every base, once leading zeros are gone.
    significant = digits.lstrip("0") or "0"
    return int(significant, base) if len(significant) <= 64 else _LARGEST + 1


def _scalar(loader: _PlainLoader, node: yaml.ScalarNode) -> str | int | float | bool | None:
    return plain_value(node.value)


def _yaml_map(loader: _PlainLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    return loader.construct_mapping(node, deep=True)


_PlainLoader.add_constructor(_PLAIN, _scalar)
_PlainLoader.add_constructor("tag:yaml.org,2002:map", _yaml_map)


def _where(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _check_tag(event: yaml.Event, field: str) -> None:
    tag = getattr(event, "tag", None)
    if tag not in _TAGS:
        line = f" (line {event.start_mark.line + 1})" if event.start_mark else ""
        raise Invalid.field(
            field,
            f"YAML tags are not accepted{line}: write the value as it is.",
            code="not-yaml",
            found=str(tag)[:80],
            allowed="plain YAML; !!str for text",
        )


def _says_something(event: yaml.Event) -> bool:
    if isinstance(event, yaml.ScalarEvent):
        return bool(event.style or event.value or event.tag or event.anchor)
    return isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent, yaml.AliasEvent))


def _check_events(text: str, field: str) -> None:
    depth, documents = 0, 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if _says_something(event):
            # What stands between two lines of --- and is nothing but blanks and comments is no document to kubectl.
            documents += depth == 0
            if documents > 1:
                raise Invalid.field(
                    field,
                    "There is more than one YAML document here; submit one object at a time.",
                    code="several-documents",
                    found="a second document",
                    allowed="one document",
                )
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            line = f" (line {event.start_mark.line + 1})" if event.start_mark else ""
            raise Invalid.field(
                field,
                f"YAML anchors and aliases are not accepted{line}: write the value out.",
                code="alias",
                found="an alias" if isinstance(event, yaml.AliasEvent) else "an anchor",
                allowed="plain YAML without & and *",
            )
        _check_tag(event, field)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > DEEPEST:
                raise Invalid.field(
                    field,
                    f"The YAML is nested deeper than {DEEPEST} levels.",
                    code="too-deep",
                    found=f"more than {DEEPEST} levels",
                    allowed=f"at most {DEEPEST} levels",
                )
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def load(text: str, *, max_bytes: int, field: str = "yaml") -> dict[str, Any]:
    """Read one mapping from untrusted YAML. ``max_bytes`` counts UTF-8 bytes. Raises Invalid on ``field``."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid.field(
            field,
            "This text is not valid Unicode.",
            code="not-yaml",
            found="a lone surrogate",
            allowed="UTF-8 text",
        ) from None
    if size > max_bytes:
        raise Invalid.field(
            field,
            f"The text is too large: {size:,} bytes.",
            code="too-large",
            found=f"{size} bytes",
            allowed=f"at most {max_bytes} bytes",
        )
    try:
        _check_events(text, field)
        # The loader is a SafeLoader: it builds only mappings, lists, text, numbers, booleans and null.
        value = next((each for each in yaml.load_all(text, Loader=_PlainLoader) if each is not None), None)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        where = _where(error)
        sentence = error.problem or "it cannot be read"
        raise Invalid.field(
            field,
            f"This is not valid YAML: {sentence}{f' ({where})' if where else ''}.",
            code="not-yaml",
            found=where,
        ) from None
    except yaml.YAMLError as error:
        raise Invalid.field(
            field, "This is not valid YAML: it holds characters that YAML does not allow.", code="not-yaml",
            found=str(error)[:80],
        ) from None  # fmt: skip
    if not isinstance(value, dict):
        kind = "nothing" if value is None else _KINDS.get(type(value), "a single value")
        raise Invalid.field(
            field,
            "This is not a Kubernetes object: the YAML must be a mapping with apiVersion and kind.",
            code="not-an-object",
            found=kind,
            allowed="a mapping",
        )
    return value
