"""The ACK OpenAPI of the embedded cluster over HTTP: signature, host, routing, and the gateway's error bodies.

What operations do is in ackcloud.py, what their answers look like in ackviews.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from gpupools.simulator import ackviews, faults
from gpupools.simulator.ackcloud import AckCloud
from gpupools.simulator.ackkeys import AckKeys
from gpupools.simulator.ackrules import AckError, invalid
from gpupools.simulator.acksign import Gatekeeper, SignatureRefusedError, SignedRequest
from gpupools.simulator.clock import Clock
from gpupools.simulator.errors import ApiError
from gpupools.simulator.server import check_host

API_VERSION = "2015-12-15"
_BODY_LIMIT_BYTES = 1024 * 1024

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation: the parts of its path, its query, its body."""

    ids: tuple[str, ...]
    query: Mapping[str, str]
    body: Any
    request_id: str

    def flag(self, name: str) -> bool:
        """Read a boolean of the query; the SDKs write them in either case."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Read a whole number above zero of the query."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isdigit() or not int(text):
            raise invalid(f"The parameter {name} must be a number above zero.")
        return int(text)

    def texts(self, name: str) -> list[str]:
        """Read a list of the query: JSON, or separated by commas."""
        text = self.query.get(name, "")
        if not text:
            return []
        if text.startswith("["):
            try:
                return [str(item) for item in json.loads(text)]
            except json.JSONDecodeError:
                raise invalid(f"The parameter {name} is not a JSON list.") from None
        return text.split(",")


class AckApi:
    """The ASGI application."""

    def __init__(
        self, cloud: AckCloud, keys: AckKeys, clock: Clock, registry: faults.Faults, *, kubeconfig: Callable[[], str]
    ) -> None:
        self._cloud = cloud
        self._faults = registry
        self._clock = clock
        self._kubeconfig = kubeconfig
        self._gate = Gatekeeper(keys.access_key_id, keys.access_key_secret)
        cluster, pool = r"/clusters/([^/]+)", r"/clusters/([^/]+)/nodepools/([^/]+)"
        self._routes: list[tuple[str, re.Pattern[str], Callable[[Call], tuple[int, Any]]]] = [
            (method, re.compile(path), handler)
            for method, path, handler in (
                ("GET", cluster, self._describe_cluster),
                ("GET", f"{cluster}/nodepools", self._describe_pools),
                ("POST", f"{cluster}/nodepools", self._create_pool),
                ("GET", pool, self._describe_pool),
                ("PUT", pool, self._modify_pool),
                ("POST", pool, self._scale_pool),
                ("DELETE", pool, self._delete_pool),
                ("DELETE", f"{pool}/nodes", self._remove_nodes),
                ("POST", f"{pool}/attach", self._attach),
                ("POST", f"{cluster}/sync_nodepools", self._sync_pools),
                ("GET", f"{cluster}/nodes", self._describe_nodes),
                ("POST", f"{cluster}/components/install", self._install),
                ("POST", f"{cluster}/components/uninstall", self._uninstall),
                ("POST", f"{cluster}/components/upgrade", self._upgrade),
                ("POST", f"{cluster}/components/([^/]+)/config", self._configure),
                ("GET", f"{cluster}/components/version", self._addon_versions),
                ("GET", f"{cluster}/addon_instances", self._list_addon_instances),
                ("GET", f"{cluster}/addon_instances/([^/]+)", self._get_addon_instance),
                ("GET", f"{cluster}/tasks", self._describe_tasks),
                ("GET", r"/addons", self._list_addons),
                ("GET", r"/addons/([^/]+)", self._describe_addon),
                ("GET", r"/tasks/([^/]+)", self._describe_task),
                ("POST", r"/tasks/([^/]+)/(cancel|pause|resume)", self._steer_task),
                ("GET", r"/k8s/([^/]+)/user_config", self._kubeconfig_of),
            )
        ]

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        request_id = secrets.token_hex(16).upper()
        try:
            status, body = await self._answer(scope, receive, request_id)
        except AckError as error:
            status, body = error.status, _refusal(error.status, error.code, error.message, request_id)
        except SignatureRefusedError as error:
            status, body = error.status, _refusal(error.status, error.code, error.message, request_id)
        except ApiError as error:
            status, body = error.status, _refusal(error.status, error.reason, error.message, request_id)
        content = b"" if body is None else json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json; charset=utf-8"),
            (b"content-length", str(len(content)).encode()),
            (b"x-acs-request-id", request_id.encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, request_id: str) -> tuple[int, Any]:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        check_host(headers.get("host", ""))
        body = await _read(receive)
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self._gate.check(SignedRequest(scope["method"], path, query, headers, body), now=self._clock.now())
        if headers.get("x-acs-version") != API_VERSION:
            raise AckError(400, "InvalidVersion", f"Specified parameter Version is not valid: use {API_VERSION}.")
        await self._suffer(path)
        for method, pattern, handler in self._routes:
            found = pattern.fullmatch(path)
            if method == scope["method"] and found:
                ids = tuple(unquote(part) for part in found.groups())
                if path.startswith(("/clusters/", "/k8s/")):
                    self._check_cluster(ids[0])
                return handler(Call(ids, dict(query), _decoded(body), request_id))
        raise AckError(404, "InvalidAction.NotFound", "Specified api is not found, please check your url and method.")

    async def _suffer(self, path: str) -> None:
        """Let the faults that are on have their way."""
        if (late := self._faults.hit(faults.AckLatency, lambda fault: True)) is not None:
            await asyncio.sleep(late.seconds)
        if (refused := self._faults.hit(faults.AckError, lambda fault: fault.path in path)) is not None:
            raise AckError(refused.status, refused.code, refused.message)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cloud.state.cluster_id:
            raise AckError(404, "ErrorClusterNotFound", f"The cluster {cluster_id} does not exist.")

    # Cluster

    def _describe_cluster(self, call: Call) -> tuple[int, Any]:
        return 200, ackviews.cluster(self._cloud)

    def _kubeconfig_of(self, call: Call) -> tuple[int, Any]:
        return 200, {"config": self._kubeconfig(), "expiration": ""}

    # Node pools

    def _describe_pools(self, call: Call) -> tuple[int, Any]:
        wanted = call.query.get("NodepoolName", "")
        pools = [
            ackviews.pool(self._cloud, pool)
            for pool in self._cloud.state.pools.values()
            if not wanted or pool["nodepool_info"]["name"] == wanted
        ]
        return 200, {"nodepools": pools}

    def _describe_pool(self, call: Call) -> tuple[int, Any]:
        return 200, ackviews.pool_detail(self._cloud, self._cloud.pool(call.ids[1]))

    def _create_pool(self, call: Call) -> tuple[int, Any]:
        pool, task = self._cloud.create_pool(_object(call.body))
        return 200, {"nodepool_id": pool["nodepool_info"]["nodepool_id"], **_task(call, task)}

    def _modify_pool(self, call: Call) -> tuple[int, Any]:
        pool, task = self._cloud.modify_pool(call.ids[1], _object(call.body))
        return 200, {"nodepool_id": pool["nodepool_info"]["nodepool_id"], **_task(call, task)}

    def _scale_pool(self, call: Call) -> tuple[int, Any]:
        return 200, {"task_id": self._cloud.scale_pool(call.ids[1], _object(call.body))["task_id"]}

    def _delete_pool(self, call: Call) -> tuple[int, Any]:
        return 200, _task(call, self._cloud.delete_pool(call.ids[1], force=call.flag("force")))

    def _remove_nodes(self, call: Call) -> tuple[int, Any]:
        names = set(call.texts("nodes"))
        machines = self._cloud.state.machines
        ids = call.texts("instance_ids") or [key for key, machine in machines.items() if machine["node_name"] in names]
        task = self._cloud.remove_nodes(
            call.ids[1], ids, drain=call.flag("drain_node"), release=call.flag("release_node")
        )
        return 200, _task(call, task)

    def _attach(self, call: Call) -> tuple[int, Any]:
        return 200, _task(call, self._cloud.attach(call.ids[1], _object(call.body)))

    def _sync_pools(self, call: Call) -> tuple[int, Any]:
        self._cloud.sync_pools()
        return 200, {"request_id": call.request_id}

    def _describe_nodes(self, call: Call) -> tuple[int, Any]:
        size = min(100, call.number("pageSize", 10))
        return 200, ackviews.nodes(self._cloud, call.query, page=call.number("pageNumber", 1), size=size)

    # Add-ons

    def _install(self, call: Call) -> tuple[int, Any]:
        task = self._cloud.addons.install(_objects(call.body))
        return 200, {"cluster_id": self._cloud.state.cluster_id, **_task(call, task)}

    def _uninstall(self, call: Call) -> tuple[int, Any]:
        task = self._cloud.addons.uninstall(_objects(call.body))
        return 200, {"cluster_id": self._cloud.state.cluster_id, **_task(call, task)}

    def _upgrade(self, call: Call) -> tuple[int, Any]:
        task = self._cloud.addons.upgrade(_objects(call.body))
        return 200, {"cluster_id": self._cloud.state.cluster_id, **_task(call, task)}

    def _configure(self, call: Call) -> tuple[int, Any]:
        self._cloud.addons.configure(call.ids[1], _object(call.body))
        return 200, {"request_id": call.request_id}

    def _addon_versions(self, call: Call) -> tuple[int, Any]:
        return 200, ackviews.addon_versions(self._cloud)

    def _list_addon_instances(self, call: Call) -> tuple[int, Any]:
        return 200, {"addons": [ackviews.addon_instance(record) for record in self._cloud.state.addons.values()]}

    def _get_addon_instance(self, call: Call) -> tuple[int, Any]:
        record = self._cloud.state.addons.get(call.ids[1])
        if record is None:
            raise AckError(404, "AddonNotFound", f"The addon {call.ids[1]} is not installed.")
        return 200, {**ackviews.addon_instance(record), "config": record["config"], "logging": {"capable": False}}

    def _list_addons(self, call: Call) -> tuple[int, Any]:
        return 200, {"addons": ackviews.addons(self._cloud)}

    def _describe_addon(self, call: Call) -> tuple[int, Any]:
        known = self._cloud.addons.known(call.ids[0])
        return 200, {**ackviews.addon(known), "newer_versions": ackviews.newer_versions(self._cloud, known)}

    # Tasks

    def _describe_tasks(self, call: Call) -> tuple[int, Any]:
        token, most = call.query.get("next_token", ""), call.number("max_results", 0)
        if token or most:
            if token and not token.isdigit():
                raise invalid("The parameter next_token is not one that was given out.")
            found = ackviews.tasks_after(self._cloud, start=int(token or 0), most=min(100, most or 20))
        else:
            page, size = call.number("page_number", 1), min(100, call.number("page_size", 20))
            found = ackviews.tasks(self._cloud, page=page, size=size)
        return 200, {"requestId": call.request_id, **found}

    def _describe_task(self, call: Call) -> tuple[int, Any]:
        return 200, ackviews.task(self._cloud, self._cloud.tasks.get(call.ids[0]))

    def _steer_task(self, call: Call) -> tuple[int, Any]:
        getattr(self._cloud.tasks, call.ids[1])(call.ids[0])
        return 200, None


def _task(call: Call, task: Mapping[str, Any]) -> dict[str, Any]:
    return {"request_id": call.request_id, "task_id": task["task_id"]}


def _refusal(status: int, code: str, message: str, request_id: str) -> dict[str, Any]:
    return {"code": code, "message": message, "requestId": request_id, "statusCode": status}


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > _BODY_LIMIT_BYTES:
            raise AckError(413, "RequestTooLarge", "The body is too large.")
        if not message.get("more_body"):
            return body


def _decoded(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise invalid("The body is not JSON.") from None


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise invalid("The body must be an object.")
    return body


def _objects(body: Any) -> list[dict[str, Any]]:
    if not isinstance(body, list) or not all(isinstance(entry, dict) for entry in body):
        raise invalid("The body must be a list of objects.")
    return body
