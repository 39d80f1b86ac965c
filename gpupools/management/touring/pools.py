"""Scenes of node pools: components first, one pool per mode, and every node verified by exact resource keys."""

from __future__ import annotations

import time
from typing import Any

from gpupools.domain.routes import MANUAL
from gpupools.management.touring.client import Client, Refusal, wait_for
from gpupools.management.touring.ground import CHANGE_SECONDS, POOL_SECONDS, POOLS, SETTLE_SECONDS, Ground, PoolWish
from gpupools.management.touring.report import Failed, Skipped

COMPONENTS = ("ack-nvidia-device-plugin", "ack-ai-installer", "ack-mps-control")
# Where manifests are applied, images come from the administrator. This is the tour's answer; a cluster that cannot
# pull from there reports its components as not ready.
IMAGE_PREFIX = "registry.cn-hangzhou.aliyuncs.com/acs"


def install_components(ground: Ground) -> None:
    """Install what modes need, and wait until it runs wherever a node needs it."""
    for name in COMPONENTS:
        with ground.report.step(f"component {name}") as step:
            known, row = wait_for(
                lambda name=name: _component(ground, name),  # type: ignore[misc]  # bound at once, by default
                seconds=SETTLE_SECONDS,
                what=lambda row: row["state"] != "unknown",
            )
            if not known:
                raise Failed("the console does not find out whether it is installed")
            if row["state"] in {"absent", "failed"}:
                ground.admin.post(
                    f"clusters/{ground.cluster}/components/{name}/install/",
                    {} if ground.own_machines else {"image_prefix": IMAGE_PREFIX},
                    landed=lambda name=name: ground.pushed(f"component:{name}"),  # type: ignore[misc]  # bound now
                )
                ground.installed.append(name)
            held, row = wait_for(
                lambda name=name: _component(ground, name),  # type: ignore[misc]  # as above
                seconds=POOL_SECONDS,
                what=lambda row: row["state"] == "installed",
            )
            step.detail = f"{row['state']}: {row['detail']}"
            if not held and row["state"] in {"degraded", "installing"}:
                raise Skipped(f"{name} does not become ready in this cluster: {row['detail']}")
            if not held:
                raise Failed(step.detail)


def _component(ground: Ground, name: str) -> dict[str, Any]:
    return dict(ground.admin.get(f"clusters/{ground.cluster}/components/{name}/"))


def make_pools(ground: Ground) -> None:
    """Make the pools, each of one node; over existing nodes a mode change goes through a second person.

    All are asked for before the first is waited for: they come up side by side.
    """
    asked: dict[str, dict[str, Any] | Skipped | Refusal] = {}
    for position, wish in enumerate(POOLS):
        if not ground.own_machines and position >= len(ground.named_nodes):
            asked[wish.name] = Skipped(f"only {len(ground.named_nodes)} nodes were named, this pool needs one more")
            continue
        try:
            pool = asked[wish.name] = _create(ground, wish, position)
            ground.pools[wish.name] = pool["id"]
            if pool["open_change"]:
                _approve(ground, pool["open_change"])
        except Refusal as refusal:
            asked[wish.name] = refusal
    deadline = time.monotonic() + CHANGE_SECONDS
    for name, pool in asked.items():
        with ground.report.step(f"pool {name}") as step:
            if isinstance(pool, Exception):
                raise pool
            step.detail = _wait_pool(ground, pool, seconds=max(deadline - time.monotonic(), SETTLE_SECONDS))


def _wait_pool(ground: Ground, pool: dict[str, Any], *, seconds: float) -> str:
    said = f"{_wait_change(ground, pool['open_change'], seconds=seconds)}; " if pool["open_change"] else ""
    held, row = wait_for(
        lambda: ground.operator.get(f"node-pools/{pool['id']}/"),
        seconds=seconds,
        what=lambda row: row["state"] == "failed" or (row["state"] == "active" and row["seen"].get("total_nodes")),
    )
    if not held or row["state"] != "active":
        raise Failed(f"pool is {row['state']} with {row['seen'].get('total_nodes', 0)} nodes: {row['error']}")
    return f"{said}mode {row['mode']}, state {row['state']}"


def _create(ground: Ground, wish: PoolWish, position: int) -> dict[str, Any]:
    body: dict[str, Any] = {"cluster": ground.cluster, "name": wish.name, "mode": wish.mode, "policy": wish.policy}
    body["labels"] = {"gpupools-tour": wish.name}
    if ground.own_machines:
        body |= {"instance_types": [wish.instance_type], "desired_size": 1}
    else:
        body |= {"node_names": [ground.named_nodes[position]], "reason": "Tour: a pool of one mode over a named node."}

    def landed() -> Any:
        return next(ground.operator.rows("node-pools/", cluster__name=ground.cluster, name=wish.name), None)

    return dict(ground.operator.post("node-pools/", body, landed=landed))


def _approve(ground: Ground, change: int) -> None:
    def landed() -> Any:
        row = ground.admin.get(f"mode-changes/{change}/")
        return row if row["decided_at"] else None

    body = {"reason": "Tour: approved by a second person."}
    ground.admin.post(f"mode-changes/{change}/approve/", body, landed=landed)


