"""Create from YAML and what became of it, as pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from gpupools.domain.gpus import Taint
from gpupools.models import Push, Role, Submission
from gpupools.services import jobs
from tests.domain.builders import a_node, a_pod
from tests.services.builders import an_actor
from tests.services.showing import show
from tests.web.conftest import Lab, Visitor
from tests.web.reading import Page

pytestmark = pytest.mark.django_db
ADDRESS = "/c/lab/create-job/"
MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata:
  name: four-units
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {ack.node.gpu.schedule: cgpu}
      containers:
      - name: main
        image: example.com/train:1
        resources: {limits: {aliyun.com/gpu-mem: 4}}
"""


@pytest.fixture(autouse=True)
def _catalogue(lab: Lab) -> None:
    jobs.load_catalogue()


def filled(browser: Client, **changes: Any) -> dict[str, Any]:
    """What the form of the shared-memory template would send, with changes."""
    form = browser.get(ADDRESS, {"template": "shared-memory"}).context["form"]
    typed = {"template": "shared-memory", "yaml": form["yaml"].value(), "made": form["made"].value()}
    typed |= {f"parameters_{name}": value for name, value in form.values.items()}
    return typed | changes


def test_every_template_is_offered(visitor: Visitor) -> None:
    page = Page(visitor(Role.VIEWER).get(ADDRESS).content.decode())
    offered = {attrs["value"] for attrs in page.all("option")}
    assert {"", *(each.slug for each in jobs.templates())} <= offered


def test_a_template_fills_the_text_and_its_parameters(visitor: Visitor) -> None:
    answer = visitor(Role.OPERATOR).get(ADDRESS, {"template": "card-model-required"})
    page = Page(answer.content.decode())
    assert 'aliyun.accelerator/nvidia_name: "Tesla-V100-SXM2-16GB"' in answer.context["form"]["yaml"].value()
    assert page.value_of("parameters_card_model") == "Tesla-V100-SXM2-16GB", "the default is not in this cluster"
    assert page.all("option", value="Tesla-V100-SXM2-16GB"), "models of the cluster's own nodes are suggested"
    assert "Here now: Tesla-V100-SXM2-16GB." in page.text
    avoided = visitor(Role.OPERATOR).get(ADDRESS, {"template": "card-model-excluded"})
    assert avoided.context["form"]["parameters_card_model"].value() == "Tesla-V100-SXM2-32GB"


