"""The tables of ``kubectl inspect cgpu``, compared byte for byte."""

from __future__ import annotations

import pytest

from gpupools.domain.allocation import fold
from gpupools.domain.inspect import details, document, table, whole_table
from tests.domain.builders import COUNT, MEM, a_node, a_pod, container, filled


def shown(*nodes, pods=(), lay_out=table, **fields):
    return lay_out([fold(node, pods) for node in nodes], {node.name: node for node in nodes}, **fields)


def notes(*nodes, pods=(), **fields):
    """What stands below the table."""
    return shown(*nodes, pods=pods, **fields).split("%)  \n")[1].splitlines()


def test_the_binpack_state_of_a_node_with_four_cards():
    node = a_node("cn-shanghai.192.0.2.109", ip="192.0.2.109")
    pods = filled(15, 9, on=node.name)
    assert shown(node, pods=pods) == (
        "NAME                     IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  "
        "GPU3(Allocated/Total)  GPU Memory(GiB)\n"
        "cn-shanghai.192.0.2.109  192.0.2.109  15/15                  9/15                   0/15                   "
        "0/15                   24/60\n"
        "-----------------------------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "24/60 (40%)  \n"
    )


def test_a_mixed_state_with_pending_and_a_card_that_is_not_there():
    n2 = a_node("n2", resources={MEM: 61}, ip="10.0.0.2")
    n1 = a_node("n1", cards=1, ip="10.0.0.1")
    pods = [
        a_pod("multi", mem=8, at={0: 2, 1: 2, 2: 2, 3: 2}, label_count=4, on="n2"),
        a_pod("twoc", container(mem=3), container(mem=4), at=[{1: 3}, {1: 4}], on="n2"),
        a_pod("v1pod", mem=5, annotations={"ALIYUN_COM_GPU_MEM_IDX": "3"}, on="n2"),
        a_pod("noann", mem=6, on="n2"),
        a_pod("term", mem=1, at={2: 1}, terminating=True, on="n2"),
        a_pod("done", mem=4, at={0: 4}, phase="Succeeded", on="n2"),
        a_pod("stray", mem=2, at={3: 2}, on="n1"),
    ]
    assert shown(n2, n1, pods=pods) == (
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  GPU3(Allocated/Total)  "
        "PENDING(Allocated)  GPU Memory(GiB)\n"
        "n2    10.0.0.2   2/15                   9/15                   3/15                   7/15                   "
        "6                   27/61\n"
        "n1    10.0.0.1   0/15                   0/0                    0/0                    0/0                    "
        "                    2/15\n"
        "------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "29/76 (38%)  \n"
        "n2 reports 61 units on 4 cards: 1 of them stands on no card. The cards may not be alike; kubectl inspect cgpu "
        "and ACK's scheduler take each for 15 units.\n"
        "n1 has 1 card, but 2 units are allocated on GPU3: default/stray. They count in 2/15; kubectl inspect cgpu "
        "would print 2/15 under GPU3.\n"
    )


@pytest.mark.parametrize("nodes", [[], [a_node(mode="exclusive")]])
def test_no_sharing_node_at_all(nodes):
    head = "NAME  IPADDRESS  GPU Memory(units)\n\n"
    assert shown(*nodes) == head + "Allocated/Total GPU Memory In Cluster:\n0/0 (0%)  \n"


def test_what_is_claimed_beyond_the_last_column_counts_though_the_tool_leaves_it_out():
    text = shown(a_node(cards=1, ip="10.0.0.1"), pods=[a_pod(mem=2, at={3: 2}), *filled(4)])
    assert text.splitlines()[1] == "n1    10.0.0.1   4/15                   6/15"
    assert text.endswith(
        "6/15 (40%)  \nn1 has 1 card, but 2 units are allocated on GPU3: default/p. They count in 6/15; kubectl "
        "inspect cgpu would print 4/15 for the node and count no more of it.\n"
    )


def test_a_pod_on_cards_within_and_beyond_the_columns_is_told_of_both():
    found = notes(a_node("a", cards=1), a_node("b", cards=3), pods=[a_pod("odd", mem=6, at={2: 2, 7: 4}, on="a")])
    assert found == [
        "a has 1 card, but 6 units are allocated on GPU2, GPU7: default/odd. They count in 6/15; kubectl inspect cgpu "
        "would print 2/15 under GPU2 and 2/15 for the node and count no more of it."
    ]


def test_the_first_card_that_is_not_there_has_no_column():
    (found,) = notes(a_node(cards=1), pods=[a_pod(mem=2, at={1: 2})])
    assert found.endswith("kubectl inspect cgpu would print 0/15 for the node and count no more of it.")


def test_memory_without_cards_shows_no_card():
    lines = shown(a_node("a", resources={COUNT: 0}), a_node("b", cards=1), pods=[a_pod(mem=4, on="a")]).splitlines()
    assert lines[1] == "a     unknown    0/0                    4                   4/60"
    assert lines[2] == "b     unknown    0/15                                       0/15"
    assert lines[6] == "a reports 60 units, but no cards."


