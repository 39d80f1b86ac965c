"""Which pods nobody has seen that an operation ends, and who is named in the refusal."""

from __future__ import annotations

from typing import Any

import pytest

from gpupools.errors import Conflict
from gpupools.services.endings import check, newcomers


def pod(uid: str, owner: str = "", namespace: str = "default") -> dict[str, Any]:
    return {"uid": uid, "namespace": namespace, "pod": uid, "owner": owner}


@pytest.mark.parametrize(
    ("before", "now", "came"),
    [
        ([], [], []),
        ([pod("a")], [pod("a")], []),
        ([pod("a")], [], []),
        ([pod("a")], [pod("b")], ["default/b"]),
        ([pod("a", "Job/x")], [pod("b", "Job/x")], []),
        ([pod("a", "Job/x")], [pod("a", "Job/x"), pod("b", "Job/x")], ["default/b"]),
        ([pod("a", "Job/x")], [pod("b", "Job/x"), pod("c", "Job/x")], ["default/c"]),
        ([pod("a", "Job/x"), pod("b", "Job/x")], [pod("c", "Job/x"), pod("d", "Job/x")], []),
        ([pod("a", "Job/x")], [pod("b", "Job/y")], ["default/b"]),
        ([pod("a", "Job/x")], [pod("b", "Job/x", "other")], ["other/b"]),
    ],
)
def test_a_newcomer_is_a_pod_that_was_not_shown_and_stands_in_for_none(
    before: list[dict[str, Any]], now: list[dict[str, Any]], came: list[str]
) -> None:
    assert newcomers(before, now) == came


def test_whoever_is_named_may_end() -> None:
    check(["default/a"], ["default/a", "default/gone"], said="{many}: {named}")
    check([], [], said="{many}: {named}")


def test_a_refusal_names_who_is_missing_and_gives_all_as_data() -> None:
    with pytest.raises(Conflict) as refusal:
        check(["default/b", "default/a"], ["default/a"], said="This ends {many}: {named}.")
    assert (refusal.value.code, refusal.value.message) == ("kills-pods", "This ends 1 pod: default/b.")
    assert refusal.value.data["pods"] == ["default/a", "default/b"]


def test_a_long_refusal_is_cut_in_words_and_whole_as_data() -> None:
    many = [f"default/p{number:02}" for number in range(25)]
    with pytest.raises(Conflict) as refusal:
        check(many, [], said="This ends {many}: {named}.")
    assert refusal.value.message.startswith("This ends 25 pods: default/p00, ")
    assert refusal.value.message.endswith("default/p19 and more.")
    assert refusal.value.data["pods"] == many