def test_parameters_count_while_nobody_has_edited_the_text(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    answer = browser.post(ADDRESS, filled(browser, parameters_memory_units="7", action="check"))
    assert "aliyun.com/gpu-mem: 7" in answer.context["form"]["yaml"].value()


def test_an_edited_text_counts_and_its_parameters_do_not(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    typed = filled(browser, parameters_memory_units="7", action="check")
    typed["yaml"] = typed["yaml"].replace("gpu-mem: 4", "gpu-mem: 5").replace("\n", "\r\n")
    answer = browser.post(ADDRESS, typed)
    assert "aliyun.com/gpu-mem: 5" in answer.context["form"]["yaml"].value()
    assert "You edited the text" in Page(answer.content.decode()).text
    again = browser.post(ADDRESS, {**typed, "action": "render"})
    assert "aliyun.com/gpu-mem: 7" in again.context["form"]["yaml"].value()


def test_line_ends_of_a_browser_are_not_an_edit(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    typed = filled(browser, parameters_memory_units="7", action="check")
    typed["yaml"] = typed["yaml"].replace("\n", "\r\n")
    assert "aliyun.com/gpu-mem: 7" in browser.post(ADDRESS, typed).context["form"]["yaml"].value()


def test_a_wrong_parameter_is_said_at_its_field(visitor: Visitor) -> None:
    browser = visitor(Role.OPERATOR)
    answer = browser.post(ADDRESS, filled(browser, parameters_memory_units="lots", action="submit"))
    assert answer.status_code == 400
    assert "whole number" in answer.context["form"].errors["parameters_memory_units"][0]
    assert Page(answer.content.decode()).value_of("parameters_memory_units") == "lots"
    assert not Submission.objects.exists()


def test_a_check_sends_nothing_and_says_where_it_would_land(visitor: Visitor) -> None:
    answer = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "check"})
    page = Page(answer.content.decode())
    assert answer.status_code == 200
    assert not Submission.objects.exists()
    assert "estimate" in page.text
    assert "Chosen n-cgpu" in page.text
    assert "Does not fit" in page.text
    states = {each.verdict.node: each.state for each in answer.context["landings"]}
    assert states["n-cgpu"] == "chosen"
    assert states["n-exclusive"] == "rejected"
    assert "n-plain" not in states, "a node without GPUs that rejects says nothing new"


def test_what_fits_nowhere_says_so_in_the_schedulers_words(visitor: Visitor) -> None:
    answer = visitor(Role.OPERATOR).post(
        ADDRESS, {"yaml": MANIFEST.replace("gpu-mem: 4", "gpu-mem: 16"), "action": "check"}
    )
    text = Page(answer.content.decode()).text
    assert "It would stay Pending." in text
    assert "nodes are available" in text
    assert "Feasible at this instant" not in text


def test_a_node_that_does_not_take_it_names_the_label_or_the_taint(visitor: Visitor, lab: Lab) -> None:
    tainted = a_node("n-tainted", "cgpu", taints=(Taint("team", "vision", "NoSchedule"),))
    show(lab.cluster, [*lab.picture.nodes, tainted], lab.picture.pods)
    wish = {"yaml": MANIFEST, "action": "check"}
    page = Page(visitor(Role.OPERATOR).post(ADDRESS, wish).content.decode())
    assert "team=vision:NoSchedule" in page.text
    assert "ack.node.gpu.schedule=cgpu (found topology)" in page.text


def test_a_manifest_with_errors_has_no_chosen_node_and_a_fix_that_is_about_its_resource(visitor: Visitor) -> None:
    half = MANIFEST.replace("aliyun.com/gpu-mem: 4", "nvidia.com/gpu: 0.5").replace(": cgpu}", ": default}")
    page = Page(visitor(Role.OPERATOR).post(ADDRESS, {"yaml": half, "action": "check"}).content.decode())
    assert "Cards are counted whole: write 1." in page.text
    assert "GPU memory is counted in units" not in page.text
    assert "Chosen" not in page.text
    assert "Once the errors above are gone" in page.text
    assert "The API server would refuse this manifest." in page.text


def test_work_in_the_clusters_own_namespace_is_warned_of(visitor: Visitor) -> None:
    there = MANIFEST.replace("name: four-units", "name: four-units\n  namespace: kube-system")
    page = Page(visitor(Role.OPERATOR).post(ADDRESS, {"yaml": there, "action": "check"}).content.decode())
    assert "kube-system belongs to the cluster itself" in page.text


def test_a_cluster_that_cannot_be_asked_is_no_ok_without_a_word(visitor: Visitor) -> None:
    page = Page(visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "check"}).content.decode())
    assert "The cluster could not be asked whether it would take it:" in page.text


def test_what_was_not_accepted_is_edited_and_submitted_again(visitor: Visitor, lab: Lab) -> None:
    answer = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "submit"})
    made = Submission.objects.get()
    first = visitor(Role.OPERATOR).get(answer["Location"]).content.decode()
    assert "is handed over. What becomes of it stands below." in first
    assert "note-ok" not in first
    Submission.objects.update(state=Submission.State.FAILED, error="namespaces default not found")
    page = Page(visitor(Role.OPERATOR).get(answer["Location"]).content.decode())
    again = f"{ADDRESS}?from={made.pk}"
    assert again in [each.get("href") for each in page.all("a")]
    form = visitor(Role.OPERATOR).get(again).context["form"]
    assert form["yaml"].value() == MANIFEST
    assert again not in visitor(Role.VIEWER).get(answer["Location"]).content.decode()


def test_a_pod_that_crashes_again_and_again_is_not_running(visitor: Visitor, lab: Lab) -> None:
    pod = a_pod("loop", mem=2, at={3: 2}, on="n-cgpu", reason="CrashLoopBackOff", message="back-off 5m0s")
    show(lab.cluster, lab.picture.nodes, [*lab.picture.pods, pod])
    for address in ("/c/lab/pods/", "/c/lab/pods/default/loop/"):
        assert "Crashes again and again" in Page(visitor(Role.VIEWER).get(address).content.decode()).text


