"""The checked-in OpenAPI document is what the code says, and its browsable page loads nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

from gpupools.models import User

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"


def test_the_document_is_up_to_date() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    made = OpenApiYamlRenderer().render(schema, renderer_context={}).decode()
    assert DOCUMENT.read_text() == made, "run `make schema` and commit docs/openapi.yaml"


@pytest.mark.django_db
def test_the_browsable_page_and_its_schema_are_served(client: Client) -> None:
    client.force_login(User.objects.create_user("u", password="a long enough password"))
    page = client.get("/api/v1/docs/")
    assert page.status_code == 200
    assert re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page.content.decode()) == []
    assert client.get("/api/v1/schema/").status_code == 200
