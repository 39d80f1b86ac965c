"""YAML text -> one plain mapping, or a refusal that names line and column.

Untrusted input: no aliases, no duplicate keys, bounded size and depth, one document. Words such as ``on``, ``yes``
and dates stay text, because Kubernetes fields that hold them are strings. It knows nothing of manifests.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from gpupools.errors import Invalid

DEEPEST = 40
_CORE_TAGS = {
    "tag:yaml.org,2002:null",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
}
_KINDS = {str: "a text", int: "a number", float: "a number", bool: "true or false", list: "a list"}
_BOOLEANS = {"true", "True", "TRUE", "false", "False", "FALSE"}


class _PlainLoader(yaml.CSafeLoader):
    """Safe loader that refuses duplicate keys and resolves only null, true/false and plain numbers."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _CORE_TAGS]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

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
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


def _boolean(loader: _PlainLoader, node: yaml.ScalarNode) -> bool | str:
    return node.value.lower() == "true" if node.value in _BOOLEANS else str(node.value)


def _integer(loader: _PlainLoader, node: yaml.ScalarNode) -> int | str:
    text = node.value
    digits = text[1:] if text[:1] in "+-" else text
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 19
    return int(text) if plain else str(text)


def _number(loader: _PlainLoader, node: yaml.ScalarNode) -> float | str:
    text = node.value
    return str(text) if ":" in text or "_" in text or "n" in text.lower() else float(text)


def _yaml_map(loader: _PlainLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    return loader.construct_mapping(node, deep=True)


_PlainLoader.add_constructor("tag:yaml.org,2002:bool", _boolean)
_PlainLoader.add_constructor("tag:yaml.org,2002:int", _integer)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _number)
_PlainLoader.add_constructor("tag:yaml.org,2002:map", _yaml_map)


def _where(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _check_events(text: str, field: str) -> None:
    depth, documents = 0, 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
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
        value = yaml.load(text, Loader=_PlainLoader)  # noqa: S506
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
