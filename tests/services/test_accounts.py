"""Accounts, grants, tokens and cluster credentials."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from gpupools.errors import Conflict, Invalid, NotAllowed, Unreachable
from gpupools.models import ApiToken, AuditEntry, Grant, Role
from gpupools.services import credentials, tokens, users
from gpupools.services.access import SYSTEM, Actor
from tests.services.builders import a_cluster, a_connection, a_user, with_token

pytestmark = pytest.mark.django_db


def fields(refusal):
    return [error.field for error in refusal.value.errors]


class TestTokens:
    def test_a_token_is_shown_once_and_kept_as_a_digest(self, operator):
        token, plaintext = tokens.issue(operator, name="ci", role="operator")
        assert plaintext.startswith("gpc_")
        assert len(plaintext) > 40
        assert plaintext not in str(ApiToken.objects.values().get())
        assert plaintext not in str(list(AuditEntry.objects.values()))
        assert tokens.authenticate(plaintext) == Actor(operator.user, token)

    def test_two_tokens_are_never_alike(self, operator):
        assert tokens.issue(operator, name="a", role="viewer")[1] != tokens.issue(operator, name="b", role="viewer")[1]

    @pytest.mark.parametrize("text", ["", "gpc_", "gpc_nonsense", "nonsense", "gpc_é"])
    def test_nonsense_is_nobody(self, text):
        assert tokens.authenticate(text) is None

    def test_a_revoked_expired_or_ownerless_token_is_nobody(self, operator):
        revoked, expired, alone = (tokens.issue(operator, name=name, role="viewer") for name in "abc")
        tokens.revoke(operator, revoked[0])
        ApiToken.objects.filter(pk=expired[0].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        assert tokens.authenticate(revoked[1]) is None
        assert tokens.authenticate(expired[1]) is None
        operator.user.is_active = False
        operator.user.save()
        assert tokens.authenticate(alone[1]) is None

    def test_last_use_is_written_at_most_once_a_minute(self, operator, django_assert_num_queries):
        token, plaintext = tokens.issue(operator, name="ci", role="viewer")
        tokens.authenticate(plaintext)
        token.refresh_from_db()
        first = token.last_used_at
        assert first is not None
        tokens.authenticate(plaintext)
        token.refresh_from_db()
        assert token.last_used_at == first
        ApiToken.objects.update(last_used_at=first - timedelta(minutes=2))
        tokens.authenticate(plaintext)
        token.refresh_from_db()
        assert token.last_used_at >= first

    def test_what_is_wrong_with_a_token_is_said_per_field(self, operator):
        tokens.issue(operator, name="ci", role="viewer")
        with pytest.raises(Invalid) as refusal:
            tokens.issue(operator, name="ci", role="king", expires_at=timezone.now() - timedelta(days=1))
        assert fields(refusal) == ["name", "role", "expires_at"]
        with pytest.raises(Invalid) as refusal:
            tokens.issue(operator, name="  ", role="viewer")
        assert fields(refusal) == ["name"]

    def test_a_token_cannot_make_a_stronger_or_longer_lived_one(self, admin):
        soon = timezone.now() + timedelta(hours=1)
        parent, _ = tokens.issue(admin, name="parent", role="operator", expires_at=soon)
        by_parent = Actor(admin.user, parent)
        with pytest.raises(NotAllowed):
            tokens.issue(by_parent, name="child", role="admin", expires_at=soon)
        with pytest.raises(NotAllowed):
            tokens.issue(by_parent, name="child", role="viewer")
        tokens.issue(by_parent, name="child", role="viewer", expires_at=soon)

    def test_only_the_owner_or_an_administrator_revokes_a_token(self, operator, viewer, admin):
        token, _ = tokens.issue(operator, name="ci", role="viewer")
        with pytest.raises(NotAllowed):
            tokens.revoke(viewer, token)
        tokens.revoke(admin, token)
        tokens.revoke(admin, token)
        assert AuditEntry.objects.filter(action="token.revoke").count() == 1

    def test_the_system_has_no_tokens(self):
        with pytest.raises(NotAllowed):
            tokens.issue(SYSTEM, name="ci", role="viewer")


class TestUsers:
    def test_an_administrator_makes_an_account_with_a_random_password(self, admin):
        user, password = users.create_user(admin, username="otto")
        assert user.check_password(password)
        assert len(password) == 20
        assert password not in str(list(AuditEntry.objects.values()))
        assert not user.grants.exists()
        assert not user.is_superuser

    def test_nobody_else_does(self, operator, lab):
        with pytest.raises(NotAllowed):
            users.create_user(operator, username="otto")
        with pytest.raises(NotAllowed):
            users.grant(operator, operator.user, role="admin")
        with pytest.raises(NotAllowed):
            users.grant(Actor(a_user("ludo", (Role.ADMIN, lab, ""))), operator.user, role="admin", cluster=lab)

    def test_an_administrators_operator_token_grants_nothing(self, admin):
        with pytest.raises(NotAllowed):
            users.grant(with_token(admin, Role.OPERATOR), admin.user, role="admin")

    def test_a_name_that_is_taken_in_any_case_or_impossible_is_refused(self, admin):
        for name in ("ADA", "", "a b", "x" * 151):
            with pytest.raises(Invalid) as refusal:
                users.create_user(admin, username=name)
            assert fields(refusal) == ["username"], name

    def test_a_weak_password_is_refused(self, admin):
        with pytest.raises(Invalid) as refusal:
            users.create_user(admin, username="otto", password="12345")
        assert set(fields(refusal)) == {"password"}

    def test_a_grant_is_given_once_however_often(self, admin, viewer, lab):
        first = users.grant(admin, viewer.user, role="operator", cluster=lab, namespace="team")
        assert users.grant(admin, viewer.user, role="operator", cluster=lab, namespace="team") == first
        assert AuditEntry.objects.filter(action="user.grant").count() == 1

    def test_the_database_keeps_grants_on_every_cluster_single_too(self, viewer):
        with pytest.raises(Exception, match="(?i)unique"):
            Grant.objects.create(user=viewer.user, role=Role.VIEWER)

    def test_an_unknown_role_and_an_impossible_namespace_are_refused(self, admin, viewer):
        with pytest.raises(Invalid) as refusal:
            users.grant(admin, viewer.user, role="king", namespace="Not_A_Namespace!")
        assert fields(refusal) == ["role", "namespace"]

    def test_the_last_administrator_cannot_be_removed_or_switched_off(self, admin, viewer):
        with pytest.raises(Conflict) as refusal:
            users.revoke(admin, admin.user.grants.get())
        assert refusal.value.code == "last-admin"
        with pytest.raises(Conflict):
            users.set_active(admin, admin.user, active=False)
        users.grant(admin, viewer.user, role="admin")
        users.revoke(admin, admin.user.grants.get())
        assert not Actor(admin.user).can(Role.VIEWER)

    def test_people_change_their_own_password_and_administrators_anybodys(self, admin, operator, viewer):
        users.change_password(operator, operator.user, password="quite a long sentence")
        assert operator.user.check_password("quite a long sentence")
        users.change_password(admin, operator.user, password="another long sentence")
        with pytest.raises(NotAllowed):
            users.change_password(viewer, operator.user, password="a third long sentence")
        with pytest.raises(NotAllowed):
            users.change_password(with_token(viewer, Role.VIEWER), viewer.user, password="a fourth long sentence")


class TestCredentials:
    def test_what_is_sealed_comes_back_with_the_time_out_of_today(self, settings):
        settings.GPUPOOLS_CLUSTER_TIMEOUT_SECONDS = 7
        connection = a_connection(ack=True)
        cluster = a_cluster(credentials=credentials.seal(connection))
        opened = credentials.connection_of(cluster)
        assert opened.ack == connection.ack
        assert opened.kubeconfig == connection.kubeconfig
        assert opened.timeout_seconds == 7

    def test_no_secret_is_readable_in_the_row_or_the_connections_repr(self):
        connection = a_connection(ack=True)
        sealed = credentials.seal(connection)
        for secret in ("not a real secret", "not-a-real-token"):
            assert secret not in sealed
            assert secret not in repr(connection)

    def test_another_key_is_said_plainly(self, settings):
        cluster = a_cluster()
        settings.GPUPOOLS_CREDENTIALS_KEY = Fernet.generate_key().decode()
        with pytest.raises(Unreachable, match="another GPUPOOLS_CREDENTIALS_KEY") as refusal:
            credentials.connection_of(cluster)
        assert refusal.value.code == "credentials-key"

    @pytest.mark.parametrize("key", ["", "too short", "x" * 44])
    def test_a_missing_or_malformed_key_is_said_without_showing_it(self, settings, key):
        settings.GPUPOOLS_CREDENTIALS_KEY = key
        with pytest.raises(Unreachable) as refusal:
            credentials.encrypt({"a": 1})
        assert "GPUPOOLS_CREDENTIALS_KEY" in refusal.value.message
        assert not key or key not in refusal.value.message
