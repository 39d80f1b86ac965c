"""Explained numbers on the wire."""

from __future__ import annotations

from datetime import UTC, datetime

from rest_framework import serializers

from gpupools.services.explaining import Figure, Number


class PodPartOut(serializers.Serializer[None]):
    """A pod behind a part; namespace and owner are empty for one that the caller may not see."""

    namespace = serializers.CharField()
    name = serializers.CharField()
    owner = serializers.CharField()
    releasing = serializers.BooleanField()


class NumberPartOut(serializers.Serializer[None]):
    """One summand; `gpu` is null where the API tells no card, `lost` says why a pod sits on none."""

    node = serializers.CharField()
    pool = serializers.CharField()
    gpu = serializers.IntegerField(allow_null=True)
    amount = serializers.IntegerField()
    lost = serializers.CharField(help_text="pending, unknown-card, former-mode or empty")
    pods = PodPartOut(many=True)


class NumberOut(serializers.Serializer[None]):
    """A figure with its parts: `value` is their sum, and null while nothing is known."""

    figure = serializers.ChoiceField(choices=[each.value for each in Figure])
    node = serializers.CharField()
    gpu = serializers.IntegerField(allow_null=True)
    pool = serializers.CharField()
    value = serializers.IntegerField(allow_null=True)
    taken_at = serializers.SerializerMethodField()
    parts = NumberPartOut(many=True)

    def get_taken_at(self, number: Number) -> datetime | None:
        """Age of the numbers."""
        return datetime.fromtimestamp(number.taken_at, tz=UTC) if number.taken_at is not None else None
