"""What an identity leaves of the console: judged from reviews, from the shipped RBAC, and by a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpupools import clusters
from gpupools.clusters import kubeconfig
from gpupools.domain.abilities import FUNCTIONS, LEVELS, Grant, abilities, needed
from tests.simulator.harness import ROOT, SimulatorProcess

FILES = {"read": "read-only.yaml", "operate": "operator.yaml", "full": "full.yaml"}


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(fleet="small") as running:
        yield running


def documents(level: str) -> list[dict]:
    return list(yaml.safe_load_all(Path(ROOT, "docs/rbac", FILES[level]).read_text()))


def rules(level: str) -> list[dict]:
    (role,) = [each for each in documents(level) if each["kind"] == "ClusterRole"]
    return role["rules"]


def grants(level: str) -> list[Grant]:
    return [Grant(tuple(r["verbs"]), tuple(r["apiGroups"]), tuple(r["resources"])) for r in rules(level)]


def allowed(found) -> set[str]:
    return {each.code for each in found if each.allowed}


def codes(*levels: str) -> set[str]:
    return {function.code for function in FUNCTIONS if function.level in levels}


@pytest.mark.parametrize("level", LEVELS)
def test_the_shipped_rbac_is_exactly_what_a_level_needs(level):
    written: dict[tuple[str, str], set[str]] = {}
    for rule in rules(level):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                written.setdefault((group, resource), set()).update(rule["verbs"])
    assert written == {key: set(verbs) for key, verbs in needed(level).items()}
    assert allowed(abilities(grants(level))) == codes(*LEVELS[: LEVELS.index(level) + 1])


@pytest.mark.parametrize("level", LEVELS)
def test_the_shipped_rbac_binds_its_own_service_account(level):
    kinds = {each["kind"]: each for each in documents(level)}
    assert set(kinds) == {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    name = kinds["ServiceAccount"]["metadata"]["name"]
    assert kinds["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "gpupools"}
    ]
    assert kinds["ClusterRoleBinding"]["roleRef"]["name"] == kinds["ClusterRole"]["metadata"]["name"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_running_cluster_takes_the_shipped_rbac(simulator, level):
    connection = kubeconfig.parse(simulator.kubeconfig.read_text(), allow_loopback=True)
    with clusters.connect(connection) as kubernetes:
        for document in documents(level):
            if document["kind"] in {"Namespace", "ServiceAccount"}:
                assert kubernetes.apply(document, op_id=f"rbac-{level}").outcome


@pytest.mark.parametrize(
    ("role", "there", "missing"),
    [
        ("admin", codes("read", "operate", "full"), set()),
        ("operator", codes("read", "operate"), {"releases"}),
        ("viewer", codes("read"), codes("operate", "full")),
    ],
)
def test_a_running_cluster_tells_what_each_identity_may(simulator, role, there, missing):
    connection = kubeconfig.parse(simulator.kubeconfig_of(role).read_text(), allow_loopback=True)
    with clusters.connect(connection) as kubernetes:
        found = kubernetes.abilities()
    assert there <= allowed(found)
    assert not missing & allowed(found)
    if role == "viewer":
        modes = next(each for each in found if each.code == "modes")
        assert modes.missing == ("patch nodes",)
        # What the review says is what the server does.
        with clusters.connect(connection) as kubernetes:
            assert not kubernetes.may("patch", "", "nodes")
            assert kubernetes.may("get", "", "pods/log")


def test_a_right_on_some_objects_is_no_right_on_all():
    rule = Grant(("list",), ("",), ("secrets",), ("only-this",))
    assert "releases" not in allowed(abilities([rule]))


def test_stars_cover_and_subresources_do_not_follow_from_their_resource():
    assert allowed(abilities([Grant(("*",), ("*",), ("*",))])) == codes(*LEVELS)
    assert "logs" not in allowed(abilities([Grant(("get",), ("",), ("pods",))]))
    assert "logs" in allowed(abilities([Grant(("get",), ("",), ("*/log",))]))


def test_what_an_incomplete_review_does_not_name_is_asked_for_once():
    asked = []

    def ask(need):
        asked.append(need)
        return need[0] == "get"

    found = abilities([Grant(("list", "watch"), ("", "batch", "apps"), ("*",))], ask=ask)
    assert {"allocation", "workloads", "reports"} <= allowed(found)
    assert "jobs" not in allowed(found)
    assert len(asked) == len(set(asked))
