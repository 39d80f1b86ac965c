"""Addresses of the live pages' sockets."""

from __future__ import annotations

from django.urls import path

from gpupools.live.consumer import AllocationConsumer, NewsConsumer

websocket_urlpatterns = [
    path("ws/clusters/<slug:name>/allocation/", AllocationConsumer.as_asgi()),
    path("ws/clusters/<slug:name>/news/", NewsConsumer.as_asgi()),
]
