"""Ways into a running cluster: its own service account, a RAM role, without certificates, and keys that change."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from gpupools.clusters import roles
from gpupools.errors import Invalid, Unreachable
from gpupools.models import AuditEntry, Cluster
from gpupools.services import clusters, credentials, gateways
from tests.services.builders import a_cluster, a_connection
from tests.simulator.harness import SimulatorProcess

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small", ack=True) as running:
        yield running


def config_of(simulator, role="admin"):
    return yaml.safe_load(simulator.kubeconfig_of(role).read_text())


def connect(actor, simulator, **wishes):
    given = {"name": "lab", "provider": "kubernetes", "kubeconfig": simulator.kubeconfig.read_text(), **wishes}
    return clusters.connect(actor, **given)


def nodes_of(cluster):
    with gateways.kubernetes_of(cluster) as kubernetes:
        return len(kubernetes.nodes())


# -- What the identity may


def test_a_probe_keeps_what_the_identity_leaves_of_the_console(admin, simulator):
    cluster = connect(admin, simulator, kubeconfig=simulator.kubeconfig_of("viewer").read_text())
    found = {each["code"]: each for each in cluster.abilities}
    assert found["allocation"]["allowed"]
    assert found["modes"] == {
        "code": "modes",
        "title": "Change modes: label, taint and cordon nodes",
        "allowed": False,
        "missing": ["patch nodes"],
    }
    Cluster.objects.update(abilities=[])
    cluster.refresh_from_db()
    clusters.probe(cluster)
    assert {each["code"] for each in cluster.abilities} == set(found)


# -- The console's own cluster


@pytest.fixture
def pod(simulator, settings, tmp_path, monkeypatch):
    """What the console's own pod would see: files of its service account and the variables of its container."""
    config = config_of(simulator)
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.hostname)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    settings.GPUPOOLS_SERVICE_ACCOUNT_DIR = tmp_path
    return tmp_path


def test_the_console_connects_the_cluster_that_it_runs_in(admin, simulator, pod):
    cluster = connect(admin, simulator, kubeconfig="", in_cluster=True)
    assert (cluster.in_cluster, nodes_of(cluster)) == (True, 11)
    token = (pod / "token").read_text()
    assert token not in str(credentials.decrypt(cluster.credentials))


def test_the_token_of_the_service_account_is_read_again_when_it_was_replaced(admin, simulator, pod):
    cluster = connect(admin, simulator, kubeconfig="", in_cluster=True)
    good = (pod / "token").read_text()
    with gateways.kubernetes_of(cluster) as kubernetes:
        (pod / "token").write_text("ended")
        with pytest.raises(Exception, match="Unauthorized|refused"):
            kubernetes.nodes()
        (pod / "token").write_text(good)
        assert len(kubernetes.nodes()) == 11


