"""What the ACK OpenAPI answers: records of the embedded ACK in the shapes that the SDK reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpupools.simulator.ackcloud import AckCloud
from gpupools.simulator.ackstate import Record
from gpupools.simulator.addons import Addon
from gpupools.simulator.hardware import hardware_of
from gpupools.simulator.records import condition_is

_INSTANCE_STATES = {
    "starting": "starting",
    "joining": "running",
    "running": "running",
    "removing": "stopping",
    "detached": "running",
}


def cluster(cloud: AckCloud) -> dict[str, Any]:
    """Return the answer of DescribeClusterDetail."""
    facts, state = cloud.plan.cluster, cloud.state
    return {
        "cluster_id": state.cluster_id,
        "name": facts.name,
        "cluster_type": "ManagedKubernetes",
        "cluster_spec": facts.spec,
        "profile": "Default",
        "region_id": facts.region,
        "zone_id": facts.zones[0],
        "state": "running",
        "size": sum(1 for machine in state.machines.values() if machine["pool_id"]),
        "current_version": facts.version,
        "init_version": facts.version,
        "created": state.created,
        "updated": state.created,
        "vpc_id": f"vpc-{state.cluster_id[1:18]}",
        "vswitch_ids": cloud.vswitch_ids,
        "container_cidr": "10.64.0.0/12",
        "service_cidr": "172.16.0.0/16",
        "network_mode": "vpc",
        "proxy_mode": "ipvs",
        "cluster_domain": "cluster.local",
        "deletion_protection": False,
        "tags": [],
        "meta_data": json.dumps({"RuntimeVersion": "2.1.5", "Runtime": "containerd"}),
        "resource_group_id": "rg-embedded",
    }


def pool(cloud: AckCloud, record: Record) -> dict[str, Any]:
    """Return one entry of DescribeClusterNodePools."""
    pool_id = record["nodepool_info"]["nodepool_id"]
    machines = cloud.state.machines_of(pool_id)
    states = [machine["state"] for machine in machines]
    ready = sum(1 for machine in machines if machine["state"] == "running" and _ready(cloud, machine))
    removing = states.count("removing")
    initial = states.count("starting") + states.count("joining")
    return {
        **{name: value for name, value in record.items() if name != "deleting"},
        "status": {
            "state": cloud.pool_state(pool_id),
            "total_nodes": len(machines),
            "healthy_nodes": ready,
            "serving_nodes": states.count("running"),
            "initial_nodes": initial,
            "removing_nodes": removing,
            "failed_nodes": 0,
            "offline_nodes": states.count("running") - ready,
        },
    }


def pool_detail(cloud: AckCloud, record: Record) -> dict[str, Any]:
    """Return the answer of DescribeClusterNodePoolDetail."""
    shown = pool(cloud, record)
    healthy = shown["status"]["offline_nodes"] == 0
    condition = {
        "type": "Ready",
        "status": "True" if healthy else "False",
        "reason": "NodesReady" if healthy else "NodesNotReady",
        "message": "",
        "last_transition_time": record["nodepool_info"]["updated"],
    }
    return {**shown, "status": {**shown["status"], "conditions": [condition]}}


def nodes(cloud: AckCloud, query: Mapping[str, str], *, page: int, size: int) -> dict[str, Any]:
    """Return the answer of DescribeClusterNodes: machines of the cluster that match, one page of them."""
    found = [
        machine for machine in cloud.state.machines.values() if machine["pool_id"] and _matches(cloud, machine, query)
    ]
    shown = found[(page - 1) * size : page * size]
    return {
        "nodes": [_node(cloud, machine) for machine in shown],
        "page": {"page_number": page, "page_size": size, "total_count": len(found)},
    }


_STATE_WORDS = {
    "running": ("running",),
    "removing": ("removing",),
    "initial": ("starting", "joining"),
    "failed": (),
}


def _matches(cloud: AckCloud, machine: Record, query: Mapping[str, str]) -> bool:
    node = cloud.machines_node(machine)
    labels = (node["metadata"].get("labels") or {}) if node else {}
    state = query.get("state", "all") or "all"
    wanted_labels = [pair.partition("=")[::2] for pair in query.get("nodeLabels", "").split(",") if pair]
    return (
        query.get("nodepool_id", "") in ("", machine["pool_id"])
        and (state == "all" or machine["state"] in _STATE_WORDS.get(state, ()))
        and _listed(query.get("instanceIds", ""), machine["instance_id"])
        and _listed(query.get("nodeIps", ""), machine["ip"])
        and _listed(query.get("nodeNames", ""), machine["node_name"])
        and all(labels.get(key) == value for key, value in wanted_labels)
    )


def _listed(text: str, value: str) -> bool:
    return not text or value in text.split(",")


def _ready(cloud: AckCloud, machine: Record) -> bool:
    node = cloud.machines_node(machine)
    return node is not None and condition_is(node.get("status") or {}, "Ready")


def _node(cloud: AckCloud, machine: Record) -> dict[str, Any]:
    node = cloud.machines_node(machine)
    state = _INSTANCE_STATES[machine["state"]]
    hardware = hardware_of(machine["instance_type"])
    status = "Unknown" if node is None else "Ready" if _ready(cloud, machine) else "NotReady"
    return {
        "instance_id": machine["instance_id"],
        "instance_name": f"worker-k8s-for-cs-{cloud.state.cluster_id}",
        "host_name": f"iZ{machine['instance_id'][2:]}Z",
        # An instance that has not joined has no node yet.
        "node_name": machine["node_name"] if node is not None else "",
        "node_status": status,
        "ip_address": [machine["ip"]],
        "instance_type": machine["instance_type"],
        "instance_type_family": hardware.family if hardware else "",
        "instance_role": "Worker",
        "instance_status": state.capitalize(),
        "instance_charge_type": machine["charge_type"],
        "state": state,
        "nodepool_id": machine["pool_id"],
        "creation_time": machine["created"],
        "expired_time": "2099-12-31T15:59:00Z",
        "image_id": "aliyun_3_x64_20G_alibase_20260801.vhd",
        "is_aliyun_node": True,
        "source": "ess_attach",
        "spot_strategy": "NoSpot",
        "error_message": "",
    }


def addon(known: Addon) -> dict[str, Any]:
    """Return an add-on of the catalogue."""
    return {
        "name": known.name,
        "version": known.version,
        "category": known.category,
        "managed": False,
        "install_by_default": False,
        "architecture": ["amd64"],
        "supported_actions": ["Install", "Upgrade", "Modify", "Uninstall"],
        "config_schema": "",
    }


def addons(cloud: AckCloud) -> list[dict[str, Any]]:
    """Return what ListAddons offers in this cluster."""
    return [addon(known) for known in cloud.addons.catalogue()]


def newer_versions(cloud: AckCloud, known: Addon) -> list[dict[str, Any]]:
    """Return the versions that an installed add-on can be brought to."""
    installed = cloud.state.addons.get(known.name)
    if installed is None or installed["version"] == known.version:
        return []
    return [{"version": known.version, "upgradable": True, "minimum_cluster_version": "1.20.4-aliyun.1"}]


def addon_versions(cloud: AckCloud) -> dict[str, Any]:
    """Return the answer of DescribeClusterAddonsVersion: an untyped map of the older API."""
    return {
        known.name: {
            "component_name": known.name,
            "version": cloud.state.addons.get(known.name, {}).get("version", ""),
            "next_version": known.version,
            "can_upgrade": bool(newer_versions(cloud, known)),
            "changed": "",
            "message": "",
            "required": False,
            "exist": known.name in cloud.state.addons,
        }
        for known in cloud.addons.catalogue()
    }


def addon_instance(record: Record) -> dict[str, Any]:
    """Return an installed add-on."""
    return {name: record[name] for name in ("name", "version", "state")}


_TASK_FIELDS = ("task_id", "task_type", "state", "created", "updated", "error")


def tasks_after(cloud: AckCloud, *, start: int, most: int) -> dict[str, Any]:
    """Return tasks, the newest first, from a token on; ``next_token`` is empty at the end."""
    newest = list(reversed(cloud.state.tasks.values()))
    end = start + most
    return {
        "tasks": [{name: record[name] for name in _TASK_FIELDS} for record in newest[start:end]],
        "next_token": str(end) if end < len(newest) else "",
        "page_info": {"page_number": 1, "page_size": most, "total_count": len(newest)},
    }


def tasks(cloud: AckCloud, *, page: int, size: int) -> dict[str, Any]:
    """Return one page of tasks, the newest first."""
    newest = list(reversed(cloud.state.tasks.values()))
    shown = newest[(page - 1) * size : page * size]
    return {
        "tasks": [{name: record[name] for name in _TASK_FIELDS} for record in shown],
        "page_info": {"page_number": page, "page_size": size, "total_count": len(newest)},
    }


def task(cloud: AckCloud, record: Record) -> dict[str, Any]:
    """Return the answer of DescribeTaskInfo. A task fails as ``fail``, one of its results as ``failed``."""
    position = min(record["position"], len(record["stages"]) - 1)
    failed = record["state"] == "fail"
    return {
        "task_id": record["task_id"],
        "cluster_id": cloud.state.cluster_id,
        "task_type": record["task_type"],
        "state": record["state"],
        "created": record["created"],
        "updated": record["updated"],
        "current_stage": record["stages"][position]["name"],
        "stages": [
            {
                "state": stage["state"],
                "start_time": stage.get("start_time", ""),
                "end_time": stage.get("end_time", ""),
                "message": stage["name"],
                "outputs": {},
            }
            for stage in record["stages"]
        ],
        "events": record["events"],
        "task_result": [
            {"data": data, "status": "failed" if failed and status == "initial" else status}
            for data, status in record["results"].items()
        ],
        "target": record["target"],
        "parameters": {},
        "outputs": {},
        "error": record["error"],
    }
