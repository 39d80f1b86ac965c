"""Connecting and probing clusters that are not there, and letting clusters go."""

from __future__ import annotations

import pytest
import yaml
from django.utils import timezone

from gpupools.errors import Conflict, Invalid, NotAllowed, Unreachable
from gpupools.models import AuditEntry, Cluster, ModeChange, NodePool
from gpupools.services import clusters, pushes, reaching
from tests.services.builders import a_cluster, a_connection, a_pool

pytestmark = pytest.mark.django_db
KUBECONFIG = yaml.safe_dump(dict(a_connection().kubeconfig))
ACK = {"cluster_id": "c1", "region": "cn-test", "access_key_id": "AKID", "access_key_secret": "not a real secret"}


def connect(actor, **wishes):
    return clusters.connect(actor, **{"name": "prod", "provider": "kubernetes", "kubeconfig": KUBECONFIG, **wishes})


def refused(actor, **wishes):
    with pytest.raises(Invalid) as refusal:
        connect(actor, **wishes)
    return [(error.field, error.code) for error in refusal.value.errors]


def test_only_an_administrator_of_the_whole_console_connects_clusters(operator):
    with pytest.raises(NotAllowed):
        connect(operator)


def test_a_cluster_that_does_not_answer_is_not_connected(admin):
    with pytest.raises(Unreachable):
        connect(admin)
    assert not Cluster.objects.exists()
    assert not AuditEntry.objects.exists()


def test_names_and_providers_are_checked_before_anything_is_sent(admin, lab):
    assert refused(admin, name="lab") == [("name", "taken")]
    assert refused(admin, name="Prod!", provider="aws") == [("name", "bad-name"), ("provider", "unknown")]


def test_ack_needs_all_of_its_access_and_others_none(admin):
    assert refused(admin, provider="ack", ack={"region": "cn-test", "cluster_id": " "}) == [
        ("ack.cluster_id", "required"),
        ("ack.access_key_id", "required"),
        ("ack.access_key_secret", "required"),
    ]
    assert refused(admin, provider="kubernetes", ack=ACK) == [("ack", "unexpected")]


def test_a_dangerous_kubeconfig_is_refused_by_field(admin, settings):
    config = yaml.safe_load(KUBECONFIG)
    config["users"][0]["user"] = {"exec": {"command": "touch", "args": ["/tmp/owned"]}}
    assert [field for field, _ in refused(admin, kubeconfig=yaml.safe_dump(config))] == ["kubeconfig.user.exec"]
    settings.GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS = False
    assert [field for field, _ in refused(admin)] == ["kubeconfig.cluster.server"]


def test_an_ack_endpoint_on_this_machine_is_refused_unless_allowed(admin, settings):
    settings.GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS = False
    endpoint = {**ACK, "access_key_secret": "x" * 30, "endpoint": "127.0.0.1:1", "protocol": "http"}
    found = refused(admin, provider="ack", kubeconfig="", ack=endpoint)
    assert [field.split(".")[0] for field, _ in found] == ["ack"]


def test_a_probe_notes_since_when_and_why_a_cluster_is_away(lab):
    clusters.probe(lab)
    assert lab.state == Cluster.State.UNREACHABLE
    assert lab.last_error
    since = lab.unreachable_since
    clusters.probe(lab)
    assert lab.unreachable_since == since
    assert "not-a-real-token" not in lab.last_error


def test_a_probe_that_waited_out_an_outage_does_not_deny_the_recovery(lab):
    asked_at = timezone.now()
    Cluster.objects.filter(pk=lab.pk).update(state=Cluster.State.CONNECTED, last_seen_at=timezone.now())
    reaching.note_silence(lab.pk, "It was silent for 10 s.", asked_at=asked_at)
    lab.refresh_from_db()
    assert (lab.state, lab.last_error) == (Cluster.State.CONNECTED, "")
    reaching.note_silence(lab.pk, "It was silent for 10 s.")
    lab.refresh_from_db()
    assert (lab.state, lab.last_error) == (Cluster.State.UNREACHABLE, "It was silent for 10 s.")
    assert lab.unreachable_since is not None


def test_a_probe_with_another_key_says_so(lab, settings):
    settings.GPUPOOLS_CREDENTIALS_KEY = ""
    clusters.probe(lab)
    assert "GPUPOOLS_CREDENTIALS_KEY" in lab.last_error


def test_disconnecting_needs_a_reason_and_forgets_everything_but_the_audit(lab, admin):
    a_pool(lab)
    with pytest.raises(Invalid):
        clusters.disconnect(admin, lab, reason="")
    clusters.disconnect(admin, lab, reason="moved to another region")
    assert not Cluster.objects.exists()
    assert not NodePool.objects.exists()
    entry = AuditEntry.objects.get(action="cluster.disconnect")
    assert (entry.cluster_name, entry.data["reason"]) == ("lab", "moved to another region")


def test_disconnecting_waits_for_what_is_under_way(lab, admin, operator):
    pool = a_pool(lab)
    pushes.enqueue(operator, kind="pool.modify", cluster=lab, target=f"pool:{pool.pk}", payload={})
    with pytest.raises(Conflict) as refusal:
        clusters.disconnect(admin, lab, reason="gone")
    assert refusal.value.code == "busy"
    lab.pushes.all().delete()
    now = timezone.now()
    ModeChange.objects.create(
        pool=pool, target_mode="share", fingerprint="x", reason="x", requested_by=operator.user, requested_at=now,
        expires_at=now,
    )  # fmt: skip
    with pytest.raises(Conflict) as refusal:
        clusters.disconnect(admin, lab, reason="gone")
    assert refusal.value.data["pools"] == ["shared"]


def test_an_administrator_of_one_cluster_disconnects_no_other(admin):
    one, other = a_cluster("one"), a_cluster("other")
    from_one = type(admin)(admin.user)
    admin.user.grants.update(cluster=one)
    with pytest.raises(Exception, match="no such cluster"):
        clusters.disconnect(from_one, other, reason="not mine")
