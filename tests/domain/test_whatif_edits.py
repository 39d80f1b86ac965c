"""Whoever makes all edits of a what-if by hand, and nothing else, gets what it says: on any nodes, of any manifest."""

from __future__ import annotations

import copy

import pytest
import yaml
from hypothesis import given

from gpupools.domain import lint, manifests
from gpupools.domain.edits import Edit, edits_between, in_yaml
from gpupools.domain.gpus import Taint
from gpupools.domain.placement import first_unfit, node_states, sequence
from gpupools.domain.whatifs import what_would_help
from tests.domain.builders import CORE, COUNT, MEM, TOPOLOGY, WHOLE, a_node, a_pod, an_ask, filled
from tests.domain.picks import cases

MODE = "ack.node.gpu.schedule"
POOL = "alibabacloud.com/nodepool-id"
MODES = ("cgpu", "mps", "share", "core_mem", "exclusive", "topology")
ASKS = {
    "cgpu": {MEM: 6},
    "mps": {MEM: 6},
    "share": {MEM: 6},
    "core_mem": {MEM: 4, CORE: 70},
    "default": {WHOLE: 2},
    "topology": {TOPOLOGY: 2},
}


def a_manifest(mode="cgpu", limits=None, *, kind="Job", pods=1, by="selector", stated=False, spec=None, labels=None):
    """A manifest as a mapping: bound to a mode by selector or affinity or not at all, its requests stated or not."""
    limits = ASKS[mode] if limits is None else limits
    resources = {"limits": dict(limits)} | ({"requests": dict(limits)} if stated else {})
    body = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "resources": resources}]}
    if by == "selector":
        body["nodeSelector"] = {MODE: mode}
    elif by == "affinity":
        term = {"matchExpressions": [{"key": MODE, "operator": "In", "values": [mode]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        body["affinity"] = {"nodeAffinity": required}
    if mode == "mps" and by:
        body["hostIPC"] = True
    pod = {"metadata": {"labels": labels or {}}, "spec": body | (spec or {})}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **pod, "metadata": {"name": "p", **pod["metadata"]}}
    counts = {"parallelism": pods, "completions": pods}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "p"}, "spec": {**counts, "template": pod}}


def read(raw):
    return manifests.parse(yaml.safe_dump(raw), max_bytes=100_000)


def errors(manifest):
    found = [each.code for each in lint.lint(manifest, modes_present=None) if each.severity == "error"]
    return found + [each.field for each in manifests.check_confined(manifest, namespaces=None)]


def made(raw, edits):
    """Make edits as a person would: go to the field, write the value as YAML, or take the field out."""
    raw = copy.deepcopy(raw)
    for edit in edits:
        steps = edit.field.replace("]", "").replace("[", "\0").split("\0")
        steps = [part for index, step in enumerate(steps) for part in _parts(step, plain=index == 0)]
        here = raw
        for step, after in zip(steps, steps[1:], strict=False):
            key = int(step) if isinstance(here, list) else step
            if isinstance(here, dict) and not here.get(key):
                here[key] = [] if after.isdigit() else {}
            here = here[key]
        if not edit.value:
            del here[steps[-1]]
        elif isinstance(here, list):
            assert int(steps[-1]) == len(here)
            here.append(yaml.safe_load(edit.value))
        else:
            here[steps[-1]] = yaml.safe_load(edit.value)
    return raw


def _parts(step, *, plain):
    # In brackets stands one key; what follows them is a path again.
    if plain:
        return step.split(".")
    number, dot, rest = step.partition(".")
    return [number, *rest.split(".")] if dot and number.isdigit() else [step]


def fitting(manifest, states):
    unfit = first_unfit(sequence(manifest.ask, manifest.parallelism, states))
    return manifest.parallelism if unfit is None else unfit


def helped(raw, states, **fields):
    manifest = read(raw)
    return what_would_help(manifest.ask, states, count=manifest.parallelism, manifest=manifest, **fields)


def come_true(raw, states, options):
    """Whether each option does what it says once its edits are made; those without edits are of another cluster."""
    before = fitting(read(raw), states)
    for option in options:
        if option.code in {"wait", "node"}:
            assert not option.edits
            continue
        changed = read(made(raw, option.edits))
        assert errors(changed) == [], option
        assert fitting(changed, states) == option.pods > before, option
    return True


