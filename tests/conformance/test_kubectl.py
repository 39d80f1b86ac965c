"""The server under an unmodified kubectl: everything that people type at GPU nodes, pods and Jobs."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from tests.conformance.kubectl import Kubectl, table
from tests.conformance.wire import config_map, job, pod
from tests.simulator.harness import SimulatorProcess

CONFIG = yaml.safe_dump(config_map("a", {"k": "v", "l": "w"}))
WAITING = yaml.safe_dump(pod(schedulerName="nobody"))


def manifest(body: dict) -> str:
    return yaml.safe_dump(body)


def test_get_prints_a_table_of_the_server_s(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=WAITING)
    header, row = table(kubectl("get", "pods").stdout)
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["p", "0/1", "Pending", "0"]


def test_get_wide_prints_more(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=WAITING)
    header, _ = table(kubectl("get", "pods", "-o", "wide").stdout)
    assert header[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_get_prints_whole_objects(kubectl: Kubectl, form: str) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    text = kubectl("get", "configmap", "a", "-o", form).stdout
    found = json.loads(text) if form == "json" else yaml.safe_load(text)
    assert (found["kind"], found["data"]) == ("ConfigMap", {"k": "v", "l": "w"})


def test_get_prints_names_paths_and_columns(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert kubectl("get", "cm", "a", "-o", "name").stdout == "configmap/a\n"
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.k}").stdout == "v"
    columns = kubectl("get", "cm", "a", "-o", "custom-columns=N:.metadata.name,K:.data.k").stdout
    assert columns.split() == ["N", "K", "a", "v"]


def test_get_adds_labels_as_columns_and_selects_by_them(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(config_map("a", labels={"team": "x", "t": "1"})))
    kubectl("apply", "-f", "-", stdin=manifest(config_map("b", labels={"team": "z", "t": "1"})))
    header, *rows = table(kubectl("get", "cm", "-L", "team", "-l", "t").stdout)
    assert (header[-1], [(row[0], row[-1]) for row in rows]) == ("TEAM", [("a", "x"), ("b", "z")])
    assert kubectl("get", "cm", "-l", "team in (z)", "-o", "name").stdout == "configmap/b\n"
    assert kubectl("get", "cm", "-l", "t=1,team!=z", "-o", "name").stdout == "configmap/a\n"
    assert "team=x" in kubectl("get", "cm", "a", "--show-labels").stdout


def test_get_selects_by_fields_and_sorts(kubectl: Kubectl) -> None:
    for name in ("b", "a"):
        kubectl("apply", "-f", "-", stdin=manifest(pod(name, schedulerName="nobody")))
    assert kubectl("get", "pods", "--field-selector", "metadata.name=a", "-o", "name").stdout == "pod/a\n"
    assert kubectl("get", "pods", "--sort-by=.metadata.name", "-o", "name").stdout == "pod/a\npod/b\n"
    assert kubectl("get", "pods", "--field-selector", "status.phase!=Pending").stderr.startswith("No resources found")


def test_get_fetches_in_chunks(kubectl: Kubectl) -> None:
    documents = [config_map(f"c{number}", labels={"t": "1"}) for number in range(7)]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    names = kubectl("get", "cm", "-l", "t=1", "--chunk-size=2", "-o", "name").stdout.split()
    assert names == [f"configmap/c{number}" for number in range(7)]


def test_get_follows_changes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(config_map("a", labels={"t": "1"})))
    arguments = kubectl.command("get", "cm", "-l", "t=1", "--watch", "--output-watch-events")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=kubectl.environment()) as process:
        try:
            assert process.stdout is not None
            header, first = process.stdout.readline().split(), process.stdout.readline().split()
            assert (header[:2], first[:2]) == (["EVENT", "NAME"], ["ADDED", "a"])
            kubectl("delete", "cm", "a")
            assert process.stdout.readline().split()[:2] == ["DELETED", "a"]
        finally:
            process.kill()


def test_describe_tells_of_a_node(kubectl: Kubectl, node: str) -> None:
    name = node.rpartition("/")[2]
    kubectl("taint", "node", name, "own=me:PreferNoSchedule")
    described = kubectl("describe", "node", name).stdout
    assert f"Name:               {name}" in described
    assert "own=me:PreferNoSchedule" in described
    assert "Unschedulable:      true" in described


def test_describe_tells_of_a_pod(kubectl: Kubectl) -> None:
    body = pod(schedulerName="nobody", resources={"limits": {"nvidia.com/gpu": "1"}})
    kubectl("apply", "-f", "-", stdin=manifest(body))
    described = kubectl("describe", "pod", "p").stdout
    assert "Status:           Pending" in described
    assert "nvidia.com/gpu:  1" in described


def test_describe_tells_of_a_job(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(job(suspend=True, parallelism=2)))
    described = kubectl("describe", "job", "j").stdout
    assert "Parallelism:      2" in described
    assert "Suspend:          true" in described


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=CONFIG).stdout == "configmap/a created\n"
    assert kubectl("apply", "-f", "-", stdin=CONFIG).stdout == "configmap/a unchanged\n"
    changed = manifest(config_map("a", {"k": "x"}))
    assert kubectl("apply", "-f", "-", stdin=changed).stdout == "configmap/a configured\n"
    assert kubectl.read("cm", "a")["data"] == {"k": "x"}


def test_apply_keeps_what_others_added(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("patch", "cm", "a", "--type=merge", "-p", '{"data":{"m":"by hand"}}')
    kubectl("apply", "-f", "-", stdin=manifest(config_map("a", {"k": "v"})))
    assert kubectl.read("cm", "a")["data"] == {"k": "v", "m": "by hand"}


def test_apply_can_be_tried_on_the_server(kubectl: Kubectl) -> None:
    done = kubectl("apply", "-f", "-", "--dry-run=server", stdin=CONFIG)
    assert done.stdout == "configmap/a created (server dry run)\n"
    kubectl("get", "cm", "a", code=1)


def test_apply_on_the_server_tells_conflicts(kubectl: Kubectl) -> None:
    done = kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG)
    assert done.stdout == "configmap/a serverside-applied\n"
    kubectl("patch", "cm", "a", "--type=merge", "--field-manager=hand", "-p", '{"data":{"k":"mine"}}')
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG, code=1)
    assert 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.k' in refused.stderr
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=CONFIG)
    assert kubectl.read("cm", "a")["data"]["k"] == "v"


def test_apply_names_unknown_fields(kubectl: Kubectl) -> None:
    refused = kubectl("apply", "-f", "-", stdin=manifest({**config_map("a"), "date": {"k": "v"}}), code=1)
    assert 'strict decoding error: unknown field "date"' in refused.stderr
    warned = kubectl("apply", "--validate=warn", "-f", "-", stdin=manifest({**config_map("a"), "date": {"k": "v"}}))
    assert 'Warning: unknown field "date"' in warned.stderr


def test_apply_moves_from_the_client_to_the_server(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG)
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest(config_map("a", {"k": "v"})))
    assert kubectl.read("cm", "a")["data"] == {"k": "v"}


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("diff", "-f", "-", stdin=CONFIG)
    shown = kubectl("diff", "-f", "-", stdin=manifest(config_map("a", {"k": "z", "l": "w"})), code=1)
    assert "-  k: v" in shown.stdout
    assert "+  k: z" in shown.stdout


@pytest.mark.parametrize(
    ("kind", "patch", "data"),
    [
        ("json", '[{"op":"replace","path":"/data/k","value":"x"}]', {"k": "x", "l": "w"}),
        ("merge", '{"data":{"k":null,"m":"y"}}', {"l": "w", "m": "y"}),
        ("strategic", '{"data":{"k":"z"}}', {"k": "z", "l": "w"}),
    ],
)
def test_patch_patches(kubectl: Kubectl, kind: str, patch: str, data: dict) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert kubectl("patch", "cm", "a", f"--type={kind}", "-p", patch).stdout == "configmap/a patched\n"
    assert kubectl.read("cm", "a")["data"] == data
    assert kubectl("patch", "cm", "a", "--type=merge", "-p", "{}").stdout == "configmap/a patched (no change)\n"


def test_replace_replaces(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("replace", "-f", "-", stdin=manifest(config_map("a", {"only": "this"})))
    assert kubectl.read("cm", "a")["data"] == {"only": "this"}


def test_label_and_annotate_set_and_take_back(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert kubectl("label", "cm", "a", "team=x").stdout == "configmap/a labeled\n"
    refused = kubectl("label", "cm", "a", "team=y", code=1)
    assert "already has a value (x), and --overwrite is false" in refused.stderr
    kubectl("label", "cm", "a", "team=y", "--overwrite")
    kubectl("annotate", "cm", "a", "note=z")
    meta = kubectl.read("cm", "a")["metadata"]
    assert (meta["labels"]["team"], meta["annotations"]["note"]) == ("y", "z")
    kubectl("label", "cm", "a", "team-")
    kubectl("annotate", "cm", "a", "note-")
    meta = kubectl.read("cm", "a")["metadata"]
    assert ("team" in meta.get("labels", {}), "note" in meta["annotations"]) == (False, False)


def test_a_label_s_value_is_checked(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    refused = kubectl("label", "cm", "a", "team=a b", code=1)
    assert "a valid label must be an empty string or consist of alphanumeric characters" in refused.stderr


def test_taint_and_cordon_set_and_take_back(kubectl: Kubectl, node: str) -> None:
    name = node.rpartition("/")[2]
    kubectl("uncordon", name)
    assert not kubectl.read("node", name)["spec"].get("unschedulable")
    kubectl("taint", "node", name, "own=me:PreferNoSchedule")
    assert {"key": "own", "value": "me", "effect": "PreferNoSchedule"} in kubectl.read("node", name)["spec"]["taints"]
    assert kubectl("cordon", name).stdout == f"node/{name} cordoned\n"
    assert "SchedulingDisabled" in kubectl("get", "node", name).stdout
    kubectl("taint", "node", name, "own-")
    taints = kubectl.read("node", name)["spec"].get("taints", ())
    assert "own" not in [taint["key"] for taint in taints]


def test_drain_evicts(kubectl: Kubectl, node: str) -> None:
    name = node.rpartition("/")[2]
    kubectl("apply", "-f", "-", stdin=manifest(pod(nodeName=name, terminationGracePeriodSeconds=0)))
    refused = kubectl("drain", name, code=1)
    assert "cannot delete" in refused.stderr
    done = kubectl("drain", name, "--force", "--ignore-daemonsets", "--timeout=30s")
    assert f"evicting pod {kubectl.namespace}/p" in done.stdout + done.stderr
    assert f"node/{name} drained" in done.stdout
    kubectl("get", "pod", "p", code=1)


@pytest.mark.needs("scheduler", "kubelet", "controllers")
def test_drain_leaves_daemons_and_waits_for_the_grace(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(pod()))
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    name = kubectl.read("pod", "p")["spec"]["nodeName"]
    kubectl("label", "pod", "p", "conformance=drained")
    done = kubectl("drain", name, "--force", "--ignore-daemonsets", "--pod-selector=conformance=drained")
    kubectl("uncordon", name)
    assert f"node/{name} drained" in done.stdout
    kubectl("get", "pod", "p", code=1)


@pytest.mark.parametrize("policy", ["background", "foreground", "orphan"])
@pytest.mark.needs("controllers")
def test_delete_takes_dependents_or_leaves_them(kubectl: Kubectl, policy: str) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(config_map("owner")))
    uid = kubectl.read("cm", "owner")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    kubectl("apply", "-f", "-", stdin=manifest(config_map("owned", ownerReferences=[reference])))
    done = kubectl("delete", "cm", "owner", f"--cascade={policy}", "--timeout=30s")
    assert done.stdout.startswith('configmap "owner" deleted')
    if policy == "orphan":
        assert "ownerReferences" not in kubectl.read("cm", "owned")["metadata"]
    elif policy == "foreground":
        kubectl("get", "cm", "owned", code=1)
    else:
        kubectl("wait", "--for=delete", "cm/owned", "--timeout=60s")


def test_delete_goes_by_selector_and_can_be_tried(kubectl: Kubectl) -> None:
    documents = [config_map(name, labels={"t": "1"}) for name in ("a", "b")]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
    kubectl("delete", "cm", "-l", "t=1", "--dry-run=server")
    assert len(kubectl.read("cm", "-l", "t=1")["items"]) == 2
    kubectl("delete", "cm", "-l", "t=1")
    assert kubectl.read("cm", "-l", "t=1")["items"] == []
    assert kubectl("delete", "cm", "a", "--ignore-not-found").stdout == ""
    assert 'configmaps "a" not found' in kubectl("delete", "cm", "a", code=1).stderr


def test_delete_at_once_skips_the_grace(kubectl: Kubectl, node: str) -> None:
    kubectl("apply", "-f", "-", stdin=manifest(pod(nodeName=node.rpartition("/")[2])))
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    kubectl("get", "pod", "p", code=1)


@pytest.mark.needs("scheduler", "kubelet")
def test_logs_follow_to_the_end(kubectl: Kubectl) -> None:
    body = pod(restartPolicy="Never")
    body["spec"]["containers"][0]["command"] = ["sh", "-c", "echo one; sleep 2; echo two"]
    kubectl("apply", "-f", "-", stdin=manifest(body))
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=60s")
    assert kubectl("logs", "-f", "p").stdout == "one\ntwo\n"
    assert kubectl("logs", "p", "--tail=1").stdout == "two\n"


def test_top_says_that_there_are_no_metrics(kubectl: Kubectl, embedded: SimulatorProcess | None) -> None:
    if embedded is None:
        pytest.skip("another server may well have metrics")
    assert "error: Metrics API not available" in kubectl("top", "nodes", code=1).stderr
    assert "error: Metrics API not available" in kubectl("top", "pods", code=1).stderr


def test_wait_waits(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("wait", "--for=jsonpath={.data.k}=v", "cm/a", "--timeout=10s")
    late = kubectl("wait", "--for=jsonpath={.data.k}=other", "cm/a", "--timeout=1s", code=1)
    assert "timed out waiting for the condition on configmaps/a" in late.stderr
    kubectl("delete", "cm", "a", "--wait=false")
    kubectl("wait", "--for=delete", "cm/a", "--timeout=10s")


@pytest.mark.needs("scheduler", "kubelet", "controllers")
def test_a_job_is_waited_for(kubectl: Kubectl) -> None:
    kubectl("create", "job", "quick", "--image=registry.example.com/x:1", "--", "echo", "done")
    kubectl("wait", "--for=condition=complete", "job/quick", "--timeout=60s")
    header, row = table(kubectl("get", "jobs").stdout)
    assert (header, row[:3]) == (["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"], ["quick", "Complete", "1/1"])
    assert kubectl("logs", "job/quick").stdout == "done\n"


@pytest.mark.needs("scheduler", "kubelet", "controllers")
def test_a_daemonset_s_rollout_is_followed(kubectl: Kubectl) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {"name": "c", "image": "registry.example.com/d:1", "command": ["sleep", "infinity"]}
                    ],
                },
            },
        },
    }
    kubectl("apply", "-f", "-", stdin=manifest(body))
    kubectl("rollout", "status", "daemonset/d", "--timeout=60s")
    kubectl("set", "image", "daemonset/d", "c=registry.example.com/d:2")
    done = kubectl("rollout", "status", "daemonset/d", "--timeout=80s")
    assert 'daemon set "d" successfully rolled out' in done.stdout
    images = {item["spec"]["containers"][0]["image"] for item in kubectl.read("pods", "-l", "app=d")["items"]}
    assert images == {"registry.example.com/d:2"}


def test_half_a_card_is_refused_in_the_real_words(kubectl: Kubectl) -> None:
    body = manifest(pod(resources={"limits": {"nvidia.com/gpu": "0.5"}}))
    refused = kubectl("apply", "-f", "-", stdin=body, code=1)
    assert 'The Pod "p" is invalid:' in refused.stderr
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: " in refused.stderr
    assert "must be an integer" in refused.stderr


def test_explain_knows_the_fields(kubectl: Kubectl) -> None:
    assert "resources\t<ResourceRequirements>" in kubectl("explain", "job.spec.template.spec.containers").stdout


def test_kinds_and_versions_are_listed(kubectl: Kubectl) -> None:
    kinds = kubectl("api-resources", "--no-headers", "-o", "name").stdout.split()
    assert {"nodes", "pods", "jobs.batch", "daemonsets.apps", "leases.coordination.k8s.io"} <= set(kinds)
    assert "batch/v1" in kubectl("api-versions").stdout.split()
