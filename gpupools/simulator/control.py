"""The control endpoint of the embedded cluster, ``/simulator/v1``: faults are begun, listed and ended here.

On the Kubernetes port, behind a token of its own: no identity of the cluster may do this. It breaks nothing itself.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpupools.simulator import faults
from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.faultactions import FaultActions
from gpupools.simulator.faults import Faults
from gpupools.simulator.files import write_atomically
from gpupools.simulator.wire import Body, Receive, Response, encode

PREFIX = "/simulator/"
_PATH = "/simulator/v1/faults"
_FILE = "control.json"


class Access(msgspec.Struct, frozen=True):
    """What a client of the control endpoint needs; the file is private."""

    token: str
    server: str = ""
    certificate_authority: str = ""


def kept(directory: Path) -> Access:
    """Return the token of a directory, making it the first time."""
    path = directory / _FILE
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Access)
    access = Access(secrets.token_urlsafe(32))
    write_atomically(path, msgspec.json.encode(access))
    return access


def announce(directory: Path, server: str, certificate_authority: Path) -> None:
    """Write down where the endpoint is."""
    access = msgspec.structs.replace(kept(directory), server=server, certificate_authority=str(certificate_authority))
    write_atomically(directory / _FILE, msgspec.json.encode(access))


class Control:
    """Answers requests below ``/simulator/``."""

    def __init__(self, registry: Faults, actions: FaultActions, token: str) -> None:
        self._faults = registry
        self._actions = actions
        self._token = token

    async def answer(self, scope: Mapping[str, Any], receive: Receive) -> Response:
        """Answer one request; errors are ApiErrors."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            raise ApiError(401, "Unauthorized", "Unauthorized: this path takes the token in control.json")
        body = await Body().read(receive)
        path, method = scope["path"].rstrip("/"), scope["method"]
        if path == "/simulator/v1/kinds" and method == "GET":
            return Response(encode({"kinds": [_described(kind) for kind in faults.KINDS]}))
        if path == _PATH:
            return self._collection(method, body)
        if path.startswith(f"{_PATH}/") and method == "DELETE":
            if not self._faults.remove(path.rpartition("/")[2]):
                raise ApiError(404, "NotFound", f"no fault {path.rpartition('/')[2][:40]!r} is on")
            return Response(encode({"faults": [active.shown() for active in self._faults.all()]}))
        raise ApiError(404, "NotFound", f"the control endpoint serves {_PATH} and /simulator/v1/kinds")

    def _collection(self, method: str, body: bytes) -> Response:
        if method == "POST":
            try:
                fault = faults.decoder.decode(body)
            except msgspec.DecodeError as error:
                raise bad_request(f"this is no fault: {error}") from error
            self._actions.check(fault)
            return Response(encode(self._faults.add(fault).shown()), 201)
        if method == "DELETE":
            self._faults.clear()
        elif method != "GET":
            raise ApiError(405, "MethodNotAllowed", "faults are listed, begun (POST) and ended (DELETE)")
        return Response(encode({"faults": [active.shown() for active in self._faults.all()]}))


def _described(kind: type[msgspec.Struct]) -> dict[str, Any]:
    fields = {
        field.name: "required" if field.required else msgspec.to_builtins(field.default)
        for field in msgspec.structs.fields(kind)
    }
    return {"kind": kind.__struct_config__.tag, "what": (kind.__doc__ or "").strip(), "fields": fields}
