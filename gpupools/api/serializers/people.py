"""Mode changes, audit, pushes, tokens, users and grants on the wire."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gpupools.domain.changes import State
from gpupools.models import ApiToken, AuditEntry, ChangeStep, Grant, ModeChange, Push, User
from gpupools.services import changes, guidance, pendingguides
from gpupools.services.holdings import Held


class StepOut(serializers.ModelSerializer[ChangeStep]):
    """One step of a mode change. ``expected_seconds`` 0: it depends on pods or on a person."""

    node_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    confirmed_by = serializers.CharField(source="confirmed_by.username", default=None, read_only=True, allow_null=True)
    done_nodes = serializers.SerializerMethodField(help_text="Nodes that are as the step wants them, when last seen.")
    left_nodes = serializers.SerializerMethodField(help_text="Nodes that are not so yet, when last seen.")
    task_id = serializers.SerializerMethodField(help_text="ACK's task of the step's call, if it made one.")

    class Meta:
        model = ChangeStep
        fields = [
            "position", "kind", "title", "wave", "node_names", "is_rollback", "state", "detail", "waiting_since",
            "expected_seconds", "started_at", "finished_at", "confirmed_by", "confirmed_at", "done_nodes",
            "left_nodes", "task_id",
        ]  # fmt: skip

    def get_done_nodes(self, step: ChangeStep) -> list[str]:
        """Return the nodes that the step is done with."""
        return list(step.learned.get("done", ()))

    def get_left_nodes(self, step: ChangeStep) -> list[str]:
        """Return the nodes that the step is not done with."""
        return list(step.learned.get("left", ()))

    def get_task_id(self, step: ChangeStep) -> str:
        """Return ACK's task, or an empty text."""
        return str(step.learned.get("task_id", ""))


class GuidanceAdviceOut(serializers.Serializer[None]):
    """One thing that a person can do about a change that does not go well."""

    code = serializers.CharField()
    message = serializers.CharField()


class HeldScalingOut(serializers.Serializer[None]):
    """Bounds of the auto scaling that a change has switched off."""

    min_instances = serializers.IntegerField()
    max_instances = serializers.IntegerField()


class HeldOut(serializers.Serializer[None]):
    """What a change still holds of its cluster."""

    cordoned = serializers.ListField(child=serializers.CharField(), help_text="Nodes that it has cordoned.")
    auto_scaling = HeldScalingOut(source="scaling", allow_null=True, help_text="Switched off by it; null: is not.")
    outside = serializers.SerializerMethodField(help_text="Machines that are in no pool: node name and machine id.")

    def get_outside(self, held: Held) -> list[dict[str, str]]:
        """Return each machine that was taken out of a pool and joined none since."""
        return [{"node": node, "machine": machine} for node, machine in held.outside]


class GuidanceOut(serializers.Serializer[None]):
    """Where a change stands that does not go well; an empty ``headline`` means that nothing is wrong."""

    headline = serializers.CharField()
    why = serializers.CharField(help_text="What stopped it, in its own words.")
    since = serializers.DateTimeField(allow_null=True)
    done = serializers.ListField(child=serializers.CharField(), help_text="Nodes that the step is done with.")
    left = serializers.ListField(child=serializers.CharField(), help_text="Nodes that the step is not done with.")
    held = HeldOut()
    advice = GuidanceAdviceOut(many=True)
    blocks = serializers.BooleanField(help_text="While it waits for a decision: it cannot be approved as things are.")
    moved = serializers.ListField(child=serializers.CharField(), help_text="What moved since the request.")
    newcomers = serializers.ListField(
        child=serializers.CharField(), help_text="Pods (namespace/name) that came to hold cards since the request."
    )


class ModeChangeOut(serializers.ModelSerializer[ModeChange]):
    """A request to change a pool's mode or policy, its decision, and how far it is."""

    cluster = serializers.CharField(source="pool.cluster.name", read_only=True)
    pool = serializers.IntegerField(source="pool_id", read_only=True)
    pool_name = serializers.CharField(source="pool.name", read_only=True)
    requested_by = serializers.CharField(source="requested_by.username", read_only=True)
    decided_by = serializers.CharField(source="decided_by.username", default=None, read_only=True, allow_null=True)
    target_pool = serializers.IntegerField(source="target_pool_id", read_only=True, allow_null=True)
    undoes = serializers.IntegerField(source="undoes_id", read_only=True, allow_null=True)
    node_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    outlook = serializers.DictField(read_only=True, help_text="Cards before and after; pending pods that gain or lose.")
    diff = serializers.DictField(read_only=True)
    blast_radius = serializers.SerializerMethodField(help_text="Pods that hold cards, and what becomes of each.")
    warnings = serializers.ListField(read_only=True)
    steps = StepOut(many=True, read_only=True)
    guidance = serializers.SerializerMethodField(help_text="Where it stopped, what it holds, what can be done.")

    class Meta:
        model = ModeChange
        fields = [
            "id", "cluster", "pool", "pool_name", "from_mode", "from_policy", "target_mode", "target_policy", "holders",
            "way", "batch_size", "node_names", "target_pool", "undoes", "rule",
            "state", "reason", "requested_by", "requested_at", "expires_at", "decided_by", "decided_at",
            "decision_reason", "started_at", "finished_at", "note", "diff", "blast_radius", "warnings", "outlook",
            "fingerprint", "steps", "guidance",
        ]  # fmt: skip

    @extend_schema_field(GuidanceOut)
    def get_guidance(self, change: ModeChange) -> dict[str, Any]:
        """Return what a person should read first."""
        view = self.context["view"]
        # A list of many would look at as many pools; whoever decides reads one.
        looks = change.state == State.PENDING and view.action == "retrieve"
        guided = pendingguides.guide(change) if looks else guidance.guide(change, list(change.steps.all()))
        found: dict[str, Any] = GuidanceOut(guided).data
        return found

    def get_blast_radius(self, change: ModeChange) -> list[dict[str, Any]]:
        """Return the pods that are hit; those out of the caller's reach have no name."""
        return changes.visible_radius(self.context["view"].actor, change)