def test_the_per_cent_is_cut_not_rounded():
    assert shown(a_node(cards=1), pods=filled(14)).endswith("14/15 (93%)  \n")


MEMORY = "aliyun.accelerator/nvidia_mem"
BY_FIRST = "kubectl inspect cgpu would print GPU Memory(MiB), by how many units the first card has."


@pytest.mark.parametrize(
    ("units", "label", "word", "footnotes"),
    [
        (15, "16130MiB", "GiB", []),
        (15, None, "GiB", []),
        (100, None, "GiB", []),
        (16130, "16130MiB", "MiB", []),
        (16130, None, "MiB", []),
        (4096, None, "MiB", []),
        (140, "143771MiB", "GiB", [f"A unit of GPU memory is 1 GiB on: n1. {BY_FIRST}"]),
        (253, "32510MiB", "128MiB", [f"A unit of GPU memory is 128 MiB on: n1. {BY_FIRST}"]),
        (
            59, "7611MiB", "128MiB",
            ["A unit of GPU memory is 128 MiB on: n1. " + BY_FIRST.replace("MiB", "GiB")],
        ),
        *(
            (
                units, None, "units",
                ["Nothing says whether a unit of GPU memory is 1 GiB or 128 MiB on: n1. kubectl inspect cgpu would "
                 "print GPU Memory(MiB), but no card is as small as that."],
            )
            for units in (101, 141, 4095)
        ),
    ],
)  # fmt: skip
def test_the_head_names_the_unit_and_a_footnote_the_wrong_guess(units, label, word, footnotes):
    text = shown(a_node(cards=1, units=units, labels={MEMORY: label} if label else {}))
    assert text.splitlines()[0].endswith(f"GPU Memory({word})")
    assert text.split("%)  \n")[1].splitlines() == footnotes


def test_units_that_differ_between_nodes_are_named():
    nodes = [
        a_node("a", cards=1, units=15, labels={MEMORY: "16130MiB"}),
        a_node("b", cards=1, units=253, labels={MEMORY: "32510MiB"}),
    ]
    text = shown(*nodes)
    assert text.splitlines()[0].endswith("GPU Memory(units)")
    assert text.split("%)  \n")[1].splitlines() == [
        "A unit of GPU memory is 128 MiB on: b. " + BY_FIRST.replace("MiB", "GiB"),
        "A unit of GPU memory is 1 GiB on: a.",
    ]


def test_a_node_without_a_label_counts_as_its_neighbours_do_where_it_can():
    labelled = a_node("b", cards=1, units=22, labels={MEMORY: "23028MiB"})
    assert shown(a_node("a"), labelled).splitlines()[0].endswith("GPU Memory(GiB)")
    assert notes(a_node("a"), labelled) == []
    no_cards = a_node("a", resources={COUNT: 0})
    large = a_node("b", cards=1, units=253, labels={MEMORY: "32510MiB"})
    assert shown(no_cards, large).splitlines()[0].endswith("GPU Memory(128MiB)")


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
    node = a_node("cn-shanghai.192.0.2.109", ip="192.0.2.109")
    pods = [a_pod("waiting", mem=4, on=node.name)]
    pods += [a_pod(f"bert-{card}", mem=units, at={card: units}, on=node.name) for card, units in enumerate((15, 9))]
    rule = len("waiting\tdefault\t0\t0\t0\t0\t4\t\n" + "bert-0\tdefault\t15\t0\t0\t0\t0\t\n")
    rule += len("bert-1\tdefault\t0\t9\t0\t0\t0\t\n") + 10
    assert shown(node, pods=pods, lay_out=details) == (
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
    text = shown(node, a_node("x", mode="exclusive"), pods=pods, lay_out=details)
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
    text = shown(a_node("a"), a_node("b"), pods=filled(4, on="b"), lay_out=details)
    rules = [line for line in text.splitlines() if line.startswith("-")]
    assert rules == ["-" * 10] * 2


def test_details_of_no_node():
    assert details([], {}) == "\n\nAllocated/Total GPU Memory In Cluster:  0/0 (0%)  \n"


def test_per_cent_are_cut_in_floating_point_as_the_tool_does():
    node = a_node(cards=1, units=100)
    assert "\n29/100 (28%)  \n" in shown(node, pods=filled(29))
    assert "29 (28%)" in shown(node, pods=filled(29), lay_out=details)


# -- A former mode


OLD = [a_pod("old", mem=6, at={0: 6}, on="z"), a_pod("two", mem=1, namespace="far", on="z")]
BEFORE = "z is in another mode now; 7 units are still allocated from a former one, and count in no sum of the cluster: "
LEFT_OUT = ". kubectl inspect cgpu would leave the node out."


def test_what_a_former_mode_still_holds_has_a_row_of_its_own_and_counts_in_no_sum():
    nodes = [a_node("z", mode="topology", cards=2, ip="10.0.0.3"), a_node("n2", cards=2, ip="10.0.0.2")]
    assert shown(*nodes, pods=[*OLD, *filled(15, 9, on="n2")]) == (
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)\n"
        "n2    10.0.0.2   15/15                  9/15                   24/30\n"
        "z     10.0.0.3   0/0                    0/0                    7/0\n"
        f"{'-' * 49}\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "24/30 (80%)  \n"
        f"{BEFORE}default/old, far/two{LEFT_OUT}\n"
    )


