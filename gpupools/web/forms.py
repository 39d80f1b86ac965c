"""What forms share: classes for the stylesheet, rows of keys and values, and services' errors put at their field.

Rules are the services'; a form only reads what was typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.forms.utils import ErrorDict
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gpupools.errors import Conflict, ConsoleError, FieldError, Invalid, Refused, Unreachable

Result = TypeVar("Result")
_CLASSES: tuple[tuple[type[forms.Widget], str], ...] = (
    (forms.CheckboxInput, "form-check-input"),
    (forms.CheckboxSelectMultiple, ""),
    (forms.RadioSelect, ""),
    (forms.Select, "form-select mid"),
    (forms.Textarea, "form-control code"),
    (forms.NumberInput, "form-control narrow"),
    (forms.Widget, "form-control mid"),
)


MORE_ROWS = "more_rows"
BLANKS_ASKED_FOR = 6


class ConsoleForm(forms.Form):
    """A form whose errors may come from a service. What was typed is kept whatever happens."""

    required_css_class = "required"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        self.bad_rows: dict[str, set[str]] = {}
        for field in self.fields.values():
            wanted = next(css for kind, css in _CLASSES if isinstance(field.widget, kind))
            own = field.widget.attrs.get("class", "")
            field.widget.attrs["class"] = f"{wanted} {own}".strip()

    @property
    def wants_rows(self) -> bool:
        """Whether the person only asked for more rows of keys and values, which takes a way to the server without
        the script. Nothing is judged then, and everything typed stands as it was.
        """
        return self.is_bound and bool(self.data.get(MORE_ROWS))

    def full_clean(self) -> None:
        if not self.wants_rows:
            return super().full_clean()
        self._errors, self.cleaned_data = ErrorDict(), {}
        return None

    def _clean_form(self) -> None:
        # Browsers send line ends as CR LF, which would make a text larger than what was typed.
        for name, value in self.cleaned_data.items():
            if isinstance(value, str):
                self.cleaned_data[name] = value.replace("\r\n", "\n")
        super()._clean_form()

    def is_valid(self) -> bool:
        return not self.wants_rows and super().is_valid()

    @property
    def blank_rows(self) -> range:
        """How many empty rows stand below those that were filled in."""
        return range(BLANKS_ASKED_FOR if self.wants_rows else 1)

    @property
    def has_field_errors(self) -> bool:
        """Whether some field, and not only the form as a whole, has an error."""
        return any(name in self.fields for name in self.errors)

    def take(self, error: ConsoleError) -> None:
        """Put a service's errors at the fields they speak of, the rest at the top."""
        for each in error.errors:
            field = self._field_of(each)
            where = "" if field is None or each.field.replace(".", "_").endswith(field) else each.field
            self.add_error(field, _sentence(each, where))
            if field is not None and (inside := _inside(where)):
                place = _PLACE.fullmatch(inside)
                self.bad_rows.setdefault(field, set()).add(str(int(place[1]) + 1) if place else inside)
        if not error.errors:
            self.add_error(None, error.message)

    def _field_of(self, error: FieldError) -> str | None:
        parts = [part for part in re.split(r"[.:\[\]]+", error.field) if part]
        candidates = ("_".join(parts), parts[0] if parts else "", parts[-1] if parts else "")
        return next((name for name in candidates if name in self.fields), None)


_PLACE = re.compile(r"([0-9]+)(?:\.([a-z]+))?")


def _inside(path: str) -> str:
    return "".join(re.split(r"[.:]", path, maxsplit=1)[1:])


def _sentence(error: FieldError, where: str) -> str:
    # A path inside a field says which label or which line; the field's own name would only be said twice.
    inside = _inside(where)
    if place := _PLACE.fullmatch(inside):
        # A list counts from 0 and a person from 1.
        inside = _("Row %(number)s") % {"number": int(place[1]) + 1} + (f", {place[2]}" if place[2] else "")
    text = f"{inside}: {error.message}" if inside else error.message
    if error.found and error.found not in text:
        text += " " + _("Found: %(found)s.") % {"found": error.found}
    if error.allowed:
        text += " " + _("Allowed: %(allowed)s.") % {"allowed": error.allowed}
    return text


def attempt(form: ConsoleForm, call: Callable[[], Result]) -> Result | None:
    """Call a service with what a valid form says; None when the form or the service refuses, errors on the form."""
    if not form.is_valid():
        return None
    try:
        return call()
    except (Invalid, Conflict, Refused, Unreachable) as error:
        form.take(error)
        return None


class RowsWidget(forms.Widget):
    """Rows of inputs that share names: ``labels_key``, ``labels_value``. Drawn by a template, not by itself."""

    columns: tuple[str, ...] = ("key", "value")

    def value_from_datadict(self, data: QueryDict | Mapping[str, Any], files: Any, name: str) -> list[tuple[str, ...]]:
        lists = [data.getlist(f"{name}_{column}") if isinstance(data, QueryDict) else [] for column in self.columns]
        return [
            tuple(part.strip() for part in row) for row in zip(*lists, strict=False) if row[0].strip() or row[1].strip()
        ]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}_{self.columns[0]}" not in data


class TaintsWidget(RowsWidget):
    """Rows of key, value and effect."""

    columns = ("key", "value", "effect")


class LabelsField(forms.Field):
    """Free labels, as a mapping."""

    widget = RowsWidget

    def clean(self, value: list[tuple[str, str]]) -> dict[str, str]:
        labels: dict[str, str] = {}
        for key, text in value or ():
            if key in labels:
                raise forms.ValidationError(_("%(key)s: this key is there twice.") % {"key": key})
            labels[key] = text
        return labels


class TaintsField(forms.Field):
    """Taints, as a list of mappings with key, value and effect."""

    widget = TaintsWidget

    def clean(self, value: list[tuple[str, str, str]]) -> list[dict[str, str]]:
        return [{"key": key, "value": text, "effect": effect} for key, text, effect in value or ()]


class WordsField(forms.CharField):
    """Several words in one line or box, separated by blanks, commas or line ends."""

    def clean(self, value: str | None) -> list[str]:
        return re.split(r"[\s,]+", text) if (text := (super().clean(value) or "").strip()) else []


class ReasonForm(ConsoleForm):
    """A reason, which audit and the other person will read."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Kept in the audit log with your name."),
    )


def status_of(form: forms.Form) -> int:
    """Return the HTTP status of a page that shows this form: 400 once it was refused."""
    return 400 if form.is_bound and form.errors else 200
