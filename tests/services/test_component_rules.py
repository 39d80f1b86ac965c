"""Components: who may install what, what depends on them, what the overview says; before any cluster is asked."""

from __future__ import annotations

import pytest
from django.utils import timezone

from gpupools.domain.components import CATALOGUE, NAMESPACE
from gpupools.domain.modes import MODE_LABEL, MODES, Component
from gpupools.errors import Conflict, Invalid, NotAllowed
from gpupools.models import AuditEntry, Cluster, ComponentState, ModeChange, NodePool, Push
from gpupools.services import componentpushes, components, pushes
from gpupools.services.pushes import Handler
from tests.services.asking import let
from tests.services.builders import a_cluster, a_component, a_pool
from tests.services.dangers import MPS, an_mps_node
from tests.services.showing import show

pytestmark = pytest.mark.django_db
PREFIX = "registry.example.com:5000/gpu"


@pytest.fixture
def ack() -> Cluster:
    return a_cluster("cloud", provider=Cluster.Provider.ACK)


def row(cluster, name):
    return next(each for each in components.overview(cluster) if each.name == name)


def test_before_the_first_check_a_component_is_unknown_and_not_absent(ack):
    assert [each.name for each in components.overview(ack)] == list(CATALOGUE)
    assert {each.state for each in components.overview(ack)} == {"unknown"}
    assert {each.desired for each in components.overview(ack)} == {None}


def test_the_overview_names_the_pools_that_depend_on_a_component_and_whether_it_is_missed(ack):
    a_pool(ack, "day", mode="mps")
    a_pool(ack, "night", mode="cgpu")
    a_pool(ack, "whole", mode="exclusive")
    a_pool(ack, "past", mode="mps", state=NodePool.State.GONE)
    a_component(ack, "ack-mps-control", "absent")
    a_component(ack, "ack-ai-installer", "installed")
    assert row(ack, "ack-ai-installer").pools == ("day", "night")
    assert row(ack, "ack-mps-control").pools == ("day",)
    assert row(ack, "ack-nvidia-device-plugin").pools == ("whole",)
    assert row(ack, "ack-mps-control").missed
    assert not row(ack, "ack-ai-installer").missed
    assert not row(ack, "ack-nvidia-device-plugin").missed


def test_installing_is_queued_audited_and_shown(ack, operator):
    push = components.install(operator, ack, "ack-ai-installer")
    assert (push.kind, push.target) == ("component.install", "component:ack-ai-installer")
    assert row(ack, "ack-ai-installer").state == "installing"
    assert row(ack, "ack-ai-installer").busy == "component.install"
    entry = AuditEntry.objects.get(action="component.install")
    assert (entry.actor_name, entry.cluster, entry.object_id) == ("olga", ack, "ack-ai-installer")


def test_a_viewer_installs_and_uninstalls_nothing(ack, viewer):
    with pytest.raises(NotAllowed):
        components.install(viewer, ack, "ack-ai-installer")
    with pytest.raises(NotAllowed):
        components.uninstall(viewer, ack, "ack-ai-installer", reason="tired of it")


def test_another_vendors_component_is_refused_with_what_to_use_instead(ack, operator):
    with pytest.raises(Invalid) as refusal:
        components.install(operator, ack, "gpu-manager")
    error = refusal.value.errors[0]
    assert error.code == "foreign"
    assert "ack-ai-installer" in error.message
    assert "Tencent" in error.message


def test_an_unknown_component_is_refused_with_those_that_exist(ack, operator):
    with pytest.raises(Invalid) as refusal:
        components.install(operator, ack, "hami")
    assert refusal.value.errors[0].allowed == "ack-ai-installer, ack-mps-control, ack-nvidia-device-plugin"


def test_plain_kubernetes_needs_a_registry_with_the_images(lab, operator):
    with pytest.raises(Invalid) as refusal:
        components.install(operator, lab, "ack-ai-installer")
    assert (refusal.value.errors[0].field, refusal.value.errors[0].code) == ("image_prefix", "required")
    push = components.install(operator, lab, "ack-ai-installer", image_prefix=f"{PREFIX}/")
    assert push.payload["image_prefix"] == PREFIX


@pytest.mark.parametrize(
    "prefix",
    ["https://registry.example.com", "registry/x:latest", "a b", "../x", "x@sha256:0", "Registry/x", "x" * 201],
)
def test_a_registry_that_cannot_start_an_images_name_is_refused(lab, operator, prefix):
    with pytest.raises(Invalid) as refusal:
        components.install(operator, lab, "ack-ai-installer", image_prefix=prefix)
    assert refusal.value.errors[0].field == "image_prefix"


def test_what_is_installed_is_not_installed_again_but_what_is_degraded_may_be(ack, operator):
    state = a_component(ack, "ack-ai-installer", "installed")
    with pytest.raises(Conflict) as refusal:
        components.install(operator, ack, "ack-ai-installer")
    assert refusal.value.code == "installed"
    ComponentState.objects.filter(pk=state.pk).update(state="degraded")
    components.install(operator, ack, "ack-ai-installer")


