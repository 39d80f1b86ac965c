"""The tables of ``kubectl inspect cgpu``, compared byte for byte."""

from __future__ import annotations

import pytest

from gpupools.domain.allocation import fold
from gpupools.domain.inspect import details, document, footnotes, table, whole_table
from tests.domain.builders import COUNT, MEM, a_node, a_pod, container, filled


def test_the_binpack_state_of_a_node_with_four_cards():
    node = a_node("cn-shanghai.192.0.2.109")
    pods = filled(15, 9, on=node.name)
    assert table([fold(node, pods)], {node.name: "192.0.2.109"}) == (
        "NAME                     IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  "
        "GPU3(Allocated/Total)  GPU Memory(GiB)\n"
        "cn-shanghai.192.0.2.109  192.0.2.109  15/15                  9/15                   0/15                   "
        "0/15                   24/60\n"
        "-----------------------------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "24/60 (40%)  \n"
    )


def test_a_mixed_state_with_pending_and_a_card_that_is_not_there():
    n2 = a_node("n2", resources={MEM: 61})
    n1 = a_node("n1", cards=1)
    pods = [
        a_pod("multi", mem=8, at={0: 2, 1: 2, 2: 2, 3: 2}, label_count=4, on="n2"),
        a_pod("twoc", container(mem=3), container(mem=4), at=[{1: 3}, {1: 4}], on="n2"),
        a_pod("v1pod", mem=5, annotations={"ALIYUN_COM_GPU_MEM_IDX": "3"}, on="n2"),
        a_pod("noann", mem=6, on="n2"),
        a_pod("term", mem=1, at={2: 1}, terminating=True, on="n2"),
        a_pod("done", mem=4, at={0: 4}, phase="Succeeded", on="n2"),
        a_pod("stray", mem=2, at={3: 2}, on="n1"),
    ]
    assert table([fold(n2, pods), fold(n1, pods)], {"n1": "10.0.0.1", "n2": "10.0.0.2"}) == (
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  GPU3(Allocated/Total)  "
        "PENDING(Allocated)  GPU Memory(GiB)\n"
        "n2    10.0.0.2   2/15                   9/15                   3/15                   7/15                   "
        "6                   27/61\n"
        "n1    10.0.0.1   0/15                   0/0                    0/0                    2/15                   "
        "                    2/15\n"
        "------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "29/76 (38%)  \n"
        "n2 reports 61 units on 4 cards: 1 of them stands on no card. The cards may not be alike.\n"
        "n1 has 1 card, but 2 units are allocated on GPU3: default/stray\n"
    )


@pytest.mark.parametrize("nodes", [[], [a_node(mode="exclusive")]])
def test_no_sharing_node_at_all(nodes):
    assert table([fold(node, []) for node in nodes], {}) == (
        "NAME  IPADDRESS  GPU Memory()\n\nAllocated/Total GPU Memory In Cluster:\n0/0 (0%)  \n"
    )


def test_what_is_claimed_beyond_the_last_column_is_left_out_as_the_tool_does():
    text = table([fold(a_node(cards=1), [a_pod(mem=2, at={3: 2})])], {"n1": "10.0.0.1"})
    assert text.splitlines()[1] == "n1    10.0.0.1   0/15                   0/15"
    assert text.endswith("0/15 (0%)  \nn1 has 1 card, but 2 units are allocated on GPU3: default/p\n")


def test_memory_without_cards_shows_no_card():
    allocations = [fold(a_node("a", resources={COUNT: 0}), [a_pod(mem=4, on="a")]), fold(a_node("b", cards=1), [])]
    lines = table(allocations, {}).splitlines()
    assert lines[1] == "a     unknown    0/0                    4                   4/60"
    assert lines[2] == "b     unknown    0/15                                       0/15"


def test_the_per_cent_is_cut_not_rounded():
    assert table([fold(a_node(cards=1), filled(14))], {}).endswith("14/15 (93%)  \n")


