"""A number opened: its pods, links to its neighbours, and what is hidden from those who may not see it."""

from __future__ import annotations

import pytest
from django.test import Client

from gpupools.models import Role
from tests.services.builders import an_actor
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
USED = "/c/lab/explain/memory_units_used/"


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("address", "links"),
    [
        (f"{USED}?node=n-cgpu&gpu=0", ["default/bert", "default/going"]),
        (f"{USED}?pool=cgpu", ["default/bert", "default/going", "payroll/secret", "default/lost"]),
        ("/c/lab/explain/cards_used/?node=n-exclusive", ["default/train"]),
        ("/c/lab/explain/memory_units_pending/", ["default/lost"]),
    ],
)
def test_the_pods_of_a_number_are_named_and_linked(visitor: Visitor, address: str, links: list[str]) -> None:
    text = visitor(Role.VIEWER).get(address).content.decode()
    named = [f"/c/lab/pods/{each}/" for each in links]
    page = Page(text)
    assert [attrs["href"] for attrs in page.all("a") if attrs.get("href", "").startswith("/c/lab/pods/d")] == [
        each for each in named if "/default/" in each
    ]
    assert all(f'href="{each}"' in text for each in named)


@pytest.mark.usefixtures("lab")
def test_a_zero_says_so_and_what_is_not_there_is_missing(visitor: Visitor) -> None:
    browser = visitor(Role.VIEWER)
    assert "No pod makes up this number" in browser.get("/c/lab/explain/memory_units_orphan/").content.decode()
    for address in ("luck/", "cards_used/?node=x", "cards_used/?node=n-cgpu&gpu=x", "cards_used/?node=n-cgpu&gpu=9"):
        assert browser.get(f"/c/lab/explain/{address}").status_code == 404


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("node=n-exclusive&pool=cgpu", "Node n-exclusive does not belong to node pool cgpu."),
        ("node=n-exclusive&gpu=0", "the API does not say which pod holds which of them"),
    ],
)
def test_what_does_not_go_together_is_refused(visitor: Visitor, query: str, sentence: str) -> None:
    response = visitor(Role.VIEWER).get(f"/c/lab/explain/cards_used/?{query}")
    assert response.status_code == 400
    assert sentence in response.content.decode()
    assert visitor(Role.VIEWER).get("/c/lab/explain/cards_used/?node=n-cgpu&pool=cgpu").status_code == 200


@pytest.mark.usefixtures("lab")
def test_a_card_in_use_is_one_on_every_level(visitor: Visitor) -> None:
    browser = visitor(Role.VIEWER)
    rows = browser.get("/api/v1/clusters/lab/allocation/").json()["nodes"]
    (row,) = [each for each in rows if each["node"] == "n-cgpu"]
    assert row["cards_used"] == sum(gpu["cards_used"] for gpu in row["gpus"]) > 0
    for gpu in row["gpus"]:
        address = f"/api/v1/clusters/lab/allocation/explain/?figure=cards_used&node=n-cgpu&gpu={gpu['index']}"
        assert browser.get(address).json()["value"] == gpu["cards_used"]


def test_names_of_other_namespaces_are_hidden(lab: Lab) -> None:
    browser = Client()
    user = an_actor(Role.VIEWER, lab.cluster, "default", name="narrow").user
    browser.force_login(user, "django.contrib.auth.backends.ModelBackend")
    text = browser.get(f"{USED}?node=n-cgpu").content.decode()
    assert "secret" not in text
    assert "a pod of another namespace" in text


@pytest.mark.usefixtures("lab")
def test_nodes_and_pools_lead_to_their_numbers(visitor: Visitor) -> None:
    browser = visitor(Role.VIEWER)
    assert f'href="{USED}?node=n-cgpu"' in browser.get("/c/lab/nodes/n-cgpu/").content.decode()
    assert 'href="/c/lab/explain/cards_used/?pool=cgpu"' in browser.get("/c/lab/node-pools/cgpu/").content.decode()


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  parallelism: 30
  completions: 30
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: registry.example.com/x:1
          resources: {limits: {aliyun.com/gpu-mem: 15}}
"""


@pytest.mark.usefixtures("lab")
def test_a_check_shows_the_first_pod_without_room_and_what_would_help(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    page = browser.post("/c/lab/create-job/", {"yaml": JOB, "action": "check"}).content.decode()
    assert "of 30 is the first that finds no room." in page
    assert 'id="what-ifs"' in page
    assert "One more node of pool" not in page or "would take it, if made as" in page
    fits = browser.post("/c/lab/create-job/", {"yaml": JOB.replace("30", "1"), "action": "check"}).content.decode()
    assert "What would help" not in fits


def check_page(visitor: Visitor, yaml: str) -> str:
    return visitor(Role.OPERATOR).post("/c/lab/create-job/", {"yaml": yaml, "action": "check"}).content.decode()


@pytest.mark.usefixtures("lab")
def test_a_gated_pod_is_told_of_its_gates_and_of_no_changes(visitor: Visitor) -> None:
    gated = JOB.replace("      containers:", "      schedulingGates: [{name: quota.example/wait}]\n      containers:")
    page = check_page(visitor, gated)
    assert "It has scheduling gates" in page
    assert "What would help" not in page


@pytest.mark.usefixtures("lab")
def test_a_job_says_why_its_first_pod_without_room_finds_none(visitor: Visitor) -> None:
    page = check_page(visitor, JOB.replace("gpu-mem: 15", "gpu-mem: 8"))
    assert 'id="unfit"' in page
    assert "is the first that finds no room." in page
    assert "pods would fit instead of" in page
