"""Shapes of requests for dangerous operations that are no mode change."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from gpupools.api.serializers.clusters import ReasonIn
from gpupools.models import OperationRequest
from gpupools.services import requests


class DiffLineOut(serializers.Serializer[None]):
    """One thing before and after; empty: it is not there, or nobody says."""

    what = serializers.CharField()
    old = serializers.CharField(allow_blank=True)
    new = serializers.CharField(allow_blank=True)


class OperationRequestOut(serializers.ModelSerializer[OperationRequest]):
    """A request that a second person decides on: what will be done, who is hit, and the decision."""

    title = serializers.CharField(read_only=True)
    cluster = serializers.CharField(source="cluster.name", read_only=True)
    pool = serializers.IntegerField(source="pool_id", read_only=True, allow_null=True)
    requested_by = serializers.CharField(source="requested_by.username", read_only=True)
    decided_by = serializers.CharField(source="decided_by.username", default=None, read_only=True, allow_null=True)
    diff = DiffLineOut(many=True, read_only=True)
    blast_radius = serializers.SerializerMethodField(
        help_text="`nodes` whose machines are released, `pods` that end, `pools` that need the component."
    )
    warnings = serializers.ListField(read_only=True)
    manifests = serializers.SerializerMethodField(help_text="The uploaded manifests that are applied, as YAML.")
    push = serializers.UUIDField(
        source="push.op_id", default=None, read_only=True, allow_null=True, help_text="The push that carries it out."
    )

    class Meta:
        model = OperationRequest
        fields = [
            "id", "kind", "title", "cluster", "pool", "component", "target", "diff", "manifests", "blast_radius",
            "warnings", "state", "reason", "requested_by", "requested_at", "expires_at", "decided_by", "decided_at",
            "decision_reason", "ended_at", "note", "fingerprint", "push",
        ]  # fmt: skip

    def get_manifests(self, request: OperationRequest) -> str:
        """Return what is applied, word for word; empty for all that applies nothing."""
        return requests.manifests(request)

    def get_blast_radius(self, request: OperationRequest) -> dict[str, Any]:
        """Return who is hit; pods out of the caller's reach have no name."""
        return requests.visible_radius(self.context["view"].actor, request)


class ApproveIn(ReasonIn):
    """Why it may be done, and which pods that came since the request may end with it."""

    approved_pods = serializers.ListField(
        child=serializers.CharField(max_length=320), required=False, default=list, help_text="namespace/name"
    )