@pytest.mark.parametrize(
    ("yaml", "sentence"),
    [
        ("a: [1", "not valid YAML"),
        ("", "must be a mapping"),
        ("kind: Service\napiVersion: v1\nmetadata: {name: x}", "Service"),
        ("a: &x [1]\nb: *x", "alias"),
        (MANIFEST.replace("restartPolicy: Never", "restartPolicy: Never\n      hostNetwork: true"), "hostNetwork"),
        ("x: " + "y" * 300_000, "bytes"),
    ],
)
def test_what_cannot_be_sent_is_said_at_the_text_which_is_kept(visitor: Visitor, yaml: str, sentence: str) -> None:
    for action in ("check", "submit"):
        answer = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": yaml, "action": action})
        assert answer.status_code == 400
        assert sentence.lower() in " ".join(answer.context["form"].errors["yaml"]).lower()
        assert answer.context["form"]["yaml"].value() == yaml
    assert not Submission.objects.exists()


def test_what_lint_calls_an_error_is_shown_and_not_sent(visitor: Visitor) -> None:
    wrong = MANIFEST.replace("aliyun.com/gpu-mem: 4", "aliyun.com/gpu-count: 25")
    checked = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": wrong, "action": "check"})
    assert checked.context["checked"].errors
    answer = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": wrong, "action": "submit"})
    assert answer.status_code == 400
    assert not Submission.objects.exists()


def test_a_submission_goes_to_its_page_and_to_the_queue(visitor: Visitor) -> None:
    answer = visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "submit"})
    made = Submission.objects.get()
    assert answer["Location"] == f"/c/lab/jobs/{made.pk}/"
    assert Push.objects.get().kind == "submission.create"
    page = Page(visitor(Role.VIEWER).get(answer["Location"]).content.decode())
    assert "Queued" in page.text
    assert "the-operator" in page.text
    assert "four-units" in Page(visitor(Role.VIEWER).get("/c/lab/jobs/").content.decode()).text


def test_a_viewer_may_check_but_not_submit(visitor: Visitor) -> None:
    page = Page(visitor(Role.VIEWER).get(ADDRESS).content.decode())
    assert not page.all("button", value="submit")
    assert visitor(Role.VIEWER).post(ADDRESS, {"yaml": MANIFEST, "action": "check"}).status_code == 200
    assert visitor(Role.VIEWER).post(ADDRESS, {"yaml": MANIFEST, "action": "submit"}).status_code == 403


def test_submissions_of_namespaces_out_of_reach_are_not_there(visitor: Visitor, lab: Lab) -> None:
    visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "submit"})
    made = Submission.objects.get()
    narrow = Client()
    narrow.force_login(
        an_actor(Role.OPERATOR, lab.cluster, "payroll").user, "django.contrib.auth.backends.ModelBackend"
    )
    assert narrow.get(f"/c/lab/jobs/{made.pk}/").status_code == 404
    assert "four-units" not in Page(narrow.get("/c/lab/jobs/").content.decode()).text


def test_deleting_asks_the_cluster_to_delete(visitor: Visitor) -> None:
    visitor(Role.OPERATOR).post(ADDRESS, {"yaml": MANIFEST, "action": "submit"})
    Push.objects.all().delete()
    Submission.objects.update(state=Submission.State.SUBMITTED)
    made = Submission.objects.get()
    assert visitor(Role.VIEWER).post(f"/c/lab/jobs/{made.pk}/delete/").status_code == 403
    assert visitor(Role.OPERATOR).post(f"/c/lab/jobs/{made.pk}/delete/").status_code == 302
    assert Submission.objects.get().state == Submission.State.DELETING


def test_a_list_that_is_empty_says_what_to_do_next(visitor: Visitor) -> None:
    page = Page(visitor(Role.OPERATOR).get("/c/lab/jobs/").content.decode())
    assert "Nothing submitted yet" in page.text
    assert page.all("a", href="/c/lab/create-job/")
