"""Whatever a client sends, the answer is one that the API has: never a crash, and never a broken store."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpupools.simulator import reviews
from gpupools.simulator.auth import Tokens
from gpupools.simulator.errors import ApiError
from gpupools.simulator.kinds import KINDS, Object
from gpupools.simulator.logs import LogBook
from gpupools.simulator.podverbs import PodVerbs
from gpupools.simulator.reading import Reader
from gpupools.simulator.store import Store
from gpupools.simulator.wire import Request, Target, encode, parse_target
from gpupools.simulator.writing import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Writer

SPEC: Object = {
    "nodeSelector": {"a": "b"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        }
    },
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
    "containers": [
        {
            "name": "c",
            "image": "x",
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 80}],
            "volumeMounts": [{"name": "v", "mountPath": "/x"}],
            "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}, "requests": {"cpu": "1"}},
        }
    ],
}

BODIES: dict[str, Object] = {
    "/api/v1/namespaces/default/pods": {
        "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"x": "y"}},
        "spec": SPEC,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "metadata": {"name": "j"},
        "spec": {"parallelism": 1, "completions": 1, "template": {"spec": {**SPEC, "restartPolicy": "Never"}}},
    },
    "/apis/apps/v1/namespaces/default/daemonsets": {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC},
        },
    },
    "/api/v1/nodes": {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "/api/v1/namespaces/default/events": {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "series": {"count": 2},
    },
    "/api/v1/namespaces/default/configmaps": {"metadata": {"name": "c"}, "data": {"a": "b"}},
    "/api/v1/namespaces/default/secrets": {"metadata": {"name": "s"}, "stringData": {"a": "b"}},
}  # fmt: skip

JUNK: list[Any] = [
    None, 0, -1, 1.5, "", "x", True, [], {}, [None], [{}], ["x"], {"a": None}, {"": 1}, {"a": {"b": 1}}, "é" * 70,
    10**18, [[1]], "Bad Name!", "0.5", "-1",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def spoiled(body: Object, chance: random.Random) -> Object:
    """Return a copy with one to three places removed or filled with junk."""
    body = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 2, 3))):
        path = chance.choice(list(places(body)) or [()])
        if not path:
            break
        holder: Any = body
        for step in path[:-1]:
            holder = holder[step]
        if chance.random() < 0.25:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
    return body


@pytest.mark.parametrize("seed", range(8))
def test_odd_bodies_are_taken_or_refused_in_order(seed: int) -> None:
    chance, store = random.Random(seed), Store()
    store.bootstrap()
    writer, reader = Writer(store), Reader(store)
    for path, body in BODIES.items():
        writer.create(Request("POST", path, {}, {}, encode(body)), parse_target(path))
    taken = 0
    for _ in range(250):
        path = chance.choice(list(BODIES))
        where = f"{path}/{BODIES[path]['metadata']['name']}"
        target = parse_target(where)
        assert target is not None
        body = spoiled(BODIES[path], chance)
        media = chance.choice((MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH, JSON_PATCH, ""))
        query = {"fieldManager": chance.choice("ab")}
        if media == APPLY_PATCH:
            query["force"] = chance.choice(("true", "false"))
        try:
            if media == JSON_PATCH:
                pointer = "/" + "/".join(str(step) for step in chance.choice(list(places(BODIES[path]))))
                name = chance.choice(("add", "remove", "replace", "test", "copy", "move"))
                operation = {"op": name, "path": pointer, "from": "/metadata", "value": chance.choice(JUNK)}
                writer.patch(Request("PATCH", where, query, {"content-type": media}, encode([operation])), target)
            elif media:
                if media == APPLY_PATCH:
                    body = {"apiVersion": target.row.api_version, "kind": target.row.kind, **body}
                writer.patch(Request("PATCH", where, query, {"content-type": media}, encode(body)), target)
            else:
                writer.update(Request("PUT", where, query, {}, encode(body)), target)
            taken += 1
        except ApiError as error:
            assert error.status in (400, 404, 409, 422, 500)
            # The real server gives some of them no reason, as what it did not foresee.
            assert error.status != 500 or not error.reason
            encode(error.body())
    # What was taken can still be shown, and the store is whole.
    assert taken > 20
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for path in BODIES:
        reader.list(Request("GET", path, {}, accept), parse_target(path))
    for stored in store:
        meta = stored.object["metadata"]
        assert store.peek(stored.kind.kind, meta.get("namespace", ""), meta["name"]) is stored.object
    assert {stored.kind.kind for stored in store} <= set(KINDS)


OPTIONS = {
    "gracePeriodSeconds": 1, "propagationPolicy": "Orphan", "dryRun": ["All"],
    "preconditions": {"uid": "x", "resourceVersion": "1"},
}  # fmt: skip
BINDING = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"name": "n"}}
EVICTION = {"metadata": {"name": "p"}, "deleteOptions": OPTIONS}
QUESTION = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, "namespace": "a"}}


@pytest.mark.parametrize("seed", range(4))
def test_odd_options_bindings_and_questions_are_refused_in_order(seed: int, tmp_path: Path) -> None:
    chance, store = random.Random(seed), Store()
    store.bootstrap()
    writer, verbs = Writer(store), PodVerbs(store, LogBook())
    tokens = Tokens(tmp_path)
    tokens.ensure()
    somebody = tokens.identify(f"Bearer {tokens.by_role['operator']}")
    pods = "/api/v1/namespaces/default/pods"
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}

    def target_of(path: str) -> Target:
        found = parse_target(path)
        assert found is not None
        return found

    def ask(method: str, path: str, body: object, do: Callable[[Request], object]) -> None:
        try:
            do(Request(method, path, {}, {}, encode(body)))
        except ApiError as error:
            assert error.status < 500 or not error.reason
            encode(error.body())

    for _ in range(250):
        if store.peek("Pod", "default", "p") is None:
            store.create("Pod", made)
        one, all_of = target_of(f"{pods}/p"), target_of(pods)
        ask("DELETE", pods, spoiled(OPTIONS, chance), partial(writer.delete_collection, target=all_of))
        if store.peek("Pod", "default", "p") is not None:
            ask("DELETE", f"{pods}/p", spoiled(OPTIONS, chance), partial(writer.delete, target=one))
        for name, body in (("binding", BINDING), ("eviction", EVICTION)):
            at = target_of(f"{pods}/p/{name}")
            ask("POST", f"{pods}/p/{name}", spoiled(body, chance), partial(verbs.answer, "create", target=at))
        for name in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
            path = f"/apis/authorization.k8s.io/v1/{name}"
            ask("POST", path, spoiled(QUESTION, chance), partial(reviews.answer, path, identity=somebody))
