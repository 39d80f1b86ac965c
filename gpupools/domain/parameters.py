"""Typed parameters of a job template: check the values, put them into the YAML as whole scalars.

A placeholder ``${name}`` stands alone as a value, so no value can grow into YAML structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpupools.errors import FieldError, Invalid

KINDS = ("string", "integer", "choice", "card_model", "namespace", "name", "image")
_PLACEHOLDER = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
_WHOLE_SCALAR = re.compile(r"(?m)((?:^|[:\-\[,])[ \t]*)\"?\$\{([a-z][a-z0-9_]*)\}\"?(?=[ \t]*(?:#.*|[,\]].*)?$)")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9]([a-z0-9._/:@-]*[A-Za-z0-9._-])?")
# kind -> (pattern, longest, what is allowed)
_PATTERNS: dict[str, tuple[re.Pattern[str], int, str]] = {
    "namespace": (_DNS_LABEL, 63, "lower-case letters, digits and '-'"),
    "name": (_DNS_LABEL, 63, "lower-case letters, digits and '-'"),
    "card_model": (_LABEL_VALUE, 63, "a label value, as in aliyun.accelerator/nvidia_name"),
    "image": (_IMAGE, 255, "an image reference"),
}


def placeholders(template: str) -> frozenset[str]:
    """Return the names of the placeholders in a template."""
    return frozenset(_PLACEHOLDER.findall(template))


def check_template(template: str, parameters: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Check that a template and its parameters agree, and that each placeholder is a value of its own."""
    names = [str(parameter.get("name", "")) for parameter in parameters]
    errors = [
        FieldError(f"parameters.{parameter.get('name')}", "Unknown parameter kind.", found=str(parameter.get("kind")),
                   allowed=", ".join(KINDS))
        for parameter in parameters
        if parameter.get("kind") not in KINDS
    ]  # fmt: skip
    used = placeholders(template)
    errors += [FieldError(f"parameters.{name}", "This parameter is used nowhere.", found=name) for name in names
               if name not in used]  # fmt: skip
    errors += [FieldError("yaml", f"There is no parameter for ${{{name}}}.", found=name) for name in sorted(used)
               if name not in names]  # fmt: skip
    whole = {match.group(2) for match in _WHOLE_SCALAR.finditer(template)}
    errors += [FieldError("yaml", f"${{{name}}} must be a value of its own, not part of one.", found=name)
               for name in sorted(used - whole)]  # fmt: skip
    return errors


def render(template: str, parameters: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
    """Put values into a template. Missing ones take their default. Raises Invalid on ``parameters.<name>``."""
    errors: list[FieldError] = []
    texts: dict[str, str] = {}
    known = {str(parameter["name"]) for parameter in parameters}
    errors += [FieldError(f"parameters.{name}", "This template has no such parameter.", code="unknown", found=name,
                          allowed=", ".join(sorted(known)))
               for name in values if name not in known]  # fmt: skip
    for parameter in parameters:
        name = str(parameter["name"])
        value = values.get(name, parameter.get("default", ""))
        error, text = _scalar(parameter, value)
        if error:
            errors.append(error)
        texts[name] = text
    if errors:
        raise Invalid("Some parameters are wrong.", code="parameters", errors=errors)
    return _WHOLE_SCALAR.sub(lambda match: match.group(1) + texts[match.group(2)], template)


def _scalar(parameter: Mapping[str, Any], value: Any) -> tuple[FieldError | None, str]:
    field, kind = f"parameters.{parameter['name']}", parameter["kind"]
    text = str(value).strip()

    def wrong(message: str, allowed: str) -> tuple[FieldError, str]:
        return FieldError(field, message, found=text[:80] or "nothing", allowed=allowed), ""

    if not text:
        return wrong("This parameter needs a value.", "a value") if parameter.get("required", True) else (None, '""')
    if kind == "integer":
        low, high = int(parameter.get("minimum", 0)), int(parameter.get("maximum", 2**31 - 1))
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,10}", text) or not low <= int(text) <= high:
            return wrong("This is a whole number.", f"{low} to {high}")
        return None, str(int(text))
    if kind == "choice":
        choices = [str(choice) for choice in parameter.get("choices", ())]
        return (None, json.dumps(text)) if text in choices else wrong("Choose one of these.", ", ".join(choices))
    if kind in _PATTERNS:
        pattern, longest, allowed = _PATTERNS[kind]
        if not pattern.fullmatch(text) or len(text) > longest:
            return wrong("This value is not allowed here.", f"{allowed}, at most {longest} characters")
    elif len(text) > 1000 or not text.isprintable():
        return wrong("This is one line of text.", "at most 1000 printable characters")
    return None, json.dumps(text, ensure_ascii=False)
