"""Explaining a number: the same number as on the page, its pods, and nobody's names but those one may see."""

from __future__ import annotations

import pytest

from gpupools.errors import Invalid, Missing, NotAllowed
from gpupools.models import Cluster, Role
from gpupools.services import allocation
from gpupools.services.explaining import Figure, explain, figure_of
from tests.domain.builders import a_node, a_pod, filled
from tests.services.builders import a_pool, an_actor
from tests.services.showing import show

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("empty_redis")]
POOL = "gpupools.internal/pool"


@pytest.fixture
def fleet(lab: Cluster) -> Cluster:
    a_pool(lab, "first", mode="cgpu", policy="binpack", node_names=["a"])
    nodes = [a_node("a", cards=2, labels={POOL: "first"}), a_node("b", cards=2)]
    pods = [*filled(4, 5, on="a"), a_pod("secret", mem=6, at={0: 6}, on="b", namespace="payroll", owner_kind="Job")]
    show(lab, nodes, pods)
    return lab


def test_a_figure_on_every_level(fleet: Cluster) -> None:
    actor = an_actor(Role.VIEWER, fleet)

    def value(**place: object) -> int | None:
        return explain(actor, fleet, Figure.MEMORY_UNITS_USED, **place).value  # type: ignore[arg-type]

    assert value() == 15
    assert value() == (allocation.view(fleet)["totals"] or {})["all"]["memory_units_used"]
    assert (value(pool="first"), value(node="a"), value(node="a", gpu=1), value(node="b", gpu=1)) == (9, 9, 5, 0)


def test_parts_have_pools_cards_and_pods(fleet: Cluster) -> None:
    found = explain(an_actor(Role.VIEWER, fleet), fleet, Figure.CARDS_USED)
    assert [(part.node, part.pool, part.gpu, part.amount) for part in found.parts] == [
        ("a", "first", 0, 1),
        ("a", "first", 1, 1),
        ("b", "", 0, 1),
    ]
    assert [pod.name for part in found.parts for pod in part.pods] == ["used-0", "used-1", "secret"]
    assert found.taken_at is not None


def test_amounts_of_other_namespaces_stay_and_names_go(fleet: Cluster) -> None:
    found = explain(an_actor(Role.VIEWER, fleet, "default"), fleet, Figure.MEMORY_UNITS_USED)
    assert found.value == 15
    (hidden,) = [pod for part in found.parts for pod in part.pods if pod.hidden]
    assert (hidden.namespace, hidden.name, hidden.owner) == ("", "another namespace", "")


def test_what_is_not_there_is_said(fleet: Cluster) -> None:
    actor = an_actor(Role.VIEWER, fleet)
    for place, code in (
        ({"node": "x"}, "no-such-node"),
        ({"node": "a", "gpu": 7}, "no-such-card"),
        ({"pool": "x"}, "no-such-pool"),
    ):
        with pytest.raises(Missing) as caught:
            explain(actor, fleet, Figure.CARDS_USED, **place)  # type: ignore[arg-type]
        assert caught.value.code == code
    with pytest.raises(Invalid):
        explain(actor, fleet, Figure.CARDS_USED, gpu=1)
    with pytest.raises(Invalid):
        figure_of("luck")
    with pytest.raises((Missing, NotAllowed)):
        explain(an_actor(name="stranger"), fleet, Figure.CARDS_USED)


def test_nothing_known_is_not_zero(lab: Cluster) -> None:
    found = explain(an_actor(Role.VIEWER, lab), lab, Figure.CARDS_USED)
    assert (found.value, found.parts, found.taken_at) == (None, (), None)