MEMORY = "aliyun.accelerator/nvidia_mem"


@pytest.mark.parametrize(
    ("units", "label", "word", "footnote"),
    [
        (15, "16130MiB", "GiB", ""),
        (15, None, "GiB", ""),
        (100, None, "GiB", ""),
        (101, None, "MiB", ""),
        (141, "143771MiB", "MiB", "One unit of GPU memory is 1 GiB, not 1 MiB, on: n1\n"),
        (253, "32510MiB", "MiB", "One unit of GPU memory is 128 MiB, not 1 MiB, on: n1\n"),
        (16130, "16130MiB", "MiB", ""),
        (141, None, "MiB", ""),
    ],
)
def test_a_wrong_guess_of_the_unit_is_corrected_below_the_table(units, label, word, footnote):
    node = a_node(cards=1, units=units, labels={MEMORY: label} if label else {})
    text = table([fold(node, [])], {})
    assert f"GPU Memory({word})" in text
    assert text.split("%)  \n")[1] == footnote


def test_units_that_differ_between_nodes_are_named():
    nodes = [
        a_node("a", cards=1, units=15, labels={MEMORY: "16130MiB"}),
        a_node("b", cards=1, units=253, labels={MEMORY: "32510MiB"}),
    ]
    assert table([fold(node, []) for node in nodes], {}).endswith(
        "0/268 (0%)  \nOne unit of GPU memory is 128 MiB, not 1 GiB, on: b\n"
    )


def test_nodes_with_whole_cards_have_a_table_of_their_own():
    nodes = [a_node("a", mode="exclusive"), a_node("bb", mode="topology", cards=8), a_node("c")]
    pods = [a_pod(whole=3, on="a")]
    assert whole_table([fold(node, pods) for node in nodes]) == (
        "Whole GPUs:\n"
        "NAME  MODE      GPUs(Allocated/Total)\n"
        "a     default   3/4\n"
        "bb    topology  0/8\n"
        "----------------------------------\n"
        "Allocated/Total GPUs In Cluster:\n"
        "3/12 (25%)  \n"
    )


# -- Details


def test_the_details_of_a_node_with_a_pod_that_waits():
    node = a_node("cn-shanghai.192.0.2.109")
    pods = [a_pod("waiting", mem=4, on=node.name)]
    pods += [a_pod(f"bert-{card}", mem=units, at={card: units}, on=node.name) for card, units in enumerate((15, 9))]
    rule = len("waiting\tdefault\t0\t0\t0\t0\t4\t\n" + "bert-0\tdefault\t15\t0\t0\t0\t0\t\n")
    rule += len("bert-1\tdefault\t0\t9\t0\t0\t0\t\n") + 10
    assert details([fold(node, pods)], {node.name: "192.0.2.109"}) == (
        "\n"
        "NAME:       cn-shanghai.192.0.2.109\n"
        "IPADDRESS:  192.0.2.109\n"
        "\n"
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  "
        "GPU2(Allocated)  GPU3(Allocated)  Pending(Allocated)  \n"
        "waiting      default    0                0                "
        "0                0                4                   \n"
        "bert-0       default    15               0                "
        "0                0                0                   \n"
        "bert-1       default    0                9                "
        "0                0                0                   \n"
        "Allocated :  28 (46%)   \n"
        "Total :      60         \n"
        f"{'-' * rule}\n"
        "\n"
        "\n"
        "Allocated/Total GPU Memory In Cluster:  28/60 (46%)  \n"
    )


