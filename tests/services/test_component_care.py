"""Caring for components in a running cluster: Helm's releases, uploads, upgrades, and the pods that these end."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator

import pytest
import yaml
from rest_framework.test import APIClient

from gpupools.clusters import kubeconfig
from gpupools.clusters.channel import Channel
from gpupools.domain.modes import MODE_LABEL, Component
from gpupools.errors import Conflict, Invalid, NotAllowed, Unreachable
from gpupools.models import AuditEntry, ComponentState, Push
from gpupools.services import allocation, componentcare, componentpushes, components, credentials, gateways
from tests.services.asking import let
from tests.services.work import connected, until, work
from tests.simulator.harness import SimulatorProcess

pytestmark = pytest.mark.django_db
PREFIX = "registry.example.com/acs"
MPS = "ack-mps-control"


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", speed=50) as running:
        yield running


@pytest.fixture
def cluster(db, simulator, empty_redis):
    made = connected(simulator)
    with gateways.kubernetes_of(made) as kubernetes:
        until(lambda: len(kubernetes.nodes()) == 11)
    return made


@pytest.fixture
def api(cluster) -> Iterator[Channel]:
    channel = Channel(credentials.connection_of(cluster))
    yield channel
    channel.close()


@pytest.fixture
def without_mps(cluster) -> Iterator[None]:
    yield
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.delete("DaemonSet", "kube-system", MPS)
        kubernetes.delete("ConfigMap", "kube-system", "mps-settings")


def state(cluster, name=MPS):
    components.check(cluster)
    return ComponentState.objects.get(cluster=cluster, name=name)


def last_push():
    return Push.objects.order_by("-pk").first()


# -- Helm


def a_release(name, *, revision=1, status="deployed", version="1.13.0"):
    body = {"name": name, "chart": {"metadata": {"name": name, "version": version}, "templates": ["x" * 500]}}
    packed = base64.b64encode(gzip.compress(json.dumps(body).encode())).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": f"sh.helm.release.v1.{name}.v{revision}",
            "namespace": "kube-system",
            "labels": {"owner": "helm", "name": name, "status": status, "version": str(revision)},
        },
        "stringData": {"release": packed},
    }


@pytest.fixture
def released(api) -> Iterator[None]:
    path = "/api/v1/namespaces/kube-system/secrets"
    made = [a_release("ack-ai-installer", revision=number, version=f"1.{number}.0") for number in (2, 10)]
    for each in made:
        api.request("POST", path, body=each)
    yield
    for each in made:
        api.request("DELETE", f"{path}/{each['metadata']['name']}", body={})


def test_what_helm_installed_is_recognised_with_its_charts_version(cluster, released):
    found = state(cluster, "ack-ai-installer")
    assert (found.found_by, found.version, found.state) == ("Helm release", "1.10.0", "installing")
    assert "deployed" in found.detail


def test_what_helm_installed_is_removed_by_helm(cluster, released, operator, admin):
    with gateways.kubernetes_of(cluster) as kubernetes:
        manifest = componentpushes.manifests(Component.AI_INSTALLER, image_prefix=PREFIX)[0]
        kubernetes.apply(manifest, op_id="x")
    channel = Channel(credentials.connection_of(cluster))
    path = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{manifest['metadata']['name']}"
    mark = {"metadata": {"annotations": {"gpupools.internal/op": None}}}
    channel.request("PATCH", path, body=mark, content_type="application/merge-patch+json")
    let(admin, components.uninstall(operator, cluster, "ack-ai-installer", reason="not needed"))
    work()
    channel.request("DELETE", path, body={})
    channel.close()
    assert "helm uninstall ack-ai-installer --namespace kube-system" in last_push().error


def test_without_the_right_to_read_secrets_components_are_still_recognised(simulator, cluster):
    text = simulator.kubeconfig_of("viewer").read_text()
    cluster.credentials = credentials.seal(kubeconfig.parse(text, allow_loopback=True))
    cluster.save()
    assert state(cluster, "ack-nvidia-device-plugin").state == "installed"


# -- Uploaded manifests


def upload(**changes):
    (daemonset,) = componentpushes.manifests(Component.MPS_CONTROL, image_prefix=PREFIX)
    daemonset["metadata"].update(changes)
    metadata = {"name": "mps-settings", "namespace": "kube-system"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"threads": "50"}}
    return yaml.safe_dump_all([settings, daemonset])


def test_an_upload_is_rehearsed_applied_and_removed_with_all_that_it_brought(cluster, admin, operator, without_mps):
    found = componentcare.rehearse(admin, cluster, MPS, manifests=upload())
    assert [(each.kind, each.name, each.outcome) for each in found] == [
        ("ConfigMap", "mps-settings", "created"),
        ("DaemonSet", MPS, "created"),
    ]
    assert ("data.threads", "", "50") in [(line.path, line.before, line.after) for line in found[0].lines]
    with gateways.kubernetes_of(cluster) as kubernetes:
        assert MPS not in {each.name for each in kubernetes.workloads()}, "a rehearsal writes nothing"
    components.install(admin, cluster, MPS, manifests=upload())
    work()
    assert state(cluster).state == "installed"
    again = componentcare.rehearse(admin, cluster, MPS, manifests=upload().replace("'50'", "'60'"))
    assert [(each.outcome, len(each.lines)) for each in again] == [("changed", 1), ("unchanged", 0)]
    allocation.poll(cluster)
    let(admin, components.uninstall(operator, cluster, MPS, reason="only a test"))
    work()
    gone = componentcare.rehearse(admin, cluster, MPS, manifests=upload())
    assert [each.outcome for each in gone] == ["created", "created"]


def test_uploads_are_an_administrators(cluster, operator):
    with pytest.raises(NotAllowed):
        components.install(operator, cluster, MPS, manifests=upload())
    with pytest.raises(NotAllowed):
        componentcare.rehearse(operator, cluster, MPS, manifests=upload())


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("kind: Pod\nmetadata: {name: x}", "manifests[1].kind", "kind"),
        (upload(namespace="default"), "manifests[2].metadata.namespace", "namespace"),
        (upload(name="gpushare-device-plugin-ds"), "manifests", "foreign"),
        (upload(name="something-else"), "manifests", "no-daemonset"),
        ("# nothing\n---\n", "manifests", "count"),
        ("a: &x [1]\nb: *x", "manifests[1]", "alias"),
        ("x" * 300_000, "manifests", "too-large"),
    ],
)
def test_an_upload_that_is_no_component_is_refused_at_its_field(lab, admin, text, field, code):
    with pytest.raises(Invalid) as refusal:
        components.install(admin, lab, MPS, manifests=text)
    assert (refusal.value.errors[0].field, refusal.value.errors[0].code) == (field, code)
    assert not Push.objects.exists()


# -- What a daemon's restart ends


@pytest.fixture
def busy_mps(cluster, api, admin, without_mps) -> Iterator[str]:
    """An mps node with a pod that computes through the daemon, as the console has seen it."""
    for name in (MPS, "ack-ai-installer"):
        components.install(admin, cluster, name, image_prefix=PREFIX)
    work()
    with gateways.kubernetes_of(cluster) as kubernetes:
        kubernetes.label_node("gpu-09", labels={MODE_LABEL: "mps"}, op_id="to-mps")
        until(lambda: kubernetes.node("gpu-09").memory_units > 0)
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer", "namespace": "default"},
            "spec": {
                "hostIPC": True, "nodeSelector": {MODE_LABEL: "mps"}, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "36000"],
                                "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}}],
            },
        }  # fmt: skip
        api.request("POST", "/api/v1/namespaces/default/pods", body=pod)
        until(lambda: any(each.name == "trainer" and each.phase == "Running" for each in kubernetes.pods()))
        allocation.poll(cluster)
        yield "default/trainer"
        api.request("DELETE", "/api/v1/namespaces/default/pods/trainer", body={"gracePeriodSeconds": 0})
        kubernetes.label_node("gpu-09", labels={MODE_LABEL: "default"}, op_id="from-mps")


def test_touching_the_mps_daemon_names_every_pod_that_would_die_and_needs_an_administrator(
    cluster, busy_mps, admin, operator, at_once
):
    for deed in (
        lambda who, pods: components.uninstall(who, cluster, MPS, reason="x", approved_pods=pods),
        lambda who, pods: componentcare.upgrade(who, cluster, MPS, image_prefix=PREFIX, reason="x", approved_pods=pods),
    ):
        with pytest.raises(Conflict) as refusal:
            deed(admin, [])
        assert (refusal.value.code, refusal.value.data["pods"]) == ("kills-pods", [busy_mps])
        assert busy_mps in refusal.value.message
        with pytest.raises(NotAllowed):
            deed(operator, [busy_mps])
    componentcare.upgrade(admin, cluster, MPS, image_prefix=f"{PREFIX}/new", reason="newer", approved_pods=[busy_mps])
    work()
    assert last_push().state == Push.State.DONE, last_push().error
    assert AuditEntry.objects.get(action="component.upgrade").data["approved_pods"] == [busy_mps]
    with gateways.kubernetes_of(cluster) as kubernetes:
        (daemon,) = [each for each in kubernetes.workloads() if each.name == MPS]
    assert daemon.image.startswith(f"{PREFIX}/new/")


def test_a_pod_that_came_after_the_approval_stops_the_operation(cluster, busy_mps, admin, operator):
    push = let(admin, componentcare.upgrade(operator, cluster, MPS, image_prefix=PREFIX, reason="x")).push
    assert push.payload["approved_pods"] == [busy_mps]
    Push.objects.filter(pk=push.pk).update(payload={**push.payload, "approved_pods": []})
    work()
    assert busy_mps in last_push().error


def test_before_the_cluster_was_read_nobody_knows_whose_pods_would_end(lab, admin, empty_redis):
    with pytest.raises(Unreachable) as refusal:
        components.uninstall(admin, lab, MPS, reason="x")
    assert refusal.value.code == "no-picture"


def test_each_node_says_whether_a_component_works_there(cluster, busy_mps, admin):
    (found,) = componentcare.nodes(admin, cluster, MPS)
    assert (found.node, found.daemonset, found.ok) == ("gpu-09", MPS, True)
    client = APIClient()
    client.force_authenticate(admin.user)
    body = client.get(f"/api/v1/clusters/{cluster.name}/components/{MPS}/nodes/").json()
    assert body["clients"] == [busy_mps]
    assert body["results"][0]["ok"] is True


# -- Add-ons


@pytest.fixture(scope="module")
def on_ack() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="demo", speed=50, ack=True) as running:
        yield running


def test_an_add_on_is_upgraded_and_configured(db, on_ack, admin, empty_redis):
    cloud = connected(on_ack, "cloud")
    name = "ack-nvidia-device-plugin"
    until(lambda: state(cloud, name).state == "installed")
    before = state(cloud, name).version
    assert componentcare.offer(admin, cloud, name).version == before
    componentcare.upgrade(admin, cloud, name, version="9.9.9", config='{"a": 1}', reason="newer")
    work()
    assert last_push().state == Push.State.DONE, last_push().error
    assert state(cloud, name).version == "9.9.9" != before
    assert json.loads(componentcare.offer(admin, cloud, name).configuration) == {"a": 1}


def test_a_configuration_that_is_no_json_object_is_refused(lab, admin):
    with pytest.raises(Invalid) as refusal:
        componentcare.upgrade(admin, lab, "ack-ai-installer", config="[1]", reason="x")
    assert refusal.value.errors[0].field == "config"
