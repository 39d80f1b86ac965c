"""One API server, asked over the official client's connection: plain requests, watches, namespaces of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from kubernetes import client

APPLY = "application/apply-patch+yaml"
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

Object = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """Status, headers (names in lower case) and the decoded body; text where it is no JSON."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The message of a Status."""
        return str(self.body["message"])

    @property
    def reason(self) -> str:
        """The reason of a Status, empty where it has none."""
        return str(self.body.get("reason", ""))

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(reason, field) of every cause of a Status."""
        found = (self.body.get("details") or {}).get("causes") or ()
        return [(cause["reason"], cause.get("field", "")) for cause in found]

    def ok(self) -> Any:
        """Return the body; fails the test when the request did."""
        assert 200 <= self.status < 300, f"{self.status}: {self.body}"
        return self.body


class Server:
    """The API server under test, as one identity. Query options are keyword arguments (``continue_`` for continue)."""

    def __init__(self, api: client.ApiClient) -> None:
        self.api = api

    def _sent(self, method: str, path: str, body: Any, headers: dict[str, str], query: dict[str, Any]) -> Any:
        asked = urlencode({name.rstrip("_"): value for name, value in query.items()})
        where = f"{path}?{asked}" if asked else path
        sent = self.api.param_serialize(method, where, header_params=headers, body=body, auth_settings=["BearerToken"])
        return self.api.call_api(*sent)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Answer:
        """Send one request; an error status is an answer, not an exception."""
        answer = self._sent(method, path, body, {"Content-Type": content_type, "Accept": accept}, query)
        text = answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders().items()}
        decoded: Any = text.decode()
        if "json" in headers.get("content-type", ""):
            decoded = json.loads(text)
        return Answer(answer.status, decoded, headers)

    def raw(self, method: str, path: str, body: bytes, content_type: str, **query: Any) -> Answer:
        """Send bytes as they are, past everything that the client would make of them."""
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        where = f"{path}?{urlencode(query)}" if query else path
        method, url, headers, *_ = self.api.param_serialize(
            method, where, header_params=headers, auth_settings=["BearerToken"]
        )
        answer = self.api.rest_client.pool_manager.request(method, url, body=body, headers=headers, retries=False)
        return Answer(answer.status, answer.json(), {key.lower(): value for key, value in answer.headers.items()})

    def get(self, path: str, **query: Any) -> Answer:
        """GET."""
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        """POST."""
        return self.ask("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Answer:
        """PUT."""
        return self.ask("PUT", path, body, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        """DELETE, with DeleteOptions as its body."""
        return self.ask("DELETE", path, body, **query)

    def merge(self, path: str, body: Any, **query: Any) -> Answer:
        """PATCH with a JSON merge patch."""
        return self.ask("PATCH", path, body, content_type=MERGE, **query)

    def strategic(self, path: str, body: Any, **query: Any) -> Answer:
        """PATCH with a strategic merge patch."""
        return self.ask("PATCH", path, body, content_type=STRATEGIC, **query)

    def json_patch(self, path: str, *operations: Object, **query: Any) -> Answer:
        """PATCH with a JSON patch."""
        return self.ask("PATCH", path, list(operations), content_type=JSON, **query)

    def apply(self, path: str, body: Any, manager: str = "tester", **query: Any) -> Answer:
        """PATCH with server-side apply."""
        return self.ask("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    @contextmanager
    def watching(self, path: str, seconds: int = 10, accept: str = "application/json", **query: Any) -> Iterator[Any]:
        """Open a watch; gives an iterator over its decoded lines that ends with the stream."""
        query = {"watch": "true", "timeoutSeconds": seconds, **query}
        answer = self._sent("GET", path, None, {"Accept": accept}, query)
        try:
            assert answer.response.status == 200, answer.read()
            yield (json.loads(line) for line in _lines(answer.response))
        finally:
            answer.response.close()

    def watch(self, path: str, seconds: int = 1, **query: Any) -> list[Object]:
        """Return everything that a watch tells until it ends."""
        with self.watching(path, seconds, **query) as events:
            return list(events)


def _lines(response: Any) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line)


def names(listed: Any) -> list[str]:
    """Return the names of a list's items."""
    return [item["metadata"]["name"] for item in listed["items"]]


def told(events: list[Object]) -> list[tuple[str, str]]:
    """Return (type, name) of watch events, without bookmarks."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events if event["type"] != "BOOKMARK"]


def config_map(name: str, data: dict[str, str] | None = None, **meta: Any) -> Object:
    """Build a ConfigMap."""
    found: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
    if data is not None:
        found["data"] = data
    return found


def pod(name: str = "p", resources: Object | None = None, **spec: Any) -> Object:
    """Build a pod of one container that never ends by itself."""
    container: Object = {"name": "main", "image": "registry.example.com/x:1", "command": ["sleep", "infinity"]}
    if resources is not None:
        container["resources"] = resources
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [container], **spec},
    }


def job(name: str = "j", command: tuple[str, ...] = ("true",), **spec: Any) -> Object:
    """Build a Job of one container."""
    container = {"name": "main", "image": "registry.example.com/x:1", "command": list(command)}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}