def _wait_change(ground: Ground, change: int, *, seconds: float = CHANGE_SECONDS) -> str:
    final = {"applied", "failed", "paused", "lapsed", "rejected", "expired", "withdrawn", "abandoned", "rolled_back"}
    confirmed: list[str] = []

    def look() -> dict[str, Any]:
        row: dict[str, Any] = ground.operator.get(f"mode-changes/{change}/")
        due = next((step for step in row["steps"] if step["state"] == "running" and step["kind"] in MANUAL), None)
        if due is not None and due["confirmed_at"] is None and row["state"] == "applying":
            confirmed.append(due["title"])
            _confirm(ground, change)
        return row

    held, row = wait_for(look, seconds=seconds, what=lambda row: row["state"] in final)
    where = next((step for step in row["steps"] if step["state"] in {"running", "failed"}), None)
    said = f"{where['title']}: {where['detail']}" if where else row["note"]
    if held and row["state"] == "applied":
        by_hand = f", after a person confirmed: {confirmed[0]}" if confirmed else ""
        return f"change {change} applied{by_hand}"
    if where and where["kind"] in {"wait_resources", "wait_daemon"}:
        _give_up(ground, change, row["state"])
        raise Skipped(f"no device plugin of this cluster reports the mode: {said}")
    raise Failed(f"change {change} is {row['state']}: {said}")


def _confirm(ground: Ground, change: int) -> None:
    """Stand in for the person: a node without work of its own needs no rejoining to show that the mode comes up."""

    def landed() -> Any:
        row = ground.operator.get(f"mode-changes/{change}/")
        manual = [step for step in row["steps"] if step["kind"] in MANUAL]
        return row if all(step["confirmed_at"] for step in manual) else None

    body = {"reason": "Tour: confirmed without doing it, on a node that holds nothing."}
    ground.operator.post(f"mode-changes/{change}/confirm/", body, landed=landed)


def _give_up(ground: Ground, change: int, state: str) -> None:
    path, reason = f"mode-changes/{change}/", {"reason": "Tour: this cluster cannot finish it."}

    def moved(states: set[str]) -> Any:
        row = ground.admin.get(path)
        return row if row["state"] in states else None

    if state == "applying":
        ground.admin.post(f"{path}pause/", reason, landed=lambda: moved({"paused"}))
    ground.admin.post(f"{path}abandon/", reason, landed=lambda: moved({"abandoned"}))


def verify_nodes(ground: Ground) -> None:
    """Hold every node of the pools to its mode: the exact resource keys above zero, those of other modes at zero."""
    for wish in POOLS:
        with ground.report.step(f"verify {wish.name}") as step:
            if not ground.report.passed(f"pool {wish.name}"):
                raise Skipped(f"pool {wish.name} was not made")
            held, rows = wait_for(
                lambda wish=wish: ground.node_rows(pool=wish.name),  # type: ignore[misc]  # as above
                seconds=POOL_SECONDS,
                what=lambda rows: bool(rows) and all(row["verified"] for row in rows),
            )
            if not rows:
                raise Failed("the console shows no node of this pool")
            wrong = [
                f"{row['name']}: {check['title']}: found {check['found']}, expected {check['expected']}"
                for row in rows
                for check in row["checks"]
                if check["ok"] is False
            ]
            if not held:
                silent = [check for row in rows for check in row["checks"] if check["code"].startswith("reports:")]
                if silent and not any(check["ok"] for check in silent):
                    raise Skipped(f"no device plugin of this cluster reports the mode: {'; '.join(wrong)}")
                raise Failed("; ".join(wrong))
            ground.nodes[wish.name] = rows[0]["name"]
            reported = {key: n for key, n in rows[0]["allocatable"].items() if "gpu" in key and n}
            step.detail = f"{rows[0]['name']} reports {', '.join(f'{key}={n}' for key, n in sorted(reported.items()))}"


def change_mode(ground: Ground) -> None:
    """Switch the share pool to cgpu: nobody approves their own request, a second person does, a worker does it."""
    with ground.report.step("mode change: refused to its own approver"):
        pool = _pool_to_change(ground)
        asked = _ask(ground, ground.admin, pool, "Tour: asked for by an administrator.")
        try:
            ground.admin.post(f"mode-changes/{asked['id']}/approve/", {"reason": "Tour: I approve my own request."})
        except Refusal as refusal:
            if refusal.status != 403 or refusal.code != "self-approval":
                raise Failed(f"refused for another reason: {refusal}") from refusal
        else:
            raise Failed("the console let a person approve their own request")
        path = f"mode-changes/{asked['id']}/"
        ground.admin.post(
            f"{path}withdraw/",
            landed=lambda: row if (row := ground.admin.get(path))["state"] == "withdrawn" else None,
        )
    with ground.report.step("mode change: asked for, approved by another, carried out") as step:
        pool = _pool_to_change(ground)
        asked = _ask(ground, ground.operator, pool, "Tour: isolate memory.")
        _approve(ground, asked["id"])
        step.detail = _wait_change(ground, asked["id"])
    with ground.report.step("mode change: verified") as step:
        if not ground.report.passed("mode change: asked for, approved by another, carried out"):
            raise Skipped("the change was not carried out")
        node = ground.node_of_pool("tour-share")
        held, row = wait_for(
            lambda: ground.node(node),
            seconds=SETTLE_SECONDS,
            what=lambda row: row["verified"] and row["mode"] == "cgpu" and not row["unschedulable"],
        )
        if not held:
            raise Failed(f"{node} is in mode {row['mode']}, verified: {row['verified']}")
        step.detail = f"{node} is in mode cgpu and takes pods"


def _pool_to_change(ground: Ground) -> int:
    if not ground.report.passed("pool tour-share"):
        raise Skipped("pool tour-share was not made")
    return ground.pools["tour-share"]


def _ask(ground: Ground, who: Client, pool: int, reason: str) -> dict[str, Any]:
    def landed() -> Any:
        return next(who.rows("mode-changes/", pool=str(pool), state="pending"), None)

    body = {"pool": pool, "target_mode": "cgpu", "target_policy": "binpack", "holders": "wait", "reason": reason}
    return dict(who.post("mode-changes/", body, landed=landed))
