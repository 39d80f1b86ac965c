"""kubectl auth, and how a refusal looks."""

from __future__ import annotations

from tests.conformance.kubectl import Kubectl


def test_auth_can_i_answers(kubectl: Kubectl, viewer: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"
    assert viewer("auth", "can-i", "get", "pods", "--subresource=log").stdout == "yes\n"
    assert viewer("auth", "can-i", "delete", "nodes", code=1).stdout.splitlines()[-1] == "no"


def test_auth_can_i_lists(viewer: Kubectl) -> None:
    listed = viewer("auth", "can-i", "--list").stdout
    header, *rows = listed.splitlines()
    assert header.split() == ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"]
    assert any(row.startswith("selfsubjectaccessreviews.authorization.k8s.io") for row in rows)
    assert any(row.startswith("pods ") and "[get list watch]" in row for row in rows)


def test_auth_tells_who_one_is(viewer: Kubectl) -> None:
    assert "gpu-viewer" in viewer("auth", "whoami").stdout


def test_a_refusal_is_shown_as_it_came(viewer: Kubectl) -> None:
    refused = viewer("get", "secrets", code=1)
    assert refused.stderr == (
        'Error from server (Forbidden): secrets is forbidden: User "gpu-viewer" cannot list resource "secrets" in API '
        f'group "" in the namespace "{viewer.namespace}"\n'
    )
