"""Django's admin shows rows, writes none, and shows no secret."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse

from gpupools.admin import ROWS
from gpupools.models import Role, User
from tests.services.builders import a_cluster, an_actor

pytestmark = pytest.mark.django_db


@pytest.fixture
def administrator(client, admin_user_of_console):
    client.force_login(admin_user_of_console)
    return client


@pytest.fixture
def admin_user_of_console():
    return an_actor(Role.ADMIN, name="root").user


def test_every_model_of_the_console_is_shown():
    registered = {model for model in admin.site._registry if model._meta.app_label == "gpupools"}
    assert registered == set(ROWS)


@pytest.mark.parametrize("model", ROWS)
def test_nothing_can_be_added_changed_or_deleted(administrator, model, rf):
    request = rf.get("/")
    request.user = User.objects.get()
    shown = admin.site._registry[model]
    assert not shown.has_add_permission(request)
    assert not shown.has_change_permission(request)
    assert not shown.has_delete_permission(request)
    assert not shown.get_actions(request)
    name = f"admin:gpupools_{model._meta.model_name}"
    assert administrator.get(reverse(f"{name}_changelist")).status_code == 200
    assert administrator.get(reverse(f"{name}_add")).status_code == 403


def test_a_clusters_credentials_are_not_shown(administrator):
    cluster = a_cluster()
    page = administrator.get(reverse("admin:gpupools_cluster_change", args=[cluster.pk])).content.decode()
    assert "lab" in page
    assert cluster.credentials not in page
    assert (
        administrator.post(reverse("admin:gpupools_cluster_change", args=[cluster.pk]), {"name": "x"}).status_code
        == 403
    )


def test_a_password_hash_is_not_shown(administrator):
    user = User.objects.get()
    page = administrator.get(reverse("admin:gpupools_user_change", args=[user.pk])).content.decode()
    assert user.password not in page


def test_operators_and_superusers_without_a_grant_are_sent_to_sign_in(client):
    for user in (an_actor(Role.OPERATOR).user, User.objects.create_superuser("su", password="a long enough password")):
        client.force_login(user)
        response = client.get("/admin/")
        assert (response.status_code, response["Location"]) == (302, "/admin/login/?next=/admin/")
    assert client.get("/admin/login/?next=/admin/")["Location"] == "/sign-in/?next=/admin/"
