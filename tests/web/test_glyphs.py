"""The card glyph's arithmetic: exact to the pixel, nothing held is invisible, nothing is merged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpupools.web import glyphs
from gpupools.web.templatetags import age, card_glyph, extras, node_glyphs, slots_glyph


def a_holding(
    units: int = 0, *, cards: int = 0, core: int = 0, releasing: bool = False, pod: str = "p"
) -> dict[str, Any]:
    return {
        "uid": pod,
        "namespace": "default",
        "pod": pod,
        "memory_units": units,
        "core_percent": core,
        "cards": cards,
        "releasing": releasing,
        "owner": "",
    }


def a_gpu(
    *holdings: dict[str, Any], total: int = 15, core: int = 0, index: int = 0, healthy: bool = True
) -> dict[str, Any]:
    return {
        "index": index,
        "memory_units": total,
        "memory_units_used": sum(each["memory_units"] for each in holdings),
        "memory_units_releasing": sum(each["memory_units"] for each in holdings if each["releasing"]),
        "core_percent": core,
        "core_percent_used": sum(each["core_percent"] for each in holdings),
        "cards_used": sum(each["cards"] for each in holdings),
        "healthy": healthy,
        "holdings": list(holdings),
    }


def a_row(*gpus: dict[str, Any], mode: str | None = "cgpu", **fields: Any) -> dict[str, Any]:
    return {
        "mode": mode,
        "cards": len(gpus),
        "cards_used": 0,
        "cards_releasing": 0,
        "cards_missing": 0,
        "memory_units": sum(gpu["memory_units"] for gpu in gpus),
        "memory_units_used": 0,
        "memory_units_releasing": 0,
        "memory_units_pending": 0,
        "memory_units_orphan": 0,
        "gpus": list(gpus),
        "holdings": [],
        **fields,
    }


@pytest.mark.parametrize(
    ("amounts", "scale", "spans"),
    [
        pytest.param([15], 15, [(0, 96)], id="a full card is the whole bar"),
        pytest.param([5, 5, 5], 15, [(0, 32), (32, 32), (64, 32)], id="thirds are equal"),
        pytest.param(
            [1] * 7,
            7,
            [(0, 14), (14, 13), (27, 14), (41, 14), (55, 14), (69, 13), (82, 14)],
            id="rounding never adds up",
        ),
        pytest.param([1], 1000, [(0, 1)], id="what is held is never invisible"),
        pytest.param([0, 3], 3, [(0, 0), (0, 96)], id="nothing is nothing"),
        pytest.param([], 15, [], id="an empty card has no segment"),
    ],
)
def test_amounts_become_whole_pixels(amounts: list[int], scale: int, spans: list[tuple[int, int]]) -> None:
    assert glyphs.edges(amounts, scale) == spans


def test_holders_come_in_their_order_in_two_shades() -> None:
    drawn = glyphs.bar(a_gpu(a_holding(6, pod="a"), a_holding(3, pod="b"), a_holding(2, pod="c")))
    assert [(segment.shade, segment.label) for segment in drawn.segments] == [
        ("a", "default/a"),
        ("b", "default/b"),
        ("a", "default/c"),
    ]
    assert (drawn.used, drawn.total, drawn.over) == (11, 15, False)


def test_more_than_the_card_has_rescales_the_bar_and_marks_the_limit() -> None:
    drawn = glyphs.bar(a_gpu(a_holding(15), a_holding(15, pod="q")))
    assert drawn.over
    assert drawn.limit_x == 48
    assert sum(segment.width for segment in drawn.segments) == glyphs.WIDTH
    html = card_glyph(a_gpu(a_holding(15), a_holding(15, pod="q")), "cgpu")
    assert "over-allocated" in html
    assert 'fill="url(#cross)"' in html
    assert ">30/15<" in html


def test_what_is_releasing_is_hatched_and_still_counted() -> None:
    html = card_glyph(a_gpu(a_holding(6, releasing=True)), "cgpu")
    assert html.count('fill="url(#hatch)"') == 1
    assert ">6/15<" in html


def test_compute_is_a_second_bar_where_it_is_enforced_and_nowhere_else() -> None:
    assert "core-track" in card_glyph(a_gpu(a_holding(8, core=30), core=100), "core_mem")
    assert "core-track" not in card_glyph(a_gpu(a_holding(8)), "cgpu")


def test_an_unhealthy_card_has_a_pattern_and_a_word() -> None:
    html = card_glyph(a_gpu(healthy=False), "cgpu")
    assert 'fill="url(#cross)"' in html
    assert "unhealthy" in html


def test_whole_cards_fill_from_the_left_and_name_no_index() -> None:
    row = a_row(mode="exclusive", cards=4, cards_used=3, holdings=[a_holding(cards=2), a_holding(cards=1, pod="q")])
    drawn = glyphs.slots(row)
    assert [segment and segment.shade for segment in drawn.segments] == ["a", "a", "b", None]
    assert not drawn.indexed
    assert "does not tell which" in slots_glyph(row)


def test_topology_cards_stand_at_their_index() -> None:
    gpus = [
        a_gpu(*held, total=0, index=index)
        for index, held in enumerate([[], [a_holding(cards=1)], [], [a_holding(cards=1)]])
    ]
    drawn = glyphs.slots(a_row(*gpus, mode="topology", cards_used=2))
    assert [segment is not None for segment in drawn.segments] == [False, True, False, True]
    assert drawn.indexed


def test_more_whole_cards_than_there_are_get_a_limit() -> None:
    row = a_row(mode="exclusive", cards=2, cards_used=3, holdings=[a_holding(cards=3)])
    assert glyphs.slots(row).limit_x is not None
    assert len(glyphs.slots(row).segments) == 3


def test_a_node_without_cards_is_a_dash_with_its_reason() -> None:
    assert "reports no GPU cards" in node_glyphs(a_row())


def test_cards_that_are_not_reported_any_more_are_named_beside_the_dash() -> None:
    html = node_glyphs(a_row(cards_missing=2))
    assert "reports no GPU cards" in html
    assert "2 cards not reported" in html
    assert "url(#cross)" in html


def test_pending_orphan_and_releasing_are_never_merged() -> None:
    html = extras(a_row(memory_units_pending=1, memory_units_orphan=2, memory_units_releasing=3, cards_releasing=1))
    for said in ("1 unit pending", "2 units orphan", "3 units releasing", "1 card releasing"):
        assert said in html


def test_a_pods_name_cannot_break_out_of_the_drawing() -> None:
    html = card_glyph(a_gpu(a_holding(6, pod="</title><script>")), "cgpu")
    assert "<script>" not in html


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (172800, "2 d ago"),
        (-90, "in 1 min"),
    ],
)
def test_an_age_is_in_the_largest_whole_unit(seconds: int, said: str) -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert age(now - timedelta(seconds=seconds), now) == said


def test_what_was_set_to_ninety_days_is_called_that_a_moment_later() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert age(now + timedelta(days=90, seconds=-5), now) == "in 90 d"
    assert age(now - timedelta(days=89, hours=23), now) == "89 d ago", "what is past is never rounded up"
