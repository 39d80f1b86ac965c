"""Django's admin shows rows, writes none, and shows no secret."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse

from gpupools.admin import ROWS
from gpupools.models import User
from tests.services.builders import a_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def superuser(client):
    user = User.objects.create_superuser("root", password="a long enough password")
    client.force_login(user)
    return client


def test_every_model_of_the_console_is_shown():
    registered = {model for model in admin.site._registry if model._meta.app_label == "gpupools"}
    assert registered == set(ROWS)


@pytest.mark.parametrize("model", ROWS)
def test_nothing_can_be_added_changed_or_deleted(superuser, model, rf):
    request = rf.get("/")
    request.user = User.objects.get()
    shown = admin.site._registry[model]
    assert not shown.has_add_permission(request)
    assert not shown.has_change_permission(request)
    assert not shown.has_delete_permission(request)
    assert not shown.get_actions(request)
    name = f"admin:gpupools_{model._meta.model_name}"
    assert superuser.get(reverse(f"{name}_changelist")).status_code == 200
    assert superuser.get(reverse(f"{name}_add")).status_code == 403


def test_a_clusters_credentials_are_not_shown(superuser):
    cluster = a_cluster()
    page = superuser.get(reverse("admin:gpupools_cluster_change", args=[cluster.pk])).content.decode()
    assert "lab" in page
    assert cluster.credentials not in page
    assert superuser.post(reverse("admin:gpupools_cluster_change", args=[cluster.pk]), {"name": "x"}).status_code == 403


def test_a_password_hash_is_not_shown(superuser):
    user = User.objects.get()
    page = superuser.get(reverse("admin:gpupools_user_change", args=[user.pk])).content.decode()
    assert user.password not in page
