"""Who may do what where, and what querysets show of it."""

from __future__ import annotations

import pytest
from django.utils import timezone

from gpupools.errors import Missing, NotAllowed
from gpupools.models import AuditEntry, Cluster, ModeChange, NodePool, Push, Role, Submission
from gpupools.services.access import SYSTEM, Actor
from tests.services.builders import a_cluster, a_pool, a_user, an_actor, with_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def other() -> Cluster:
    return a_cluster("other")


def a_submission(cluster: Cluster, namespace: str, actor: Actor) -> Submission:
    return Submission.objects.create(
        cluster=cluster,
        kind="Job",
        namespace=namespace,
        name=f"job-{namespace}",
        yaml="",
        submitted_by=actor.user,
        submitted_at=timezone.now(),
    )


@pytest.mark.parametrize(
    ("grant", "asked", "found"),
    [
        ((Role.ADMIN, None, ""), ("lab", ""), Role.ADMIN),
        ((Role.ADMIN, None, ""), (None, ""), Role.ADMIN),
        ((Role.ADMIN, None, ""), ("lab", "team"), Role.ADMIN),
        ((Role.OPERATOR, "lab", ""), ("lab", ""), Role.OPERATOR),
        ((Role.OPERATOR, "lab", ""), ("lab", "team"), Role.OPERATOR),
        ((Role.OPERATOR, "lab", ""), ("other", ""), None),
        ((Role.OPERATOR, "lab", ""), (None, ""), None),
        ((Role.OPERATOR, "lab", "team"), ("lab", "team"), Role.OPERATOR),
        ((Role.OPERATOR, "lab", "team"), ("lab", "else"), None),
        # What belongs to no namespace may be looked at by whoever works in one of them.
        ((Role.ADMIN, "lab", "team"), ("lab", ""), Role.VIEWER),
        ((Role.ADMIN, "lab", "team"), ("other", ""), None),
        ((Role.ADMIN, None, "team"), ("lab", "team"), Role.ADMIN),
        ((Role.ADMIN, None, "team"), ("other", ""), Role.VIEWER),
        ((Role.ADMIN, None, "team"), (None, ""), None),
    ],
)
def test_a_role_is_what_the_grants_that_cover_the_place_give(lab, other, grant, asked, found):
    clusters = {"lab": lab, "other": other, None: None}
    role, where, namespace = grant
    actor = an_actor(role, clusters[where], namespace)
    assert actor.role_on(clusters[asked[0]], asked[1]) is found


def test_the_highest_of_several_grants_counts(lab):
    user = a_user("mira", (Role.VIEWER, None, ""), (Role.ADMIN, lab, ""), (Role.OPERATOR, lab, "team"))
    assert Actor(user).role_on(lab) is Role.ADMIN
    assert Actor(user).role_on(lab, "team") is Role.ADMIN
    assert Actor(user).role_on(None) is Role.VIEWER


def test_a_token_caps_the_role_of_its_owner(admin, viewer, lab):
    assert with_token(admin, Role.VIEWER).role_on(lab) is Role.VIEWER
    assert with_token(viewer, Role.ADMIN).role_on(lab) is Role.VIEWER
    with pytest.raises(NotAllowed):
        with_token(admin, Role.OPERATOR).require(Role.ADMIN, lab)


def test_a_django_superuser_without_grants_may_nothing(stranger, lab):
    stranger.user.is_superuser = stranger.user.is_staff = True
    stranger.user.save()
    assert stranger.role_on(lab) is None
    assert not Cluster.objects.visible_to(stranger).exists()


def test_an_inactive_user_may_nothing(admin, lab):
    admin.user.is_active = False
    assert Actor(admin.user).role_on(lab) is None


def test_an_actor_without_a_user_is_nobody_unless_it_is_the_system(lab):
    assert Actor(None).role_on(lab) is None
    assert Actor(None).scope.sees_cluster("pk") == an_actor().scope.sees_cluster("pk")
    assert SYSTEM.role_on(lab) is Role.ADMIN
    assert SYSTEM.namespaces(lab) is None


def test_a_cluster_without_any_grant_is_missing_rather_than_forbidden(lab, other):
    actor = an_actor(Role.VIEWER, other)
    with pytest.raises(Missing):
        actor.require(Role.VIEWER, lab)


def test_a_role_that_is_too_low_is_refused_with_the_role_that_it_needs(lab, viewer):
    with pytest.raises(NotAllowed) as refusal:
        viewer.require(Role.OPERATOR, lab)
    assert "Operator" in refusal.value.message
    assert refusal.value.data["needed"] == "operator"
    assert refusal.value.data["held"] == "viewer"


