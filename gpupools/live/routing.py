"""Addresses of the live pages' sockets."""

from __future__ import annotations

from django.urls import path

from gpupools.live.consumer import AllocationConsumer

websocket_urlpatterns = [
    path("ws/clusters/<slug:name>/allocation/", AllocationConsumer.as_asgi()),
]
