"""Forms that were sent with far more than they take: the form again with its error, never a bare page."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client

from gpupools.models import Role
from tests.web.conftest import Visitor
from tests.web.reading import Page

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lab")]
MIB = 1024 * 1024
BARE = "Bad Request (400)"
TEXT = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n"


def padded(size: int, line: str = "# of no use\n") -> str:
    return TEXT + line * ((size - len(TEXT)) // len(line.encode()))


@pytest.mark.parametrize(
    ("address", "field", "more"),
    [
        ("/c/lab/create-job/", "yaml", {"action": "check"}),
        ("/c/lab/create-job/", "yaml", {"action": "submit"}),
        ("/c/lab/ai-suite/ack-mps-control/apply/", "manifests", {"action": "look"}),
    ],
)
@pytest.mark.parametrize("size", [settings.GPUPOOLS_MAX_MANIFEST_BYTES + 1000, MIB, 4 * MIB])
def test_a_text_that_is_too_large_is_said_at_its_field_and_kept(
    visitor: Visitor, address: str, field: str, more: dict[str, str], size: int
) -> None:
    response = visitor(Role.ADMIN).post(address, {field: padded(size), **more})
    text = response.content.decode()
    assert response.status_code == 400
    assert BARE not in text
    assert "too large" in text
    assert f'href="#field-{field}"' in text or f'id="field-{field}"' in text
    assert text.count("# of no use") >= size // 20


def test_a_manifest_as_large_as_the_setting_says_is_checked_whatever_its_line_ends(visitor: Visitor) -> None:
    short_lines = padded(settings.GPUPOOLS_MAX_MANIFEST_BYTES, "#\n").replace("\n", "\r\n")
    foreign = padded(settings.GPUPOOLS_MAX_MANIFEST_BYTES, "# 漢字漢字漢字漢字\n")
    for typed in (short_lines, foreign):
        response = visitor(Role.OPERATOR).post("/c/lab/create-job/", {"yaml": typed, "action": "check"})
        assert response.status_code == 200
        assert Page(response.content.decode())
        assert 'id="check"' in response.content.decode()


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("/clusters/connect/", "kubeconfig"),
        ("/c/lab/create-node-pool/", "name"),
        ("/c/lab/node-pools/cgpu/edit/", "labels_value"),
        ("/c/lab/node-pools/cgpu/scale/", "reason"),
        ("/c/lab/node-pools/cgpu/delete/", "reason"),
        ("/c/lab/node-pools/cgpu/change-mode/", "reason"),
        ("/c/lab/disconnect/", "reason"),
        ("/users/", "username"),
        ("/tokens/", "name"),
        ("/password/", "new_password1"),
        ("/notices/", "email"),
    ],
)
def test_every_form_answers_a_large_body_itself(visitor: Visitor, address: str, field: str) -> None:
    response = visitor(Role.ADMIN).post(address, {field: "x" * MIB})
    assert response.status_code in {200, 302, 400, 409}
    assert BARE not in response.content.decode()


@pytest.mark.parametrize("address", ["/c/lab/create-job/", "/clusters/connect/", "/sign-in/"])
def test_what_no_form_could_mean_is_refused_with_a_page_that_says_what_to_do(visitor: Visitor, address: str) -> None:
    for browser in (visitor(Role.ADMIN), Client()):
        response = browser.post(address, {"yaml": "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)})
        if response.status_code == 302:  # sent to sign in, unread
            continue
        text = response.content.decode()
        assert (response.status_code, BARE in text) == (413, False)
        assert "keeps what you typed" in text


def test_more_fields_than_any_form_has_are_refused_with_a_page(visitor: Visitor) -> None:
    many = {f"label_{number}": "x" for number in range(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1)}
    response = visitor(Role.ADMIN).post("/c/lab/create-node-pool/", many)
    assert response.status_code == 413
    assert "fields" in response.content.decode()
