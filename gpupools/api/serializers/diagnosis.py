"""What is wrong, on the wire."""

from __future__ import annotations

from rest_framework import serializers


class DiagnosisOut(serializers.Serializer[None]):
    """One failure that was recognised; ``scenario`` is its number in docs/failure-scenarios.md, 0 for none."""

    code = serializers.CharField()
    scenario = serializers.IntegerField()
    severity = serializers.CharField(help_text="error, warning or info")
    message = serializers.CharField()
    evidence = serializers.CharField()
    fix = serializers.CharField()
    node = serializers.CharField(help_text="Empty where it is about no single node.")
    pool = serializers.CharField()
    pods = serializers.ListField(child=serializers.CharField(), help_text="namespace/name")


class ReportOut(serializers.Serializer[None]):
    """Everything that was recognised, worst first; ``taken_at`` null: nothing is known yet."""

    taken_at = serializers.DateTimeField(allow_null=True)
    errors = serializers.IntegerField()
    warnings = serializers.IntegerField()
    results = DiagnosisOut(many=True)
