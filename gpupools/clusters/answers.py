"""Answers of the API server that are not objects of a cluster: its version, reviews of rights, Helm's secrets."""

from __future__ import annotations

import msgspec

from gpupools.domain import wire
from gpupools.domain.abilities import Grant


class Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class Review(msgspec.Struct):
    class Verdict(msgspec.Struct):
        allowed: bool = False

    status: Verdict = msgspec.field(default_factory=Verdict)


class Rule(msgspec.Struct, rename="camel"):
    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None

    def grant(self) -> Grant:
        parts = (self.verbs, self.api_groups, self.resources, self.resource_names)
        return Grant(*(tuple(part or ()) for part in parts))


class Rules(msgspec.Struct):
    class Verdict(msgspec.Struct, rename="camel"):
        resource_rules: list[Rule] | None = None
        incomplete: bool = False

    status: Verdict = msgspec.field(default_factory=Verdict)


class Secret(msgspec.Struct):
    metadata: wire.Metadata = wire.Metadata()
    data: dict[str, str] | None = None


class Secrets(msgspec.Struct):
    items: list[Secret] | None = None
