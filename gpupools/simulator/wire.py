"""Requests and answers of the HTTP API: parsed paths and queries, content negotiation, bodies, streams.

Knows ASGI scopes and the kinds table; does nothing to objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import yaml

from gpupools.simulator import protobuf
from gpupools.simulator.errors import ApiError, Cause, bad_request, refuse_options
from gpupools.simulator.kinds import BY_RESOURCE, Kind, Object

JSON = "application/json"
BODY_LIMIT_BYTES = 3 * 1024 * 1024

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Form:
    """What shape of answer the client takes: "", "Table", "PartialObjectMetadata(List)", or discovery's."""

    shape: str = ""
    group: str = ""
    version: str = ""


@dataclass(slots=True)
class Request:
    """One HTTP request. ``query`` keeps the first value of a name, as the API server reads it."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Return a boolean of the query, as Go reads it: present and empty is true."""
        value = self.query.get(name)
        return value is not None and value.lower() not in ("0", "false")

    def number(self, name: str) -> int | None:
        """Return a whole number of the query, None when absent; 400 when it is none."""
        value = self.query.get(name, "")
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None

    @property
    def manager(self) -> str:
        """The field manager: the query's, else the client's program name, as the API server takes it."""
        return self.query.get("fieldManager") or self.headers.get("user-agent", "unknown").partition("/")[0]

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored; ``check_options`` has refused anything but ``All``."""
        return self.query.get("dryRun", "") == "All"

    def check_options(self) -> None:
        """Refuse (422) options of a write that are none."""
        causes: list[Cause] = []
        dry_run = self.query.get("dryRun", "")
        if dry_run not in ("", "All"):
            text = f'Unsupported value: {encode([dry_run]).decode()}: supported values: "All"'
            causes.append(Cause(_UNSUPPORTED, "dryRun", text))
        if self.method != "DELETE":
            causes += _manager_causes(self.query.get("fieldManager", ""))
            mode = self.query.get("fieldValidation", "")
            if mode not in ("", "Ignore", "Strict", "Warn"):
                text = f'Unsupported value: "{mode}": supported values: "", "Ignore", "Strict", "Warn"'
                causes.append(Cause(_UNSUPPORTED, "fieldValidation", text))
        refuse_options(_OPTIONS.get(self.method, "Options"), causes)

    def content_type(self) -> str:
        """Return the body's media type without parameters; JSON when the client names none."""
        return self.headers.get("content-type", JSON).partition(";")[0].strip().lower() or JSON

    def decoded(self) -> Any:
        """Return the JSON, YAML or protobuf body as Python values; 400 when unreadable, 415 when something else."""
        media = self.content_type()
        if media.endswith("yaml"):
            try:
                return yaml.load(self.body, Loader=yaml.CSafeLoader)  # noqa: S506  # the safe loader, in C
            except yaml.YAMLError as error:
                raise bad_request(f"error decoding YAML: {error}") from error
        if media == protobuf.MEDIA_TYPE:
            return protobuf.decode(self.body)
        if not media.endswith("json"):
            raise unsupported_media_type(BODY_TYPES)
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _unrecognized(f"couldn't get version/kind; json parse error: {error}", self.body) from error

    def object(self) -> Object:
        """Return the body when it is an object; 400 otherwise."""
        found = self.decoded()
        if not isinstance(found, dict):
            raise _unrecognized(
                "couldn't get version/kind; json parse error: cannot unmarshal into an object", self.body
            )
        return found

    def form(self) -> Form:
        """Return the first shape offered in Accept that we can answer; 406 when there is none.

        A client that asks for protobuf first and takes JSON too gets JSON.
        """
        accept = self.headers.get("accept", "")
        if not accept.strip():
            return Form()
        for offer in accept.split(","):
            media, *parameters = (part.strip() for part in offer.split(";"))
            if media.lower() not in (JSON, "*/*", "application/*"):
                continue
            given = dict(part.split("=", 1) for part in parameters if "=" in part)
            shape = given.get("as", "")
            if shape in ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                if shape and given.get("v", "v1") not in ("v1", "v1beta1"):
                    continue
                return Form(shape, given.get("g", ""), given.get("v", ""))
            if shape == "APIGroupDiscoveryList" and given.get("v") in ("v2", "v2beta1"):
                return Form(shape, given.get("g", ""), given["v"])
        raise ApiError(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/json;stream=watch",
        )


BODY_TYPES = (JSON, "application/yaml", protobuf.MEDIA_TYPE)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: a body in none of the accepted media types."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


_UNSUPPORTED = "FieldValueNotSupported"
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
MANAGER_LIMIT = 128
_SHOWN_BYTES = 30


def _unrecognized(why: str, body: bytes) -> ApiError:
    start = body[:_SHOWN_BYTES]
    shown = start.decode("utf-8", "replace") if start.startswith(b"{") else start.hex()
    more = " ..." if len(body) > _SHOWN_BYTES else ""
    return bad_request(f"the object provided is unrecognized (must be of type Object): {why} ({shown}{more})")


def _manager_causes(manager: str) -> list[Cause]:
    if len(manager) > MANAGER_LIMIT:
        return [Cause("FieldValueTooLong", "fieldManager", f"Too long: may not be more than {MANAGER_LIMIT} bytes")]
    for place, letter in enumerate(manager):
        if not letter.isprintable():
            text = f"invalid character U+{ord(letter):04X} (at position {place})"
            text = f"Invalid value: {encode(manager).decode()}: {text}"
            return [Cause("FieldValueInvalid", "fieldManager", text)]
    return []


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer in chunks, sent as they come; ends with the iterator, the client, or the server."""

    chunks: AsyncIterator[bytes]
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, perhaps a namespace, an object, a subresource."""

    row: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # events.k8s.io/v1 shows the same objects as v1 events in other words.
    group: str = ""

    @property
    def resource(self) -> str:
        """``pods`` or ``pods/log``, as rules name it."""
        return f"{self.row.plural}/{self.subresource}" if self.subresource else self.row.plural


# A view of another kind's objects: (group, version, plural) -> the kind that is stored.
ALIASES: Mapping[tuple[str, str, str], tuple[str, str, str]] = {
    ("events.k8s.io", "v1", "events"): ("", "v1", "events"),
}


def parse_target(path: str) -> Target | None:
    """Return what a resource path names, None when it is not one of ours."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "watch" and len(rest) > 1:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    found = ALIASES.get((group, version, rest[0]), (group, version, rest[0]))
    row = BY_RESOURCE.get(found)
    if row is None or len(rest) > 3 or (namespace and not row.namespaced) or "" in rest:
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in row.subresources:
        return None
    if name and row.namespaced and not namespace:
        return None
    return Target(row, namespace, name, subresource, group)


def parse_request(scope: Mapping[str, Any], body: bytes) -> Request:
    """Build the request from an ASGI scope; of repeated headers the last one counts."""
    headers: dict[str, str] = {}
    for key, value in scope["headers"]:
        name = key.decode("latin-1").lower()
        if name == "accept" and name in headers:
            headers[name] += "," + value.decode("latin-1")
        else:
            headers[name] = value.decode("latin-1")
    pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    query = dict(reversed(pairs))
    return Request(scope["method"], scope["path"], query, headers, body)


@dataclass(slots=True)
class Body:
    """Collects a request's body up to the limit."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    async def read(self, receive: Receive) -> bytes:
        """Return the whole body; 413 when it is too large."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            part = message.get("body", b"")
            self.size += len(part)
            if self.size > BODY_LIMIT_BYTES:
                raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT_BYTES}")
            self.parts.append(part)
            if not message.get("more_body"):
                return b"".join(self.parts)
