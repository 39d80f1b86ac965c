"""Room before and after a change, and the pending pods that gain or lose a place."""

from __future__ import annotations

from gpupools.domain.modes import Mode, mode_labels
from gpupools.domain.outlook import outlook, unit_mib
from tests.domain.builders import a_node, a_pod

LABELS = mode_labels(Mode.CGPU, None)


def test_cards_are_converted_into_the_new_modes_units() -> None:
    node = a_node("n1", "exclusive")
    found = outlook([node], [node], [], mode=Mode.CORE_MEM, labels=mode_labels(Mode.CORE_MEM, None), evict=False)
    cards = node.whole_cards
    (before,) = found.before
    assert (before.mode, before.cards, before.memory_units) == ("exclusive", cards, None)
    assert found.after.cards == cards
    assert found.after.core_percent == cards * 100
    assert found.after.memory_units is None or found.after.memory_units % cards == 0


def test_a_pending_pod_that_asks_for_memory_gains_a_place_and_one_that_asks_for_a_card_loses_it() -> None:
    node = a_node("n1", "exclusive", labels={"aliyun.accelerator/nvidia_mem": "16384MiB"})
    pods = [a_pod("small", mem=2, on="", phase="Pending"), a_pod("whole", whole=1, on="", phase="Pending")]
    found = outlook([node], [node], pods, mode=Mode.CGPU, labels=LABELS, evict=False)
    assert [each.pod for each in found.unblocked] == ["small"]
    assert [each.pod for each in found.stranded] == ["whole"]
    assert found.pending == found.asked == 2


def test_an_evicted_pod_that_fits_nowhere_else_is_homeless() -> None:
    node, other = a_node("n1", "exclusive"), a_node("n2", "cgpu")
    pods = [a_pod("train", whole=1, on="n1", owner_kind="Job", owner_name="train")]
    evicted = outlook([node], [node, other], pods, mode=Mode.CGPU, labels=LABELS, evict=True)
    assert [each.pod for each in evicted.homeless] == ["train"]
    roomy = a_node("n3", "exclusive")
    found = outlook([node], [node, roomy], pods, mode=Mode.CGPU, labels=LABELS, evict=True)
    assert found.homeless == (), "its owner starts it again on another node"
    assert outlook([node], [node, other], pods, mode=Mode.CGPU, labels=LABELS, evict=False).homeless == ()


def test_the_unit_is_read_from_what_nodes_report() -> None:
    small = a_node("n", "cgpu", labels={"aliyun.accelerator/nvidia_mem": "16384MiB"})
    fine = type(small)(**{**{f: getattr(small, f) for f in small.__struct_fields__},
                          "allocatable": {"aliyun.com/gpu-mem": 256, "aliyun.com/gpu-count": 2}})  # fmt: skip
    assert unit_mib([fine]) == 128
    assert unit_mib([]) == 1024
