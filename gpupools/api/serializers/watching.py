"""A watcher's numbers on the wire."""

from __future__ import annotations

from rest_framework import serializers


class KindWatchOut(serializers.Serializer[None]):
    """What happened to one kind of objects since the watcher began."""

    relists = serializers.IntegerField(help_text="Whole lists after the first one.")
    watches = serializers.IntegerField()
    events = serializers.IntegerField()
    bookmarks = serializers.IntegerField()
    failures = serializers.IntegerField()
    skipped = serializers.IntegerField(help_text="Objects that could not be read, and were left out.")


class WatchOut(serializers.Serializer[None]):
    """One watcher's word on one cluster."""

    holder = serializers.CharField()
    at = serializers.DateTimeField(help_text="When the watcher wrote this.")
    publishes = serializers.BooleanField(help_text="Whether this watcher holds the lease.")
    synced = serializers.BooleanField()
    live = serializers.BooleanField()
    last_seen = serializers.DateTimeField(allow_null=True)
    age_seconds = serializers.FloatField(allow_null=True, help_text="How long the cluster had been silent then.")
    lag_seconds = serializers.FloatField(allow_null=True, help_text="From a change heard of to its publication.")
    error = serializers.CharField()
    gaps = serializers.ListField(child=serializers.CharField())
    kinds = serializers.DictField(child=KindWatchOut())