def test_a_daemon_that_runs_in_part_is_not_installed_over_its_clients(ack, operator, empty_redis):
    an_mps_node(ack)
    ComponentState.objects.filter(name=MPS).update(state="degraded")
    with pytest.raises(Conflict) as refusal:
        components.install(operator, ack, MPS)
    assert (refusal.value.code, refusal.value.data["pods"]) == ("kills-pods", ["default/one"])
    assert "Upgrade it instead" in refusal.value.message
    show(ack, [])
    assert components.install(operator, ack, MPS).kind == "component.install"


def test_one_operation_on_a_component_at_a_time(ack, operator):
    components.install(operator, ack, "ack-ai-installer")
    with pytest.raises(Conflict) as refusal:
        components.install(operator, ack, "ack-ai-installer")
    assert refusal.value.code == "busy"


def test_an_uninstallation_supersedes_an_installation_that_only_waits(ack, operator, admin):
    waiting = components.install(operator, ack, "ack-ai-installer")
    asked = components.uninstall(operator, ack, "ack-ai-installer", reason="changed my mind")
    waiting.refresh_from_db()
    assert waiting.state == Push.State.QUEUED, "a request supersedes nothing"
    push = let(admin, asked).push
    waiting.refresh_from_db()
    assert (waiting.state, waiting.error) == (Push.State.FAILED, "Superseded by an uninstallation.")
    assert (push.state, push.kind) == (Push.State.QUEUED, "component.uninstall")
    assert row(ack, "ack-ai-installer").state == "removing"


def test_an_installation_that_is_being_carried_out_this_moment_is_not_superseded(ack, operator, admin):
    components.install(operator, ack, "ack-ai-installer")
    assert pushes.claim() is not None
    asked = components.uninstall(operator, ack, "ack-ai-installer", reason="changed my mind")
    with pytest.raises(Conflict) as refusal:
        let(admin, asked)
    assert refusal.value.code == "busy"
    asked.refresh_from_db()
    assert asked.state == "pending", "it may be approved when the installation has ended"


def test_uninstalling_is_refused_while_pools_depend_on_it_naming_them(ack, operator):
    a_pool(ack, "night", mode="share")
    a_component(ack, "ack-ai-installer")
    with pytest.raises(Conflict) as refusal:
        components.uninstall(operator, ack, "ack-ai-installer", reason="tired of it")
    assert refusal.value.code == "in-use"
    assert refusal.value.data["pools"] == ["night"]
    assert "night" in refusal.value.message
    assert not Push.objects.exists()


def test_uninstalling_is_refused_while_an_open_change_leads_to_a_mode_that_needs_it(ack, operator):
    pool = a_pool(ack, "night", mode="exclusive")
    now = timezone.now()
    ModeChange.objects.create(
        pool=pool, target_mode="mps", fingerprint="x", reason="x", requested_by=operator.user, requested_at=now,
        expires_at=now,
    )  # fmt: skip
    with pytest.raises(Conflict) as refusal:
        components.uninstall(operator, ack, "ack-mps-control", reason="tired of it")
    assert refusal.value.data["pools"] == ["night"]


def test_uninstalling_needs_a_reason_and_something_to_uninstall(ack, operator):
    a_component(ack, "ack-ai-installer", "absent")
    with pytest.raises(Invalid):
        components.uninstall(operator, ack, "ack-ai-installer", reason=" ")
    with pytest.raises(Conflict) as refusal:
        components.uninstall(operator, ack, "ack-ai-installer", reason="tired of it")
    assert refusal.value.code == "absent"


def test_a_failed_installation_stays_visible_with_its_reason(lab, operator):
    push = components.install(operator, lab, "ack-ai-installer", image_prefix=PREFIX)
    Push.objects.filter(pk=push.pk).update(attempts=pushes.MAX_TRIES)
    pushes.drain({"component.install": Handler(componentpushes.install, componentpushes.failed)})
    shown = row(lab, "ack-ai-installer")
    assert (shown.state, shown.busy) == ("failed", "")
    assert "ended each time" in shown.error


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_the_manifests_are_the_daemonsets_of_the_catalogue_on_the_nodes_of_their_modes(name):
    documents = componentpushes.manifests(name, image_prefix=PREFIX)
    facts = {each.name: each for each in CATALOGUE[name].daemonsets}
    assert [document["metadata"]["name"] for document in documents] == list(facts)
    for document in documents:
        pod = document["spec"]["template"]["spec"]
        labels = [MODES[mode].label_value for mode in facts[document["metadata"]["name"]].modes]
        if "nodeSelector" in pod:
            found = [pod["nodeSelector"][MODE_LABEL]]
        else:
            required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
            assert (expression["key"], expression["operator"]) == (MODE_LABEL, "In")
            found = expression["values"]
        assert found == labels
        assert document["metadata"]["namespace"] == NAMESPACE
        assert pod["priorityClassName"] == "system-node-critical"
        selector = document["spec"]["selector"]["matchLabels"]
        assert selector.items() <= document["spec"]["template"]["metadata"]["labels"].items()
        for container in pod["containers"]:
            assert container["image"].startswith(f"{PREFIX}/")
            assert ":" not in container["image"].removeprefix(PREFIX)


def test_the_device_plugin_carries_the_label_by_which_ack_tells_it():
    (document,) = componentpushes.manifests(Component.NVIDIA_PLUGIN, image_prefix=PREFIX)
    assert document["spec"]["template"]["metadata"]["labels"]["component"] == "nvidia-device-plugin"