def test_cards_of_another_mode_have_no_columns():
    nodes = [a_node("n2", cards=1), a_node("z", mode="topology", cards=8)]
    header, _, row, *_ = shown(*nodes, pods=OLD).splitlines()
    assert (header.count("(Allocated/Total)"), row.split()) == (1, ["z", "unknown", "0/0", "7/0"])
    assert "GPU1" not in shown(*nodes, pods=OLD, lay_out=details)


def test_the_details_of_what_a_former_mode_still_holds():
    nodes = [a_node("z", mode="exclusive", cards=2), a_node("a", cards=1)]
    assert shown(*nodes, pods=[*OLD, *filled(4, on="a")], lay_out=details) == (
        "\n"
        "NAME:       a\n"
        "IPADDRESS:  unknown\n"
        "\n"
        "NAME         NAMESPACE  GPU0(Allocated)  \n"
        "used-0       default    4                \n"
        "Allocated :  4 (26%)    \n"
        "Total :      15         \n"
        f"{'-' * 28}\n"
        "\n"
        "NAME:       z\n"
        "IPADDRESS:  unknown\n"
        "\n"
        "NAME         NAMESPACE  \n"
        "old          default    \n"
        "two          far        \n"
        "Allocated :  7 (0%)     \n"
        "Total :      0          \n"
        f"{'-' * 28}\n"
        "\n"
        "\n"
        "Allocated/Total GPU Memory In Cluster:  4/15 (26%)  \n"
        f"{BEFORE}default/old, far/two{LEFT_OUT}\n"
    )


@pytest.mark.parametrize(
    ("namespaces", "named"),
    [({"default"}, "default/old, 1 pod of other namespaces"), (set(), "2 pods of other namespaces")],
)
def test_pods_of_other_namespaces_are_counted_and_not_named(namespaces, named):
    assert notes(a_node("z", mode="exclusive"), pods=OLD, namespaces=namespaces) == [BEFORE + named + LEFT_OUT]


# -- Cards that are not alike


def test_units_left_over_are_named():
    assert notes(a_node("b", resources={MEM: 63})) == [
        "b reports 63 units on 4 cards: 3 of them stand on no card. The cards may not be alike; kubectl inspect cgpu "
        "and ACK's scheduler take each for 15 units."
    ]
    assert notes(a_node()) == []


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({MEMORY: "15079MiB"}, "15079 MiB"),
        ({MEMORY: "23028MiB", "aliyun.accelerator/nvidia_count": "4"}, "4 cards of 23028 MiB"),
        ({MEMORY: "23028MiB", "aliyun.accelerator/nvidia_count": "2"}, None),
        ({MEMORY: "23028MiB"}, None),
        ({}, None),
    ],
)
def test_cards_that_are_not_those_of_the_labels_are_named(labels, said):
    sentence = (
        f"n1 reports 22 units for each of 2 cards, but its labels say {said}. The cards may not be alike; kubectl "
        "inspect cgpu and ACK's scheduler take each for 22 units."
    )
    found = notes(a_node(cards=2, units=22, labels=labels))
    assert found[-1:] == ([sentence] if said else [])


# -- JSON


def test_the_document_has_the_same_numbers():
    node = a_node(cards=2, labels={MEMORY: "16130MiB"}, unhealthy=(1,), ip="10.0.0.1")
    pods = [a_pod("a", mem=4, at={0: 4}), a_pod("b", mem=3), a_pod("c", mem=2, at={5: 2}, terminating=True)]
    found = shown(node, pods=pods, lay_out=document)
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
    assert found["footnotes"] == notes(node, pods=pods)
    assert len(found["footnotes"]) == 1
    assert (found["unit"], found["memory_units_former"]) == ("GiB", 0)
    assert shown(a_node(mode=None), lay_out=document)["nodes"] == []


def test_the_document_has_what_a_former_mode_still_holds():
    found = shown(a_node("z", mode="exclusive", cards=2), a_node("a", cards=1), pods=OLD, lay_out=document)
    assert [(row["name"], row["memory_units_former"], row["ip"]) for row in found["nodes"]] == [
        ("a", 0, None),
        ("z", 7, None),
    ]
    assert (found["memory_units"], found["memory_units_used"], found["memory_units_former"]) == (15, 0, 7)
    assert [each["why"] for each in found["nodes"][1]["unplaced"]] == ["former-mode"] * 2