class ModeChangeWish(serializers.Serializer[None]):
    """A wish for a pool's mode or policy, or for its nodes; ``holders``: wait for pods that hold cards, or evict.

    ``way``: whole, batches, move (nodes go into ``target_pool``) or join (nodes come into ``pool``).
    """

    pool = serializers.IntegerField()
    target_mode = serializers.CharField(max_length=16, required=False, allow_blank=True, default="")
    target_policy = serializers.CharField(
        max_length=16, required=False, allow_blank=True, allow_null=True, default=None
    )
    holders = serializers.CharField(max_length=8, default="wait")
    way = serializers.CharField(max_length=8, default="whole")
    batch_size = serializers.IntegerField(default=0, help_text="Nodes per batch; 0: all, or one by one in a move.")
    node_names = serializers.ListField(
        child=serializers.CharField(max_length=253), required=False, default=list, help_text="Empty: all of the pool."
    )
    target_pool = serializers.IntegerField(required=False, allow_null=True, default=None)


class ModeChangeIn(ModeChangeWish):
    """A request for what is wished, with its reason."""

    reason = serializers.CharField(max_length=2000)


class UndoIn(serializers.Serializer[None]):
    """Why a change is undone; ``holders`` as in the change itself unless said otherwise."""

    holders = serializers.CharField(max_length=8, required=False, allow_blank=True, default="")
    reason = serializers.CharField(max_length=2000)


class AuditEntryOut(serializers.ModelSerializer[AuditEntry]):
    """Who did what to which object."""

    data = serializers.DictField(read_only=True)

    class Meta:
        model = AuditEntry
        fields = [
            "id", "at", "actor_name", "via", "action", "cluster_name", "object_type", "object_id",
            "object_label", "data",
        ]  # fmt: skip


class PushOut(serializers.ModelSerializer[Push]):
    """One operation on a cluster."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    requested_by = serializers.CharField(source="requested_by.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Push
        fields = [
            "op_id", "cluster", "kind", "target", "state", "attempts", "due_at", "error", "requested_by", "created_at",
            "finished_at",
        ]  # fmt: skip


class TokenOut(serializers.ModelSerializer[ApiToken]):
    """An API token, without its text."""

    user = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = ApiToken
        fields = ["id", "user", "name", "role", "created_at", "expires_at", "last_used_at", "revoked_at"]


class TokenIn(serializers.Serializer[None]):
    """A token to issue to oneself."""

    name = serializers.CharField(max_length=100)
    role = serializers.CharField(max_length=16)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)


class IssuedOut(TokenOut):
    """A token with its text, which is shown this once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenOut.Meta):
        fields = [*TokenOut.Meta.fields, "token"]


class GrantOut(serializers.ModelSerializer[Grant]):
    """A role on one cluster or all, in one namespace or all."""

    user = serializers.CharField(source="user.username", read_only=True)
    cluster = serializers.CharField(source="cluster.name", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Grant
        fields = ["id", "user", "role", "cluster", "namespace"]


class GrantIn(serializers.Serializer[None]):
    """A role to give."""

    user = serializers.CharField(max_length=150)
    role = serializers.CharField(max_length=16)
    cluster = serializers.CharField(max_length=63, required=False, allow_null=True, default=None)
    namespace = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")


class UserOut(serializers.ModelSerializer[User]):
    """An account."""

    class Meta:
        model = User
        fields = ["id", "username", "email", "is_active", "last_login", "date_joined"]


class UserIn(serializers.Serializer[None]):
    """An account to make; without a password a random one is made and shown once."""

    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(required=False, allow_blank=True, default="")
    password = serializers.CharField(max_length=128, required=False, allow_blank=True, default="", write_only=True)


class MadeUserOut(UserOut):
    """A new account with its password, which is shown this once."""

    password = serializers.CharField(read_only=True)

    class Meta(UserOut.Meta):
        fields = [*UserOut.Meta.fields, "password"]


class ActiveIn(serializers.Serializer[None]):
    """Whether an account may sign in."""

    active = serializers.BooleanField()


class NoticeWishOut(serializers.Serializer[None]):
    """What somebody wants e-mail about."""

    mail_waiting = serializers.BooleanField(help_text="A mode change waits for a decision that you may take.")
    mail_failed = serializers.BooleanField(help_text="A mode change that you asked for or approved failed.")


class MeOut(serializers.Serializer[None]):
    """Who calls, and what they may do."""

    username = serializers.CharField()
    token = serializers.CharField(allow_blank=True)
    grants = GrantOut(many=True)
