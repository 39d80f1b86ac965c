"""House rules of templates and scripts that no single page shows: nothing inline, every word translatable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from gpupools.domain.changes import State
from gpupools.domain.requests import STATES
from gpupools.models import ChangeStep, Cluster, ComponentState, NodePool, Push, Submission
from gpupools.web import words

ROOT = Path(settings.BASE_DIR)
TEMPLATES = sorted((ROOT / "templates/gpupools").rglob("*.html"))
SCRIPTS = sorted((ROOT / "static/js").glob("*.js"))
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
# Names of things that are the same in every language.
NAMES = {
    "GPU",
    "EX",
    "MiB",
    "OpenAPI 3",
    "Authorization: Bearer …",
    "ack.node.gpu.schedule",
    "ack.node.gpu.placement",
    "curl",
    "UTC",
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_inline(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\sstyle=", text)
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"\son[a-z]+=", text)
    assert not re.search(r"(src|href)=\"(https?:)?//", text)
    assert "|safe" not in text
    assert "autoescape" not in text


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_word_of_a_template_can_be_translated(path: Path) -> None:
    text = COMMENT.sub("", path.read_text())
    text = re.sub(r"\{% blocktranslate.*?\{% endblocktranslate %\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\{% block body_attributes %\}.*?\{% endblock %\}", "", text)
    text = re.sub(r"<pre class=\"table-text\"[^>]*>curl.*?</pre>", "", text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "\0", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", "\n", text)
    left = {piece.strip(" \t\0·×/()[]:,.=—–−+%1") for piece in re.split(r"[\n\0]", text)}
    said = {piece for piece in left if re.search(r"[A-Za-z]{2}", piece)} - NAMES
    assert not said


def test_the_script_says_only_what_the_server_translates() -> None:
    known = set(words.for_script())
    literal = {key for path in SCRIPTS for key in re.findall(r'\bsay\(\s*"([^"$]+)"', path.read_text())}
    literal |= {
        f"{key}.{n}"
        for path in SCRIPTS
        for key in re.findall(r'\bcounted\("([^"]+)"', path.read_text())
        for n in ("one", "many")
    }
    assert literal <= known
    assert literal, "the search itself is broken"


def test_scripts_keep_to_what_the_policy_allows() -> None:
    for path in SCRIPTS:
        text = path.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.style\b", text
        ), path


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("cluster", Cluster.State.values),
        ("pool", NodePool.State.values),
        ("component", ComponentState.State.values),
        ("change", [state.value for state in State]),
        ("step", ChangeStep.State.values),
        ("submission", Submission.State.values),
        ("push", Push.State.values),
        ("request", [state.value for state in STATES]),
    ],
)
def test_every_state_has_an_icon_and_a_word(kind: str, values: list[str]) -> None:
    sprite = (ROOT / "static/icons/sprite.svg").read_text()
    for value in values:
        found = words.SIGNS[kind][value]
        assert f'id="{found.icon}"' in sprite
        assert str(found.word)
        assert found.tone in {"ok", "warn", "bad", "info", "none"}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_text_reach_aa_on_their_ground(theme: str) -> None:
    css = (ROOT / "static/css/app.css").read_text()
    block = re.search(rf'\[data-bs-theme="{theme}"\] \{{(.*?)\n\}}', css, re.DOTALL)
    assert block
    token = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block[1]))
    grounds = ("ground", "surface", "surface-2")
    pairs = [(ink, ground) for ink in ("ink", "ink-2", "ink-3") for ground in grounds]
    pairs += [(ink, ground) for ink in ("accent", "ok", "warn", "bad") for ground in ("surface", "surface-2")]
    pairs += [(ink, f"{ink}-soft") for ink in ("ok", "warn", "bad", "accent", "embedded")]
    pairs += [("ink", f"{soft}-soft") for soft in ("ok", "warn", "bad", "accent")]
    pairs += [("mode-ink", f"mode-{code}") for code in ("ex", "cg", "cm", "sh", "mp", "tp", "other")]
    pairs += [("accent-ink", "accent"), ("accent-ink", "accent-strong"), ("mode-ink", "bad")]
    poor = {
        pair: round(_contrast(token[pair[0]], token[pair[1]]), 2)
        for pair in pairs
        if _contrast(token[pair[0]], token[pair[1]]) < 4.5
    }
    assert not poor