def test_a_namespace_out_of_reach_is_refused_by_name(lab):
    actor = an_actor(Role.OPERATOR, lab, "team")
    actor.require(Role.OPERATOR, lab, "team")
    with pytest.raises(NotAllowed, match="namespace else"):
        actor.require(Role.VIEWER, lab, "else")


def test_namespaces_are_those_granted_here_and_everywhere_or_all(lab, other):
    grants = [(Role.VIEWER, lab, "one"), (Role.OPERATOR, None, "two"), (Role.OPERATOR, other, "three")]
    actor = Actor(a_user("nina", *grants))
    assert actor.namespaces(lab) == {"one", "two"}
    assert actor.namespaces(lab, Role.OPERATOR) == {"two"}
    assert an_actor(Role.VIEWER, lab).namespaces(lab) is None
    assert an_actor(Role.VIEWER, lab).namespaces(lab, Role.OPERATOR) == frozenset()


def test_querysets_show_a_person_of_one_cluster_only_that_cluster(lab, other, admin):
    a_pool(lab), a_pool(other)
    a_submission(lab, "team", admin), a_submission(other, "team", admin)
    actor = an_actor(Role.VIEWER, lab)
    assert list(Cluster.objects.visible_to(actor)) == [lab]
    assert [pool.cluster for pool in NodePool.objects.visible_to(actor)] == [lab]
    assert [sent.cluster for sent in Submission.objects.visible_to(actor)] == [lab]


def test_querysets_show_everything_to_somebody_granted_everywhere(lab, other, viewer, admin):
    a_submission(lab, "team", admin), a_submission(other, "else", admin)
    assert Cluster.objects.visible_to(viewer).count() == 2
    assert Submission.objects.visible_to(viewer).count() == 2
    assert Submission.objects.visible_to(SYSTEM).count() == 2


def test_querysets_show_nothing_to_a_stranger(lab, stranger, admin):
    pool = a_pool(lab)
    a_submission(lab, "team", admin)
    AuditEntry.objects.create(at=timezone.now(), actor_name="ada", action="pool.create", cluster=lab)
    Push.objects.create(
        cluster=lab, kind="pool.create", target=f"pool:{pool.pk}", due_at=timezone.now(), created_at=timezone.now()
    )
    for model in (Cluster, NodePool, Submission, AuditEntry, Push, ModeChange):
        assert not model.objects.visible_to(stranger).exists(), model


def test_a_person_of_one_namespace_sees_the_cluster_and_the_submissions_of_that_namespace(lab, admin):
    a_pool(lab)
    mine = a_submission(lab, "team", admin)
    a_submission(lab, "else", admin)
    actor = an_actor(Role.OPERATOR, lab, "team")
    assert list(Cluster.objects.visible_to(actor)) == [lab]
    assert NodePool.objects.visible_to(actor).count() == 1
    assert list(Submission.objects.visible_to(actor)) == [mine]


def test_a_person_of_one_namespace_everywhere_sees_it_in_every_cluster(lab, other, admin):
    sent = [a_submission(lab, "team", admin), a_submission(other, "team", admin)]
    a_submission(other, "else", admin)
    actor = an_actor(Role.VIEWER, None, "team")
    assert Cluster.objects.visible_to(actor).count() == 2
    assert set(Submission.objects.visible_to(actor)) == set(sent)


def test_audit_entries_show_ones_own_deeds_and_clusters_that_one_sees_whole(lab, other, admin):
    actor = an_actor(Role.VIEWER, lab)
    in_part = an_actor(Role.OPERATOR, lab, "team")
    entries = [
        AuditEntry.objects.create(at=timezone.now(), actor=who.user, actor_name="", action="pool.edit", cluster=where)
        for who, where in ((admin, lab), (admin, other), (admin, None), (actor, other), (in_part, lab))
    ]
    assert set(AuditEntry.objects.visible_to(actor)) == {entries[0], entries[3], entries[4]}
    assert set(AuditEntry.objects.visible_to(in_part)) == {entries[4]}
    assert AuditEntry.objects.visible_to(admin).count() == 5


def test_grants_are_read_once_per_actor(lab, django_assert_num_queries):
    actor = an_actor(Role.OPERATOR, lab)
    with django_assert_num_queries(1):
        actor.require(Role.OPERATOR, lab)
        actor.require(Role.VIEWER, lab, "team")
        assert actor.scope.whole == {lab.pk}