def test_details_show_a_pod_on_several_cards_once_and_count_what_stands_in_no_column():
    node = a_node("n1", cards=2)
    pods = [
        a_pod("both", mem=4, at={0: 2, 1: 2}, label_count=2),
        a_pod("stray", mem=3, at={5: 3}),
        a_pod("partly", mem=6, at={1: 3, 4: 3}, label_count=2),
        a_pod("whole", whole=1),
    ]
    text = details([fold(node, pods), fold(a_node("x", mode="exclusive"), [])], {})
    assert text.splitlines()[1:9] == [
        "NAME:       n1",
        "IPADDRESS:  unknown",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  ",
        "both         default    2                2                ",
        "partly       default    0                3                ",
        "stray        default    0                0                ",
        "Allocated :  13 (43%)   ",
    ]
    assert "Cluster:  13/30 (43%)  \n" in text
    assert text.endswith("n1 has 2 cards, but 6 units are allocated on GPU4, GPU5: default/partly, default/stray\n")


def test_every_rule_is_as_long_as_the_first_nodes_pods_say():
    nodes = [fold(a_node("a"), []), fold(a_node("b"), filled(4, on="b"))]
    rules = [line for line in details(nodes, {}).splitlines() if line.startswith("-")]
    assert rules == ["-" * 10] * 2


def test_details_of_no_node():
    assert details([], {}) == "\n\nAllocated/Total GPU Memory In Cluster:  0/0 (0%)  \n"


def test_per_cent_are_cut_in_floating_point_as_the_tool_does():
    node = a_node(cards=1, units=100)
    assert "\n29/100 (28%)  \n" in table([fold(node, filled(29))], {})
    assert "29 (28%)" in details([fold(node, filled(29))], {})


def test_footnotes_name_what_a_former_mode_still_holds():
    node = a_node(mode="exclusive")
    allocations = [fold(node, [a_pod("old", mem=6, at={0: 6}), a_pod("two", mem=1, namespace="far")])]
    words = "n1 is in another mode now; 7 units are still allocated from a former one and stand in no row: "
    assert footnotes(allocations) == [words + "default/old, far/two"]
    assert footnotes(allocations, namespaces=frozenset({"default"})) == [
        words + "default/old, 1 pod of other namespaces"
    ]
    assert footnotes(allocations, namespaces=frozenset()) == [words + "2 pods of other namespaces"]


def test_footnotes_name_units_without_cards_and_units_left_over():
    nodes = [fold(a_node("a", resources={COUNT: 0}), []), fold(a_node("b", resources={MEM: 63}), [])]
    assert footnotes(nodes) == [
        "a reports 60 units, but no cards.",
        "b reports 63 units on 4 cards: 3 of them stand on no card. The cards may not be alike.",
    ]
    assert footnotes([fold(a_node(), [])]) == []


def test_the_document_has_the_same_numbers():
    node = a_node(cards=2, labels={MEMORY: "16130MiB"}, unhealthy=(1,))
    pods = [a_pod("a", mem=4, at={0: 4}), a_pod("b", mem=3), a_pod("c", mem=2, at={5: 2}, terminating=True)]
    found = document([fold(node, pods)], {"n1": "10.0.0.1"})
    (row,) = found["nodes"]
    assert (found["memory_units"], found["memory_units_used"], found["percent"]) == (30, 9, 30)
    assert (row["name"], row["ip"], row["mode"], row["unit_mib"]) == ("n1", "10.0.0.1", "cgpu", 1024)
    assert (row["memory_units_pending"], row["memory_units_orphan"], row["memory_units_releasing"]) == (3, 2, 2)
    assert [gpu["memory_units_used"] for gpu in row["gpus"]] == [4, 0]
    assert [gpu["healthy"] for gpu in row["gpus"]] == [True, False]
    assert row["gpus"][0]["pods"] == [
        {"namespace": "default", "name": "a", "memory_units": 4, "core_percent": 0, "releasing": False}
    ]
    assert [(each["name"], each["why"]) for each in row["unplaced"]] == [("b", "pending"), ("c", "unknown-card")]
    assert found["footnotes"] == ["n1 has 2 cards, but 2 units are allocated on GPU5: default/c"]
    assert document([fold(a_node(mode=None), [])], {})["nodes"] == []
