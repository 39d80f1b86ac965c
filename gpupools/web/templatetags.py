"""What templates draw with: icons, ages, states, modes, unknowns and the card glyph.

No rules, and no query but one for a change under way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from gpupools.domain.modes import MODES, Mode
from gpupools.models import ModeChange
from gpupools.services import courses
from gpupools.web import glyphs, words

register = template.Library()


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """Draw a symbol of the sprite; it is decoration, the word beside it speaks."""
    return format_html(
        '<svg class="i {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        extra,
        static("icons/sprite.svg"),
        name,
    )


@register.simple_tag
def state(kind: str, value: object, extra: str = "") -> SafeString:
    """Show a state as icon and word."""
    found = words.sign(kind, value)
    spin = "spin" if found.icon == "loader-2" else ""
    return format_html(
        '<span class="state tone-{} {}">{}{}</span>', found.tone, extra, icon(found.icon, spin), found.word
    )


@register.simple_tag
def change_state(change: ModeChange) -> SafeString:
    """Show the state of a mode change; one whose step is a person's to do says so."""
    return state("change", "by_hand" if courses.waiting_for_a_person(change) else change.state)


@register.simple_tag
def state_icon(kind: str, value: object) -> SafeString:
    """Show only a state's icon, its word for screen readers."""
    found = words.sign(kind, value)
    spin = "spin" if found.icon == "loader-2" else ""
    return format_html(
        '<span class="tone-{}" title="{}">{}<span class="visually-hidden">{}</span></span>',
        found.tone,
        found.word,
        icon(found.icon, spin),
        found.word,
    )


@register.simple_tag
def advice_word(code: str) -> str:
    """Say in few words what there is to know of a pool; a code that nobody listed is shown as it is."""
    return str(words.ADVICE.get(code, code))


@register.simple_tag
def unknown(reason: object = "") -> SafeString:
    """Show that a value is not known, and why; never a zero."""
    why = str(reason) or _("Not known")
    return format_html('<span class="unknown" title="{}">—<span class="visually-hidden"> {}</span></span>', why, why)


@register.simple_tag
def given(value: object, reason: object = "") -> SafeString | object:
    """Show a value, or the dash with its reason where it is None or empty."""
    return unknown(reason) if value is None or value == "" else value


@register.simple_tag
def ago(value: datetime | str | float | None, reason: object = "") -> SafeString:
    """Show how long ago an instant was; the script keeps it true and puts the instant on hover."""
    moment = instant(value)
    if moment is None:
        return unknown(reason or _("Never seen"))
    return format_html(
        '<time datetime="{}" data-ago title="{}">{}</time>',
        moment.isoformat(),
        moment.strftime("%Y-%m-%d %H:%M:%S UTC"),
        age(moment, timezone.now()),
    )


@register.simple_tag
def about(seconds: int | None) -> str:
    """Say how long something takes, in the largest whole unit; nothing where that is unknown."""
    if not seconds:
        return ""
    if seconds < 60:
        return words.say("age.s", count=seconds)
    if seconds < 3600:
        return words.say("age.min", count=round(seconds / 60))
    return words.say("age.h", count=round(seconds / 3600))


def instant(value: datetime | str | float | None) -> datetime | None:
    """Read an instant from a row, a wire value or a Unix time."""
    if value in (None, ""):
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except ValueError:
            return None
    return datetime.fromtimestamp(value, UTC)


_UNITS = (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, float("inf")))


