"""What a mode change would do, as the API shows it before anybody asks for it. It knows no rows of its own."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from gpupools.services import changes


class PlannedStepOut(serializers.Serializer[None]):
    """One step of a plan; ``wave`` 0 and no ``nodes``: all nodes. 0 seconds: that depends on pods or on a person."""

    kind = serializers.CharField()
    title = serializers.CharField()
    wave = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    expected_seconds = serializers.IntegerField()


class FlightOut(serializers.Serializer[None]):
    """A change as it would be asked for: what it writes, who is hit, the room before and after, and the steps."""

    cluster = serializers.CharField(source="change.pool.cluster.name")
    pool = serializers.IntegerField(source="change.pool_id")
    pool_name = serializers.CharField(source="change.pool.name")
    from_mode = serializers.CharField(source="change.from_mode")
    from_policy = serializers.CharField(source="change.from_policy")
    target_mode = serializers.CharField(source="change.target_mode")
    target_policy = serializers.CharField(source="change.target_policy")
    target_pool = serializers.IntegerField(source="change.target_pool_id", allow_null=True)
    changes_nothing = serializers.BooleanField(help_text="Pool and nodes are like this already.")
    needs_approval = serializers.SerializerMethodField(help_text="A second person would have to decide.")
    rule = serializers.CharField(
        source="change.rule", help_text="Why nobody else would have to decide; empty: one must."
    )
    nodes = serializers.IntegerField(help_text="Nodes concerned.")
    leaving = serializers.IntegerField(help_text="Nodes that leave their mode, or their pool.")
    holding = serializers.IntegerField(help_text="Pods that hold cards of these nodes, hit or not.")
    diff = serializers.DictField(source="change.diff")
    blast_radius = serializers.SerializerMethodField(help_text="Pods that hold cards, and what becomes of each.")
    warnings = serializers.ListField(source="change.warnings")
    outlook = serializers.DictField(source="change.outlook")
    steps = PlannedStepOut(many=True)
    expected_seconds = serializers.IntegerField(source="seconds", help_text="Without waiting for pods or people.")

    def get_needs_approval(self, flight: Any) -> bool:
        """Tell whether no rule lets it pass by itself."""
        return not flight.change.rule

    def get_blast_radius(self, flight: Any) -> list[dict[str, Any]]:
        """Return the pods that are hit; those out of the caller's reach have no name."""
        return changes.visible_radius(self.context["view"].actor, flight.change)