def a_cluster_and_a_manifest(picks):
    nodes, pods = [], []
    for number in range(picks.between(1, 4)):
        mode, cards = picks.one_of(*MODES), picks.between(1, 4)
        labels = {POOL: picks.one_of("np1", "np2"), "zone": picks.one_of("a", "b")}
        taints = (Taint("gpu", "yes"),) if picks.one_of(False, False, True) else ()
        nodes.append(a_node(f"n{number}", mode, cards, 8, labels=labels, taints=taints, resources={"cpu": 8000}))
        if mode in {"cgpu", "mps", "share", "core_mem"}:
            pods += filled(*[picks.between(1, 8) for _ in range(cards)], on=f"n{number}")
        elif mode == "exclusive":
            pods.append(a_pod(f"w{number}", on=f"n{number}", whole=picks.between(1, cards)))
    mode = picks.one_of(*ASKS)
    by = picks.one_of("selector", "affinity", "")
    spec = {"nodeSelector": {"zone": "c"}} if by != "selector" and picks.yes() else {}
    limits = {name: amount * picks.between(1, 2) for name, amount in ASKS[mode].items() if name != CORE}
    limits |= {name: 70 for name in ASKS[mode] if name == CORE} | (
        {"cpu": 12} if picks.one_of(False, False, True) else {}
    )
    labels = {COUNT: "2"} if MEM in limits and CORE not in limits and limits[MEM] % 2 == 0 and picks.yes() else {}
    raw = a_manifest(
        mode, limits, kind=picks.one_of("Job", "Pod"), pods=picks.between(1, 4), by=by, stated=picks.yes(),
        spec=spec, labels=labels,
    )  # fmt: skip
    return nodes, pods, raw


@given(cases(a_cluster_and_a_manifest, size=64))
def test_the_edits_of_every_option_pass_the_check_and_place_what_was_said(case):
    nodes, pods, raw = case
    assert errors(read(raw)) == []
    states = node_states(nodes, pods)
    assert come_true(raw, states, helped(raw, states).options)


def only(raw, *nodes, pods=(), code="mode", **fields):
    states = node_states(nodes, pods)
    options = [each for each in helped(raw, states, **fields).options if each.code == code]
    assert come_true(raw, states, options)
    assert len(options) == 1
    return options[0]


def test_another_mode_changes_the_limits_and_the_selector():
    option = only(a_manifest("cgpu"), a_node(mode="exclusive"))
    limits = "spec.template.spec.containers[0].resources.limits"
    assert option.edits == (
        Edit(f"{limits}[{MEM}]", "6", ""),
        Edit(f"{limits}[{WHOLE}]", "", "1"),
        Edit(f"spec.template.spec.nodeSelector[{MODE}]", "cgpu", "default"),
    )
    assert option.sentence == (
        "Ask for 1 of nvidia.com/gpu instead of 6 of aliyun.com/gpu-mem (Exclusive) and select "
        "ack.node.gpu.schedule=default instead of cgpu: it would land on n1."
    )


def test_an_exclusive_node_without_the_label_is_not_selected_by_it():
    option = only(a_manifest("cgpu", kind="Pod"), a_node(mode=None, resources={WHOLE: 1}))
    assert option.edits[-1] == Edit(f"spec.nodeSelector[{MODE}]", "cgpu", "")
    assert "do not select ack.node.gpu.schedule=cgpu" in option.sentence


def test_mode_mps_comes_with_the_hosts_ipc_and_goes_with_it():
    there = only(a_manifest("cgpu", kind="Pod"), a_node(mode="mps"))
    assert there.edits == (Edit(f"spec.nodeSelector[{MODE}]", "cgpu", "mps"), Edit("spec.hostIPC", "", "true"))
    assert there.sentence.startswith(f"Select {MODE}=mps instead of cgpu and set hostIPC: true:")
    back = only(a_manifest("mps", kind="Pod"), a_node(mode="cgpu"))
    assert back.edits == (Edit(f"spec.nodeSelector[{MODE}]", "mps", "cgpu"), Edit("spec.hostIPC", "true", ""))
    assert "take hostIPC out" in back.sentence


def test_a_mode_bound_by_affinity_is_changed_there():
    option = only(a_manifest("mps", by="affinity"), a_node(mode="cgpu"))
    field, ipc = option.edits
    assert field.field.endswith("nodeSelectorTerms[0].matchExpressions[0].values")
    assert (field.found, field.value) == ('["mps"]', '["cgpu"]')
    assert (ipc.field, ipc.value) == ("spec.template.spec.hostIPC", "")


