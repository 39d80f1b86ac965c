"""Plain requests through the official client's connection, where its models would hide what is on the wire."""

from __future__ import annotations

import json
from typing import Any

from kubernetes import client

APPLY = "application/apply-patch+yaml"
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def call(
    api: client.ApiClient, method: str, path: str, body: Any = None, content_type: str = "application/json"
) -> Any:
    """Send one request and return (status, decoded body); never raises for an error status."""
    headers = {"Content-Type": content_type, "Accept": "application/json"}
    sent = api.param_serialize(method, path, header_params=headers, body=body, auth_settings=["BearerToken"])
    answer = api.call_api(*sent)
    return answer.status, json.loads(answer.read())