def test_outside_a_pod_there_is_no_cluster_of_its_own(admin, simulator, monkeypatch, settings, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    settings.GPUPOOLS_SERVICE_ACCOUNT_DIR = tmp_path
    with pytest.raises(Invalid) as refusal:
        connect(admin, simulator, kubeconfig="", in_cluster=True)
    assert [(error.field, error.code) for error in refusal.value.errors] == [("in_cluster", "not-in-cluster")]


# -- What settings allow and deny


@pytest.mark.parametrize("denied", ["127.0.0.0/8", "127.0.0.1"])
def test_a_denied_network_is_not_connected_and_not_reached(admin, simulator, settings, denied):
    cluster = connect(admin, simulator, name="before")
    settings.GPUPOOLS_DENIED_ADDRESSES = [denied]
    with pytest.raises(Invalid) as refusal:
        connect(admin, simulator)
    assert refusal.value.errors[0].field == "kubeconfig.cluster.server"
    assert "settings deny" in refusal.value.errors[0].message
    # Nor is one that was connected before: the address that is really reached is looked at.
    clusters.probe(cluster)
    assert cluster.state == Cluster.State.UNREACHABLE
    assert "deny" in cluster.last_error


def without_a_certificate(simulator):
    config = config_of(simulator)
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    return yaml.safe_dump(config)


def test_without_a_check_of_certificates_only_by_setting_and_no_longer_than_that(admin, simulator, settings):
    text = without_a_certificate(simulator)
    with pytest.raises(Invalid) as refusal:
        connect(admin, simulator, kubeconfig=text)
    assert refusal.value.errors[0].code == "insecure"
    settings.GPUPOOLS_ALLOW_INSECURE_TLS = True
    cluster = connect(admin, simulator, kubeconfig=text)
    assert nodes_of(cluster) == 11
    settings.GPUPOOLS_ALLOW_INSECURE_TLS = False
    with pytest.raises(Unreachable, match="GPUPOOLS_ALLOW_INSECURE_TLS"):
        nodes_of(cluster)


# -- Keys and credentials that change


def test_a_new_key_reads_with_the_old_one_beside_it_and_alone_after_rotation(admin, simulator, settings, capsys):
    cluster = connect(admin, simulator)
    old, new = settings.GPUPOOLS_CREDENTIALS_KEY, Fernet.generate_key().decode()
    settings.GPUPOOLS_CREDENTIALS_KEY = new
    clusters.probe(cluster)
    assert "GPUPOOLS_OLD_CREDENTIALS_KEYS" in cluster.last_error
    settings.GPUPOOLS_OLD_CREDENTIALS_KEYS = [old]
    assert nodes_of(cluster) == 11
    call_command("rotatecredentials")
    assert "Written anew: lab." in capsys.readouterr().out
    settings.GPUPOOLS_OLD_CREDENTIALS_KEYS = []
    cluster.refresh_from_db()
    assert nodes_of(cluster) == 11
    assert AuditEntry.objects.filter(action="cluster.rotate", cluster=cluster).count() == 1


def test_credentials_that_no_key_reads_are_named_and_left_as_they_are(lab, settings):
    before = lab.credentials
    settings.GPUPOOLS_CREDENTIALS_KEY = Fernet.generate_key().decode()
    fine = a_cluster("fine")
    with pytest.raises(CommandError, match="No key reads the credentials of lab") as refusal:
        call_command("rotatecredentials")
    lab.refresh_from_db()
    assert lab.credentials == before
    assert "fine" not in str(refusal.value)
    credentials.connection_of(Cluster.objects.get(pk=fine.pk))


def test_a_key_that_is_none_is_said_without_quoting_it(lab, settings):
    settings.GPUPOOLS_OLD_CREDENTIALS_KEYS = ["not-a-key-at-all"]
    with pytest.raises(CommandError, match="GPUPOOLS_OLD_CREDENTIALS_KEYS is not a Fernet key") as refusal:
        call_command("rotatecredentials")
    assert "not-a-key-at-all" not in str(refusal.value)


def test_new_credentials_take_over_only_once_they_have_answered(admin, simulator):
    cluster = connect(admin, simulator, kubeconfig=simulator.kubeconfig_of("viewer").read_text())
    wrong = config_of(simulator)
    wrong["users"][0]["user"]["token"] = "wrong"
    with pytest.raises(Invalid):
        clusters.refresh(admin, cluster, kubeconfig=yaml.safe_dump(wrong))
    assert nodes_of(cluster) == 11
    clusters.refresh(admin, cluster, kubeconfig=simulator.kubeconfig.read_text())
    assert all(each["allowed"] for each in cluster.abilities)


# -- The RAM role of the machine


@pytest.fixture
def metadata(simulator, monkeypatch) -> Iterator[list[str]]:
    """An instance metadata service on this machine that gives the embedded cluster's key as that of a role."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            found = self.path.endswith("/gpupools-console")
            body = {
                "Code": "Success",
                "AccessKeyId": simulator.ack["access_key_id"],
                "AccessKeySecret": simulator.ack["access_key_secret"],
                "SecurityToken": "token-of-the-role",
                "Expiration": "2099-01-01T00:00:00Z",
            }
            self._answer(200 if found else 404, json.dumps(body).encode() if found else b"")

        def do_PUT(self) -> None:
            self._answer(200, b"metadata-token")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host = f"127.0.0.1:{server.server_address[1]}"
        original = roles.EcsRamRoleCredentialsProvider

        def here(**arguments: object) -> object:
            made = original(**arguments)
            made._EcsRamRoleCredentialsProvider__metadata_service_host = host
            return made

        monkeypatch.setattr(roles, "EcsRamRoleCredentialsProvider", here)
        roles.credentials_of.cache_clear()
        yield seen
        roles.credentials_of.cache_clear()
        server.shutdown()
        thread.join()


def ack_by_role(simulator, role="gpupools-console"):
    keys = ("cluster_id", "region", "endpoint", "protocol")
    return {"ram_role": role, **{key: simulator.ack[key] for key in keys}}


def test_ack_is_reached_by_the_ram_role_of_the_machine(admin, simulator, metadata):
    cluster = connect(admin, simulator, provider="ack", kubeconfig="", ack=ack_by_role(simulator))
    assert cluster.ack_cluster_id == simulator.ack["cluster_id"]
    assert any(path.endswith("/gpupools-console") for path in metadata)
    assert simulator.ack["access_key_secret"] not in str(credentials.decrypt(cluster.credentials))


def test_a_role_that_the_machine_does_not_have_is_said_plainly(admin, simulator, metadata):
    with pytest.raises((Invalid, Unreachable)) as refusal:
        connect(admin, simulator, provider="ack", kubeconfig="", ack=ack_by_role(simulator, "another"))
    assert "role" in str(refusal.value).lower()


def test_a_role_and_an_accesskey_together_are_refused(admin, simulator):
    both = {**ack_by_role(simulator), "access_key_id": "AKID"}
    with pytest.raises(Invalid) as refusal:
        connect(admin, simulator, provider="ack", kubeconfig="", ack=both)
    assert refusal.value.errors[0].field == "ack.ram_role"


def test_a_role_is_named_as_roles_are(admin, simulator):
    with pytest.raises(Invalid) as refusal:
        connect(admin, simulator, provider="ack", kubeconfig="", ack=ack_by_role(simulator, "../x"))
    assert refusal.value.errors[0].field == "ack.ram_role"
    assert a_connection(ack=True).ack.ram_role == ""


# -- By page and API


def test_credentials_are_replaced_and_asked_about_over_the_api(admin, operator, simulator):
    cluster = connect(admin, simulator, kubeconfig=simulator.kubeconfig_of("viewer").read_text())
    client = APIClient()
    client.force_authenticate(admin.user)
    address = f"/api/v1/clusters/{cluster.name}"
    assert not all(each["allowed"] for each in client.get(f"{address}/").json()["abilities"])
    answer = client.post(f"{address}/credentials/", {"kubeconfig": simulator.kubeconfig.read_text()}, format="json")
    assert answer.status_code == 200
    assert all(each["allowed"] for each in answer.json()["abilities"])
    assert "token" not in answer.content.decode()
    client.force_authenticate(operator.user)
    assert client.post(f"{address}/probe/").json()["state"] == "connected"
    refused = client.post(f"{address}/credentials/", {"kubeconfig": "x"}, format="json")
    assert refused.status_code == 403


def test_the_list_of_clusters_says_what_an_identity_lacks(admin, simulator, client):
    connect(admin, simulator, kubeconfig=simulator.kubeconfig_of("viewer").read_text())
    client.force_login(admin.user, backend="django.contrib.auth.backends.ModelBackend")
    text = client.get("/clusters/").content.decode()
    assert "not: Change modes: label, taint and cordon nodes (needs patch nodes)" in text


def test_the_form_connects_the_consoles_own_cluster(admin, client, pod):
    client.force_login(admin.user, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.post("/clusters/connect/", {"name": "own", "provider": "kubernetes", "in_cluster": "on"})
    assert answer.status_code == 302
    assert Cluster.objects.get(name="own").in_cluster
