"""Pages of numbers: dashboard, nodes, pods. What is known, what is not, and whose names one may see."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from gpupools.models import Role, Submission
from gpupools.services.access import Actor
from tests.domain.builders import a_node
from tests.services.builders import a_cluster, an_actor
from tests.services.showing import show
from tests.web.conftest import CARD, POOL, Lab, Visitor, nodes_of_all_modes
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
BOARD = "/c/lab/dashboard/"


@pytest.fixture
def narrow(lab: Lab) -> Client:
    """A browser of somebody who may look at one namespace of the cluster."""
    browser = Client()
    user = an_actor(Role.VIEWER, lab.cluster, "default", name="narrow").user
    browser.force_login(user, "django.contrib.auth.backends.ModelBackend")
    return browser


def test_the_first_paint_has_every_card_and_the_numbers_to_go_on_from(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.VIEWER).get(BOARD).content.decode())
    nodes = [attrs["data-node"] for attrs in page.all("li", class_="board-node")]
    assert nodes == sorted(f"n-{mode}" for mode in lab.pools)
    snapshot = json.loads(page.scripts["snapshot"])
    assert [row["node"] for row in snapshot["nodes"]] == nodes
    assert (snapshot["epoch"], snapshot["sequence"]) == (1, 1)
    drawn = {attrs["aria-label"] for attrs in page.all("svg", role="img")}
    assert "GPU 0: 9 of 15 units held by 2 pods" in drawn
    assert "GPU 2: 8 of 15 units held by 1 pod, compute 30 of 100 %" in drawn
    assert "2 of 4 whole cards held (the API does not tell which)" in drawn
    assert "0 of 4 whole cards held" in drawn, "topology cards have a number"


def test_pending_and_releasing_amounts_have_a_word_of_their_own(visitor: Visitor, lab: Lab) -> None:
    text = Page(visitor(Role.VIEWER).get(BOARD).content.decode()).text
    assert "2 units pending" in text
    assert "3 units releasing" in text


def test_totals_are_those_of_kubectl_inspect(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.VIEWER).get(BOARD).content.decode())
    # 6 + 3 + 4 on cards and 2 pending of cgpu, 8 of core_mem; four shared nodes of 60.
    assert "23 / 240 units allocated ( 9% )" in page.text
    text = visitor(Role.VIEWER).get("/c/lab/dashboard/text/")
    assert text["Content-Type"].startswith("text/plain")
    assert "23/240 (9%)" in text.content.decode()


def test_pods_of_other_namespaces_have_no_name_anywhere(narrow: Client, lab: Lab) -> None:
    for address in (BOARD, "/c/lab/nodes/", "/c/lab/nodes/n-cgpu/", "/c/lab/pods/", "/c/lab/node-pools/cgpu/"):
        html = narrow.get(address).content.decode()
        assert "secret" not in html, address
        assert "bert" in html or address == "/c/lab/node-pools/", address
    assert narrow.get("/c/lab/pods/payroll/secret/").status_code in (403, 404)
    assert narrow.get("/c/lab/pods/payroll/secret/log/").status_code in (403, 404)
    assert "another namespace" in narrow.get("/c/lab/nodes/n-cgpu/").content.decode()


def test_nothing_known_is_said_and_is_no_zero(visitor: Visitor, empty_redis: object) -> None:
    a_cluster("dark")
    page = Page(visitor(Role.VIEWER).get("/c/dark/dashboard/").content.decode())
    assert "No numbers yet" in page.text
    assert json.loads(page.scripts["snapshot"])["taken_at"] is None
    assert "0 / 0" not in page.text
    for address in ("/c/dark/nodes/", "/c/dark/pods/"):
        assert "No numbers yet" in Page(visitor(Role.VIEWER).get(address).content.decode()).text


def test_a_broker_that_is_away_is_a_page_that_says_when_to_come_back(visitor: Visitor, lab: Lab, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = visitor(Role.VIEWER).get(BOARD)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "No answer right now" in Page(answer.content.decode()).text


def test_a_node_shows_what_it_declares_beside_what_it_reports(visitor: Visitor, lab: Lab) -> None:
    page = Page(visitor(Role.VIEWER).get("/c/lab/nodes/n-core_mem/").content.decode())
    assert "aliyun.com/gpu-core.percentage is reported found 400 expected above 0" in page.text
    assert "Other modes' resources are 0" in page.text
    assert "ack.node.gpu.schedule= core_mem" in page.text
    assert "16130 MiB" in page.text


def test_a_wrong_check_is_named_in_the_list_and_explained_on_the_page(visitor: Visitor, lab: Lab) -> None:
    bare = nodes_of_all_modes()[1]
    bare.allocatable["aliyun.com/gpu-mem"] = 0
    show(lab.cluster, [bare])
    browser = visitor(Role.VIEWER)
    assert "Wrong" in Page(browser.get("/c/lab/nodes/").content.decode()).text
    assert "Mode cgpu needs ack-ai-installer" in Page(browser.get("/c/lab/nodes/n-cgpu/").content.decode()).text


def test_nodes_are_found_by_name_pool_model_and_mode(visitor: Visitor, lab: Lab) -> None:
    def found(**query: str) -> set[str]:
        page_obj = visitor(Role.VIEWER).get("/c/lab/nodes/", query).context["page_obj"]
        return {line.facts.name for line in page_obj}

    assert found(q="core") == {"n-core_mem"}
    assert len(found(q="v100")) == 6
    assert found(mode="mps") == {"n-mps"}
    assert found(q="v100 topology") == {"n-topology"}
    assert found(q="nothing like this") == set()


def test_a_node_or_pod_that_is_not_there_is_a_page_not_a_crash(visitor: Visitor, lab: Lab) -> None:
    assert visitor(Role.VIEWER).get("/c/lab/nodes/ghost/").status_code == 404
    assert visitor(Role.VIEWER).get("/c/lab/pods/default/ghost/").status_code == 404


def test_pods_are_those_that_ask_for_gpus_until_one_asks_for_all(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.VIEWER)
    assert browser.get("/c/lab/pods/").context["typed"]["gpu_only"] is True
    assert browser.get("/c/lab/pods/", {"q": ""}).context["typed"]["gpu_only"] is False
    page = Page(browser.get("/c/lab/pods/", {"phase": "Pending"}).content.decode())
    assert "waits" in page.text
    assert "0/7 nodes are available." in page.text
    assert "bert" not in page.text


def test_a_log_that_cannot_be_read_keeps_the_page_and_says_why(visitor: Visitor, lab: Lab) -> None:
    browser = visitor(Role.VIEWER)
    answer = browser.get("/c/lab/pods/default/bert/")
    assert answer.status_code == 200
    assert "GPU0 · 6 units" in Page(answer.content.decode()).text
    assert answer.context["trouble"]
    text = browser.get("/c/lab/pods/default/bert/log/")
    assert text.status_code == 503
    assert text["Content-Type"].startswith("text/plain")


def test_numbers_say_how_old_they_are(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, nodes_of_all_modes(), taken_at=time.time() - 90)
    page = Page(visitor(Role.VIEWER).get("/c/lab/nodes/").content.decode())
    assert "as of 1 min ago" in page.text


def test_a_large_fleet_is_painted_in_part_and_filtered_by_the_server_too(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node(f"n{number:03}", "mps" if number % 2 else "cgpu") for number in range(150)])
    browser = visitor(Role.VIEWER)
    first = browser.get(BOARD)
    page = Page(first.content.decode())
    assert len(page.all("li", class_="board-node")) == len(json.loads(page.scripts["snapshot"])["nodes"]) == 60
    assert page.all("div", id="dashboard")[0]["data-node-count"] == "150"
    assert "1–60 of 150" in page.text
    found = Page(browser.get(BOARD, {"q": "n14", "mode": "mps"}).content.decode())
    assert [row["data-node"] for row in found.all("li", class_="board-node")] == [
        "n141",
        "n143",
        "n145",
        "n147",
        "n149",
    ]
    assert "5 of 150 nodes" in found.text


def test_names_are_ordered_as_people_count(visitor: Visitor, lab: Lab) -> None:
    show(lab.cluster, [a_node(name) for name in ("n-10", "n-9", "n-1", "m")])
    page = Page(visitor(Role.VIEWER).get(BOARD).content.decode())
    assert [row["data-node"] for row in page.all("li", class_="board-node")] == ["m", "n-1", "n-9", "n-10"]
    assert [line.facts.name for line in visitor(Role.VIEWER).get("/c/lab/nodes/").context["page_obj"]][0] == "m"


def test_a_node_whose_device_plugin_has_gone_is_wrong_on_the_dashboard_and_keeps_its_cards(
    visitor: Visitor, lab: Lab
) -> None:
    nodes = [
        a_node("n-cgpu", "cgpu", 0, 0, labels={POOL: "cgpu", **CARD}),
        a_node("n-exclusive", "exclusive", 4, labels={POOL: "exclusive", **CARD}),
    ]
    show(lab.cluster, nodes)
    page = Page(visitor(Role.VIEWER).get("/c/lab/dashboard/").content.decode())
    assert "Wrong: 1 check" in page.text
    assert "4 × Tesla-V100-SXM2-16GB" in page.text, "the label still counts the cards"
    assert "0 × Tesla" not in page.text
    assert page.text.count("4 cards not reported") >= 2, "in the row and in the sums"


def test_pods_that_one_may_not_see_are_counted_where_they_hold_cards(narrow: Client, lab: Lab) -> None:
    nodes, pods = lab.picture.nodes, [pod for pod in lab.picture.pods if pod.namespace != "default"]
    show(lab.cluster, nodes, pods)
    text = Page(narrow.get("/c/lab/nodes/n-cgpu/").content.decode()).text
    assert "1 pod of another namespace holds cards here." in text
    assert "No pod runs here." not in text


def test_a_pod_leads_to_the_job_that_was_submitted_here_and_a_waiting_one_has_no_log_yet(
    visitor: Visitor, lab: Lab, people: dict[Role | None, Actor]
) -> None:
    user = people[Role.OPERATOR].user
    assert user is not None
    made = Submission.objects.create(
        cluster=lab.cluster, kind="Job", namespace="default", name="bert", yaml="", manifest={},
        state=Submission.State.SUBMITTED, submitted_by=user, submitted_at=lab.cluster.created_at,
    )  # fmt: skip
    page = Page(visitor(Role.VIEWER).get("/c/lab/pods/default/bert/").content.decode())
    assert f"/c/lab/jobs/{made.pk}/" in [each.get("href") for each in page.all("a")]


def test_the_thin_bar_of_compute_is_in_the_legend_and_only_what_leads_somewhere_lights_up(
    visitor: Visitor, lab: Lab
) -> None:
    assert "thin bar: compute" in Page(visitor(Role.VIEWER).get(BOARD).content.decode()).text
    sheet = (Path(settings.BASE_DIR) / "static" / "css" / "app.css").read_text()
    assert ".board-node:hover" not in sheet