def age(moment: datetime, now: datetime) -> str:
    """Say an age in the largest whole unit; static/js/ages.js says it the same way."""
    seconds = int((now - moment).total_seconds())
    ahead, seconds = seconds < 0, abs(seconds)
    unit, size = next((unit, size) for unit, size, end in _UNITS if seconds < end)
    # What was set to 90 days is still called that a moment later.
    count = (seconds + size // 20) // size if ahead else seconds // size
    amount = words.say(f"age.{unit}", count=count)
    return words.say("age.ahead" if ahead else "age.ago", amount=amount)


@register.simple_tag
def mode(value: object, policy: object = "", short: str = "") -> SafeString:
    """Show a mode by its two-letter code and its name. Empty: none is declared; None: a value nobody knows."""
    if value == "":
        return unknown(_("No scheduling mode is declared."))
    try:
        facts = MODES[Mode(str(value))]
    except ValueError:
        return format_html(
            '<span class="mode mode-unknown"><span class="mode-code">??</span><span>{}</span></span>',
            str(value) if value else words.say("mode.undeclared"),
        )
    detail = format_html(' <span class="policy">{}</span>', policy) if policy and facts.shared else ""
    name = "" if short else format_html("<span>{}{}</span>", facts.mode.value, detail)
    return format_html(
        '<span class="mode mode-{}" title="{}"><span class="mode-code">{}</span>{}</span>',
        facts.mode.value,
        facts.title,
        facts.code,
        name,
    )


@register.simple_tag
def bad_rows(field: Any) -> Collection[str]:
    """Return which rows of keys and values have an error: by key, or by their number where keys may repeat."""
    return field.form.bad_rows.get(field.name, ())


@register.filter
def entry(mapping: Mapping[str, Any], key: object) -> Any:
    """Look a key up in a mapping; None when it is not there."""
    return mapping.get(str(key))


@register.filter
def percent(part: int | None, whole: int | None) -> str:
    """Return a truncated percentage, as ``kubectl inspect cgpu`` prints it; a dash without a whole."""
    return f"{part * 100 // whole}%" if part is not None and whole else "—"


@register.simple_tag
def share(sums: Mapping[str, Any] | None, part: str, whole: str) -> str:
    """Return the percentage of two sums; a dash while there are none."""
    return percent(sums[part], sums[whole]) if sums else "—"


@register.simple_tag
def filled(sums: Mapping[str, Any] | None, part: str, whole: str) -> int:
    """Return how much of a bar of 100 is filled; static/js/dashboard.js goes on from there."""
    return min(100, round(sums[part] * 100 / sums[whole])) if sums and sums[whole] else 0


@register.simple_tag
def said(key: str, **values: object) -> str:
    """Say a sentence that pages and their script share."""
    return words.say(key, **values)


@register.simple_tag
def said_count(key: str, count: int) -> str:
    """Say a counted sentence that pages and their script share."""
    return words.say_count(key, count)


@register.simple_tag
def node_glyphs(row: Mapping[str, Any], href: str = "") -> SafeString:
    """Draw all cards of a node's wire row. With ``href`` each is a link to the card on that page."""
    if not row["cards"] and not row["gpus"]:
        return format_html('<span class="glyphs">{}{}</span>', unknown(words.say("glyph.none")), extras(row))
    if glyphs.is_shared(row):
        drawn = [_linked(card_glyph(gpu, row["mode"]), gpu["index"], row["mode"], href) for gpu in row["gpus"]]
    else:
        drawn = [_linked(slots_glyph(row), -1, row["mode"], href)]
    return format_html(
        '<span class="glyphs">{}{}</span>', format_html_join("", "{}", ((d,) for d in drawn)), extras(row)
    )


def _linked(drawing: SafeString, index: int, row_mode: str | None, href: str) -> SafeString:
    css = f"card-glyph mode-{row_mode or 'unknown'}"
    if not href:
        return format_html('<span class="{}">{}</span>', css, drawing)
    return format_html(
        '<a class="{}" href="{}#card-{}" data-card="{}">{}</a>', css, href, max(index, 0), index, drawing
    )


@register.simple_tag
def card_glyph(gpu: Mapping[str, Any], row_mode: str | None, wide: str = "") -> SafeString:
    """Draw one card of a shared node, with ``used/total`` beside it."""
    drawn = glyphs.bar(gpu)
    parts = [mark_safe(f'<rect class="track" width="{glyphs.WIDTH}" height="12"/>')]  # noqa: S308  # numbers only
    parts += [_segment(segment, "held", 0, 12) for segment in drawn.segments]
    if drawn.limit_x is not None:
        over = glyphs.WIDTH - drawn.limit_x
        parts.append(format_html('<rect x="{}" width="{}" height="12" fill="url(#cross)"/>', drawn.limit_x, over))
        parts.append(format_html('<rect class="limit" x="{}" width="2" height="12"/>', drawn.limit_x))
    if not drawn.healthy:
        parts.append(format_html('<rect width="{}" height="12" fill="url(#cross)"/>', glyphs.WIDTH))
    if drawn.core_total:
        parts.append(format_html('<rect class="core-track" y="13" width="{}" height="3"/>', glyphs.WIDTH))
        parts += [_segment(segment, "core", 13, 3) for segment in drawn.core]
    parts.append(mark_safe(f'<rect class="frame" width="{glyphs.WIDTH}" height="12"/>'))  # noqa: S308  # numbers only
    pods = words.say_count("glyph.pods", drawn.holders)
    text = words.say("glyph.bar", index=drawn.index, used=drawn.used, total=drawn.total, pods=pods)
    if drawn.core_total:
        text += words.say("glyph.core", used=drawn.core_used, total=drawn.core_total)
    if drawn.over:
        text += words.say("glyph.over")
    if not drawn.healthy:
        text += words.say("glyph.unhealthy")
    flags = f"{'is-over ' if drawn.over else ''}{'' if drawn.healthy else 'is-unhealthy '}{wide}"
    return format_html(
        '<svg class="glyph bar {}" width="{}" height="16" viewBox="0 0 {} 16" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><title>{}</title>{}</svg><span class="count-text">{}/{}</span>',
        flags,
        glyphs.WIDTH,
        glyphs.WIDTH,
        text,
        text,
        format_html_join("", "{}", ((p,) for p in parts)),
        drawn.used,
        drawn.total,
    )


@register.simple_tag
def slots_glyph(row: Mapping[str, Any]) -> SafeString:
    """Draw the whole cards of a node as slots, with ``used/total`` beside them."""
    drawn = glyphs.slots(row)
    parts = []
    for place, segment in enumerate(drawn.segments):
        x = place * (glyphs.SLOT + glyphs.GAP)
        if segment is None:
            parts.append(format_html('<rect class="track" x="{}" width="16" height="12"/>', x))
        else:
            parts.append(_segment(segment, "held", 0, 12))
        parts.append(format_html('<rect class="frame" x="{}" width="16" height="12"/>', x))
    if drawn.limit_x is not None:
        parts.append(format_html('<rect class="limit" x="{}" width="2" height="16"/>', drawn.limit_x))
    text = words.say("glyph.slots", used=drawn.used, total=drawn.total)
    text += "" if drawn.indexed else words.say("glyph.which")
    return format_html(
        '<svg class="glyph slots {}" width="{}" height="16" viewBox="0 0 {} 16" role="img" aria-label="{}">'
        '<title>{}</title>{}</svg><span class="count-text">{}/{}</span>',
        "is-over" if drawn.limit_x is not None else "",
        drawn.width,
        drawn.width,
        text,
        text,
        format_html_join("", "{}", ((p,) for p in parts)),
        drawn.used,
        drawn.total,
    )


def _segment(segment: glyphs.Segment, css: str, y: int, height: int) -> SafeString:
    box = format_html('x="{}" y="{}" width="{}" height="{}"', segment.x, y, segment.width, height)
    shade = "" if segment.shade == "a" else " b"
    main = format_html('<rect class="{}{}" {}><title>{}</title></rect>', css, shade, box, segment.label)
    return main + format_html('<rect fill="url(#hatch)" {}/>', box) if segment.releasing else main


@register.simple_tag
def extras(row: Mapping[str, Any]) -> SafeString:
    """Name what is not on a card: pending, orphan and releasing amounts, each with its pattern and word."""
    kinds = (
        ("dots", "tone-warn", "extra.pending", row["memory_units_pending"]),
        ("cross", "tone-bad", "extra.orphan", row["memory_units_orphan"]),
        ("hatch", "quiet", "extra.releasing", row["memory_units_releasing"]),
        ("hatch", "quiet", "extra.cards", row["cards_releasing"]),
        ("cross", "tone-bad", "cards.missing", row["cards_missing"]),
    )
    shown = (_extra(pattern, tone, words.say_count(key, count)) for pattern, tone, key, count in kinds if count)
    return format_html_join("", "{}", ((piece,) for piece in shown))


def _extra(pattern: str, tone: str, text: str) -> SafeString:
    return format_html(
        '<span class="extra {}"><svg class="glyph mode-unknown" width="14" height="12" aria-hidden="true">'
        '<rect class="{}" width="14" height="12"/><rect width="14" height="12" fill="url(#{})"/>'
        '<rect class="frame" width="14" height="12"/></svg>{}</span>',
        tone,
        "held" if pattern == "hatch" else "track",
        pattern,
        text,
    )