def test_several_cards_are_a_label_too():
    option = only(a_manifest("default"), a_node(mode="share", cards=2, units=8))
    assert Edit(f"spec.template.metadata.labels[{COUNT}]", "", '"2"') in option.edits
    assert "over 2 cards" in option.sentence


def test_a_request_that_is_written_down_is_edited_with_its_limit():
    raw = a_manifest("cgpu", {MEM: 20}, stated=True)
    option = only(raw, a_node(), code="smaller")
    assert [each.field.partition("resources.")[2] for each in option.edits] == [f"limits[{MEM}]", f"requests[{MEM}]"]


def test_what_is_wrong_for_another_reason_is_not_helped():
    raw = a_manifest("cgpu", {MEM: 20})
    raw["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]
    assert helped(raw, node_states([a_node()], [])).options == ()


def test_less_compute_places_all_pods():
    raw = a_manifest("core_mem", {MEM: 2, CORE: 70}, pods=8)
    states = node_states([a_node(mode="core_mem", cards=4, units=8)], [])
    found = helped(raw, states)
    assert (found.largest.resource, found.largest.amount) == (CORE, 30)
    (option,) = [each for each in found.options if each.code == "smaller"]
    assert option.sentence == f"Ask for 50 of {CORE} instead of 70: all 8 pods would fit instead of 4."
    assert come_true(raw, states, found.options)


@pytest.mark.parametrize(
    ("asked", "resource", "text"),
    [({MEM: 2, "cpu": "9"}, "cpu", "8"), ({MEM: 2, "cpu": "9", "memory": "1Gi"}, "cpu", "8"), ({MEM: 9}, MEM, "8")],
)
def test_what_is_named_as_free_is_what_is_short(asked, resource, text):
    raw = a_manifest("cgpu", asked)
    states = node_states([a_node(units=8, resources={"cpu": 8000})], [])
    found = helped(raw, states)
    assert (found.largest.resource, found.largest.text) == (resource, text)
    assert f"Ask for {text} of {resource} instead of 9" in found.options[0].sentence
    assert come_true(raw, states, found.options)


def test_for_a_job_only_what_places_more_of_its_pods_is_offered():
    raw = a_manifest("cgpu", {MEM: 6}, pods=9)
    nodes = [a_node("c", "cgpu", 8, 8), a_node("m", "mps", 1, 8), a_node("s", "share", 9, 8)]
    states = node_states(nodes, [])
    found = helped(raw, states)
    assert come_true(raw, states, found.options)
    modes = {option.sentence for option in found.options if option.code == "mode"}
    assert modes == {f"Select {MODE}=share instead of cgpu: all 9 pods would fit instead of 8."}


def test_one_more_node_says_how_many_pods_of_a_job_it_takes():
    raw = a_manifest("cgpu", {MEM: 8}, pods=9)
    states = node_states([a_node("c", "cgpu", 4, 8, labels={POOL: "np26ef"})], [])
    option = only_node(helped(raw, states, pools={"np26ef": "pcore"}))
    assert (option.pool, option.pods) == ("pcore", 8)
    assert option.sentence.startswith(
        "With one more node of pool pcore 8 of 9 pods would fit instead of 4, if made as c"
    )


def only_node(found):
    (option,) = [each for each in found.options if each.code == "node"]
    return option


def test_pools_are_called_by_their_names():
    raw = a_manifest("cgpu", kind="Pod", spec={"nodeSelector": {POOL: "np1"}})
    option = only(raw, a_node(labels={POOL: "np2"}), code="pool", pools={"np1": "old", "np2": "new"})
    assert option.sentence.startswith(f"Select pool new ({POOL}=np2) instead of old:")


@pytest.mark.parametrize(
    ("value", "text"),
    [("mps", "mps"), ("2", '"2"'), ("yes", '"yes"'), ("1e3", '"1e3"'), ("null", '"null"'), ("", '""'), (None, "")],
)
def test_a_value_stands_in_yaml_as_the_text_that_it_is(value, text):
    assert in_yaml(value) == text
    assert not text or yaml.safe_load(text) == value


def test_equal_asks_need_no_edit():
    assert edits_between(an_ask(mem=4), an_ask(mem=4)) == ()
