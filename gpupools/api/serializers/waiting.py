"""Why a pod waits for a node, on the wire."""

from __future__ import annotations

from rest_framework import serializers

from gpupools.api.serializers.work import HelpOut, PreviewOut, ReasonOut


class SaidReasonOut(ReasonOut):
    """One counted reason of the scheduler, and what it means for this pod."""

    meaning = serializers.CharField()


class SaidOut(serializers.Serializer[None]):
    """What the scheduler said of a pod, read from the wording of its release."""

    text = serializers.CharField(help_text="Its own words.")
    unread = serializers.BooleanField(help_text="Its words are of no known form; only `text` counts.")
    nodes = serializers.IntegerField()
    prefilter = serializers.CharField(allow_blank=True, help_text="A reason that stands for all nodes at once.")
    meaning = serializers.CharField(allow_blank=True, help_text="What `prefilter` means.")
    reasons = SaidReasonOut(many=True)
    victims_missing = serializers.IntegerField(help_text="Nodes where no pod could make way.")
    not_helpful = serializers.IntegerField(help_text="Nodes where no eviction could help.")


class WaitingOut(serializers.Serializer[None]):
    """Why a pod waits: the scheduler's words, and beside them an estimate on the current numbers."""

    waits = serializers.BooleanField(help_text="Whether it waits for a node; if not, the rest is null.")
    taken_at = serializers.DateTimeField(allow_null=True, help_text="Age of what the estimate stands on.")
    said = SaidOut(allow_null=True, help_text="Null: the scheduler has said nothing yet.")
    agrees = serializers.BooleanField(
        allow_null=True, help_text="Whether both give the same reasons; null: nothing to compare."
    )
    preview = PreviewOut(allow_null=True)
    help = HelpOut(allow_null=True)
    scheduler = serializers.CharField(
        allow_null=True, help_text="Another scheduler that it asks for: only that one places it. Empty: none."
    )
