"""Every state that a page shows: its tone, its icon and its word. Colour never speaks alone."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class Sign(NamedTuple):
    """How one state looks. ``tone``: ok, warn, bad, info or none; ``icon``: a symbol of the sprite."""

    tone: str
    icon: str
    word: str | Promise


_OK, _BAD, _WARN = "circle-check", "circle-x", "alert-triangle"
SIGNS: dict[str, dict[str, Sign]] = {
    "cluster": {
        "new": Sign("info", "circle-dashed", _("Not probed yet")),
        "connected": Sign("ok", _OK, _("Connected")),
        "unreachable": Sign("bad", "plug-off", _("Unreachable")),
    },
    "pool": {
        "pending": Sign("info", "hourglass", _("Waiting to be created")),
        "creating": Sign("info", "loader-2", _("Creating")),
        "active": Sign("ok", _OK, _("Active")),
        "updating": Sign("info", "loader-2", _("Updating")),
        "deleting": Sign("warn", "trash", _("Deleting")),
        "failed": Sign("bad", _BAD, _("Failed")),
        "gone": Sign("bad", "circle-minus", _("Gone from the cluster")),
    },
    "component": {
        "absent": Sign("none", "circle-minus", _("Not installed")),
        "installing": Sign("info", "loader-2", _("Installing")),
        "installed": Sign("ok", _OK, _("Installed")),
        "degraded": Sign("warn", _WARN, _("Degraded")),
        "removing": Sign("warn", "trash", _("Removing")),
        "failed": Sign("bad", _BAD, _("Failed")),
        "": Sign("none", "help-circle", _("Not checked yet")),
    },
    "change": {
        "pending": Sign("warn", "hourglass", _("Waiting for a decision")),
        "approved": Sign("info", "circle-check", _("Approved, about to start")),
        "rejected": Sign("bad", "ban", _("Rejected")),
        "withdrawn": Sign("none", "arrow-back-up", _("Withdrawn")),
        "expired": Sign("none", "clock", _("Expired undecided")),
        "lapsed": Sign("warn", _WARN, _("Lapsed: the pool moved")),
        "applying": Sign("info", "loader-2", _("Being carried out")),
        "by_hand": Sign("warn", "hourglass", _("Waits for a person")),
        "applied": Sign("ok", _OK, _("Applied")),
        "failed": Sign("bad", _BAD, _("Failed")),
        "paused": Sign("warn", "player-pause", _("Paused")),
        "rolling_back": Sign("warn", "arrow-back-up", _("Rolling back")),
        "rolled_back": Sign("none", "arrow-back-up", _("Rolled back")),
        "abandoned": Sign("none", "circle-minus", _("Abandoned")),
    },
    "request": {
        "pending": Sign("warn", "hourglass", _("Waiting for a decision")),
        "approved": Sign("ok", _OK, _("Approved")),
        "rejected": Sign("bad", "ban", _("Rejected")),
        "withdrawn": Sign("none", "arrow-back-up", _("Withdrawn")),
        "expired": Sign("none", "clock", _("Expired undecided")),
        "lapsed": Sign("warn", _WARN, _("Lapsed: something moved")),
    },
    "step": {
        "waiting": Sign("none", "circle-dashed", _("Not started")),
        "running": Sign("info", "loader-2", _("Running")),
        "paused": Sign("warn", "player-pause", _("Paused")),
        "done": Sign("ok", "check", _("Done")),
        "failed": Sign("bad", "x", _("Failed")),
        "skipped": Sign("none", "circle-minus", _("Not carried out")),
    },
    "submission": {
        "queued": Sign("info", "hourglass", _("Queued")),
        "submitted": Sign("ok", _OK, _("Submitted")),
        "failed": Sign("bad", _BAD, _("Not accepted")),
        "deleting": Sign("warn", "trash", _("Deleting")),
        "deleted": Sign("none", "circle-minus", _("Deleted")),
    },
    "outcome": {
        "queued": Sign("info", "hourglass", _("Queued")),
        "not accepted": Sign("bad", _BAD, _("Not accepted")),
        "waiting": Sign("warn", "hourglass", _("Waiting")),
        "running": Sign("info", "player-play", _("Running")),
        "crashing": Sign("bad", _BAD, _("Crashes again and again")),
        "succeeded": Sign("ok", _OK, _("Succeeded")),
        "failed": Sign("bad", _BAD, _("Failed")),
        "suspended": Sign("none", "player-pause", _("Suspended")),
        "deleting": Sign("warn", "trash", _("Deleting")),
        "deleted": Sign("none", "circle-minus", _("Deleted")),
        "unknown": Sign("none", "help-circle", _("Unknown")),
    },
    "phase": {
        "Pending": Sign("warn", "hourglass", _("Pending")),
        "Running": Sign("ok", "player-play", _("Running")),
        "Succeeded": Sign("ok", _OK, _("Succeeded")),
        "Failed": Sign("bad", _BAD, _("Failed")),
        "Unknown": Sign("none", "help-circle", _("Unknown")),
        "CrashLoopBackOff": Sign("bad", _BAD, _("Crashes again and again")),
        "Terminating": Sign("warn", "trash", _("Terminating")),
        "Active": Sign("ok", "player-play", _("Running")),
        "Complete": Sign("ok", _OK, _("Complete")),
        "Suspended": Sign("none", "player-pause", _("Suspended")),
    },
    "node": {
        "ready": Sign("ok", _OK, _("Ready")),
        "notready": Sign("bad", _BAD, _("Not ready")),
        "cordoned": Sign("warn", "ban", _("Cordoned")),
    },
    "check": {
        "ok": Sign("ok", _OK, _("OK")),
        "wrong": Sign("bad", _BAD, _("Wrong")),
        "unknown": Sign("none", "help-circle", _("Unknown")),
    },
    "severity": {
        "error": Sign("bad", _BAD, _("Error")),
        "warning": Sign("warn", _WARN, _("Warning")),
        "info": Sign("info", "info-circle", _("Note")),
    },
    "verdict": {
        "chosen": Sign("ok", _OK, _("Chosen")),
        "tie": Sign("info", "circle-check", _("As good: either may be taken")),
        "fits": Sign("none", "check", _("Fits")),
        "rejected": Sign("bad", _BAD, _("Does not fit")),
    },
    "push": {
        "queued": Sign("info", "loader-2", _("On its way")),
        "done": Sign("ok", _OK, _("Done")),
        "failed": Sign("bad", _BAD, _("Failed")),
    },
    "token": {
        "active": Sign("ok", _OK, _("Active")),
        "expired": Sign("none", "clock", _("Expired")),
        "revoked": Sign("none", "ban", _("Revoked")),
    },
}


def sign(kind: str, value: object) -> Sign:
    """Return how a state looks; a value that nobody listed is shown as it is, with a question mark."""
    found = SIGNS[kind].get(str(value))
    return found or Sign("none", "help-circle", str(value) or _("Unknown"))


# What to know of a pool, in the two or three words that a list has room for.
ADVICE: dict[str, str | Promise] = {
    "mixed-modes": _("mixed modes"),
    "mixed-cards": _("mixed cards"),
    "unknown-type": _("unknown machines"),
    "same-labels": _("same labels as another"),
    "fits-two-pools": _("labels fit two pools"),
    "scaling-type": _("type of auto scaling"),
}


# Sentences that pages and their script both say: templates through ``say``, the script through words.js.
SENTENCES: dict[str, str | Promise] = {
    "age.s": _("%(count)s s"),
    "age.min": _("%(count)s min"),
    "age.h": _("%(count)s h"),
    "age.d": _("%(count)s d"),
    "age.ago": _("%(amount)s ago"),
    "age.ahead": _("in %(amount)s"),
    "glyph.bar": _("GPU %(index)s: %(used)s of %(total)s units held by %(pods)s"),
    "glyph.pods.one": _("1 pod"),
    "glyph.pods.many": _("%(n)s pods"),
    "glyph.core": _(", compute %(used)s of %(total)s %%"),
    "glyph.over": _(", over-allocated"),
    "glyph.unhealthy": _(", unhealthy"),
    "glyph.slots": _("%(used)s of %(total)s whole cards held"),
    "glyph.which": _(" (the API does not tell which)"),
    "glyph.none": _("The node reports no GPU cards in any mode."),
    "extra.pending.one": _("1 unit pending"),
    "extra.pending.many": _("%(n)s units pending"),
    "extra.orphan.one": _("1 unit orphan"),
    "extra.orphan.many": _("%(n)s units orphan"),
    "extra.releasing.one": _("1 unit releasing"),
    "extra.releasing.many": _("%(n)s units releasing"),
    "extra.cards.one": _("1 card releasing"),
    "extra.cards.many": _("%(n)s cards releasing"),
    "mode.undeclared": _("Unknown"),
    "node.notready": _("Not ready"),
    "node.cordoned": _("Cordoned"),
    "node.drift.one": _("1 label differs from the pool"),
    "node.drift.many": _("%(n)s labels differ from the pool"),
    "node.warnings.one": _("1 warning"),
    "node.warnings.many": _("%(n)s warnings"),
    "node.wrong.one": _("Wrong: %(n)s check"),
    "node.wrong.many": _("Wrong: %(n)s checks"),
    "cards.missing.one": _("1 card not reported"),
    "cards.missing.many": _("%(n)s cards not reported"),
    "node.no_pool": _("in no pool"),
    "node.cards": _("%(cards)s × %(model)s"),
    "board.shown": _("%(shown)s of %(total)s nodes"),
    "sum.units": _("units · %(percent)s"),
    "sum.cards": _("cards · %(percent)s"),
}


def say(key: str, **values: object) -> str:
    """Fill a sentence."""
    return str(SENTENCES[key]) % values


def say_count(key: str, count: int) -> str:
    """Fill a counted sentence."""
    return say(f"{key}.one" if count == 1 else f"{key}.many", n=count)


# What only the script says.
SCRIPT_ONLY: dict[str, str | Promise] = {
    "live.connecting": _("connecting"),
    "live.live": _("live · %(age)s"),
    "live.polled": _("every %(seconds)s s · %(age)s"),
    "live.stale": _("stale since %(time)s"),
    "live.signed_out": _("signed out"),
    "live.none": _("no numbers yet"),
    "live.back": _("Live again."),
    "live.lost": _("The connection was lost; numbers are from %(time)s."),
    "live.changed.one": _("1 node changed."),
    "live.changed.many": _("%(n)s nodes changed."),
    "panel.card": _("GPU %(index)s"),
    "panel.cards": _("Whole cards"),
    "panel.unplaced": _("On no card"),
    "panel.free.one": _("1 unit free"),
    "panel.free.many": _("%(n)s units free"),
    "panel.free_cards.one": _("1 card free"),
    "panel.free_cards.many": _("%(n)s cards free"),
    "panel.units.one": _("1 unit"),
    "panel.units.many": _("%(n)s units"),
    "panel.core": _("%(n)s %% compute"),
    "panel.whole.one": _("1 card"),
    "panel.whole.many": _("%(n)s cards"),
    "panel.releasing": _("releasing"),
    "panel.nobody": _("Nobody holds it."),
    "panel.which": _("The API server does not tell which card a pod has."),
    "panel.page": _("Open the node's page"),
    "panel.drift": _("%(key)s is %(found)s%(by)s; the pool wants %(wanted)s"),
    "panel.absent": _("not there"),
    "panel.gone": _("This node is gone."),
    "copy.done": _("Copied"),
    "log.following": _("following"),
    "log.paused": _("paused"),
    "log.failed": _("The log could not be read: %(reason)s"),
}


def for_script() -> dict[str, str]:
    """Return every sentence of the script in the reader's language."""
    return {key: str(sentence) for key, sentence in {**SENTENCES, **SCRIPT_ONLY}.items()}
