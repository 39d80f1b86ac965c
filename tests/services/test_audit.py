"""Audit entries: registered actions, in the change's transaction, without secrets, outliving their objects."""

from __future__ import annotations

import pytest
from django.db import transaction

from gpupools.models import AuditEntry, Role
from gpupools.services import audit
from gpupools.services.access import SYSTEM
from tests.services.builders import a_pool, with_token

pytestmark = pytest.mark.django_db


def test_an_entry_names_who_by_what_and_where_and_outlives_its_cluster(lab, admin):
    pool = a_pool(lab, "night-shift")
    by_token = with_token(admin, Role.OPERATOR)
    audit.record(by_token, "pool.edit", pool, labels={"old": {}, "new": {"team": "red"}})
    lab.delete()
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.actor_name, entry.via) == (admin.user, "ada", "operator-token")
    assert (entry.action, entry.object_type, entry.object_label) == ("pool.edit", "nodepool", "night-shift")
    assert (entry.cluster, entry.cluster_name) == (None, "lab")
    assert entry.data == {"labels": {"old": {}, "new": {"team": "red"}}}


def test_an_entry_of_the_console_itself_has_no_user(lab):
    entry = audit.record(SYSTEM, "pool.gone", a_pool(lab))
    assert (entry.actor, entry.actor_name) == (None, "system")


def test_an_unknown_action_is_a_defect(lab, admin):
    with pytest.raises(ValueError, match="not a registered"):
        audit.record(admin, "pool.paint", lab)


@pytest.mark.parametrize("data", [{"password": "x"}, {"ack": {"secret": "x"}}, {"list": [{"kubeconfig": "x"}]}])
def test_a_secret_in_the_data_is_a_defect(lab, admin, data):
    with pytest.raises(ValueError, match="may not hold"):
        audit.record(admin, "cluster.connect", lab, **data)
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_entry_outside_the_transaction_of_its_change_is_a_defect(lab, admin):
    with pytest.raises(transaction.TransactionManagementError):
        audit.record(admin, "cluster.connect", lab)
