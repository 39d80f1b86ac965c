"""Who may do what on the embedded cluster: bearer tokens of three identities, and a table of what each may.

Words of 401 and 403 are the API server's. Knows nothing of objects; tokens come from and go to one private file.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpupools.simulator.errors import ApiError
from gpupools.simulator.files import write_atomically

READ = frozenset(("get", "list", "watch"))
WRITE = frozenset(("create", "update", "patch", "delete", "deletecollection"))
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources (``pods/log`` for a subresource; ``*`` for all) of API groups."""

    verbs: frozenset[str]
    resources: frozenset[str]
    groups: frozenset[str]

    def covers(self, verb: str, group: str, resource: str) -> bool:
        """Return whether this rule allows the verb on the resource."""
        return (
            (EVERYTHING in self.verbs or verb in self.verbs)
            and (EVERYTHING in self.resources or resource in self.resources)
            and (EVERYTHING in self.groups or group in self.groups)
        )


def _rule(verbs: frozenset[str], group: str, *resources: str) -> Rule:
    return Rule(verbs, frozenset(resources), frozenset((group,)))


_LOOK = (
    _rule(
        READ, "", "nodes", "namespaces", "pods", "pods/log", "pods/status", "configmaps", "events",
        "serviceaccounts",
    ),
    _rule(READ, "events.k8s.io", "events"),
    _rule(READ, "batch", "jobs", "jobs/status"),
    _rule(READ, "apps", "daemonsets", "daemonsets/status"),
    _rule(READ, "coordination.k8s.io", "leases"),
    _rule(READ, "scheduling.k8s.io", "priorityclasses"),
)  # fmt: skip

_OPERATE = (
    *_LOOK,
    _rule(WRITE, "", "pods", "configmaps", "events"),
    _rule(frozenset(("create",)), "", "pods/eviction", "namespaces"),
    # Cordon, label and taint, but neither join nor remove machines.
    _rule(frozenset(("update", "patch")), "", "nodes"),
    _rule(WRITE, "batch", "jobs"),
    _rule(WRITE, "apps", "daemonsets"),
    _rule(READ, "policy", "poddisruptionbudgets"),
)

_ROLES: Mapping[str, tuple[Rule, ...]] = {
    "admin": (Rule(frozenset((EVERYTHING,)), frozenset((EVERYTHING,)), frozenset((EVERYTHING,))),),
    "operator": _OPERATE,
    "viewer": _LOOK,
}

# What every identity may: ask what itself may, and read what is not a resource.
SELF_RULES = (
    _rule(frozenset(("create",)), "authentication.k8s.io", "selfsubjectreviews"),
    _rule(frozenset(("create",)), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
)
OPEN_PATHS = (
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
    "/version/",
)  # fmt: skip


def _path_is_open(path: str) -> bool:
    return any(path == known or (known.endswith("*") and path.startswith(known[:-1])) for known in OPEN_PATHS)


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody whose token was recognised."""

    role: str
    user: str
    groups: tuple[str, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What this identity may."""
        return (*SELF_RULES, *_ROLES[self.role])

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Return whether the identity may do ``verb`` on ``resource`` (with ``/subresource``) of ``group``."""
        return any(rule.covers(verb, group, resource) for rule in self.rules)

    def may_path(self, verb: str, path: str) -> bool:
        """Return whether the identity may do ``verb`` (get, head, post ...) on a path that is no resource."""
        return self.role == "admin" or (verb in ("get", "head") and _path_is_open(path))

    def check_path(self, verb: str, path: str) -> None:
        """Raise 403 unless the identity may."""
        if not self.may_path(verb, path):
            raise ApiError(403, "Forbidden", f'forbidden: User "{self.user}" cannot {verb} path "{path}"')

    def check(self, verb: str, group: str, resource: str, namespace: str, name: str) -> None:
        """Raise 403 unless the identity may."""
        if self.may(verb, group, resource):
            return
        plural = resource.partition("/")[0]
        full = f"{plural}.{group}" if group else plural
        what = f'{full} "{name}"' if name else full
        # A namespace itself is asked for "in" itself.
        namespace = namespace or (name if plural == "namespaces" else "")
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        details: dict[str, str] = {"name": name} if name else {}
        if group:
            details["group"] = group
        details["kind"] = plural
        raise ApiError(
            403,
            "Forbidden",
            f'{what} is forbidden: User "{self.user}" cannot {verb} resource "{resource}" in API group '
            f'"{group}" {where}',
            details=details,
        )


_IDENTITIES = (
    Identity("admin", "kubernetes-admin", ("system:masters", "system:authenticated")),
    Identity("operator", "gpu-operator", ("gpu-operators", "system:authenticated")),
    Identity("viewer", "gpu-viewer", ("gpu-viewers", "system:authenticated")),
)


class Tokens:
    """The tokens of the identities, by role; made at the first start and kept in ``<directory>/tokens.json``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "tokens.json"
        self.by_role: dict[str, str] = {}

    def ensure(self) -> None:
        """Read the tokens, making those that are missing."""
        if self._path.exists():
            self.by_role = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        missing = [identity.role for identity in _IDENTITIES if not self.by_role.get(identity.role)]
        for role in missing:
            self.by_role[role] = secrets.token_urlsafe(32)
        if missing:
            write_atomically(self._path, msgspec.json.encode(self.by_role))

    def identify(self, authorization: str) -> Identity:
        """Return who sends this Authorization header; 401 when nobody does."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            for identity in _IDENTITIES:
                wanted = self.by_role[identity.role]
                if hmac.compare_digest(token.strip().encode(), wanted.encode()):
                    return identity
        raise ApiError(401, "Unauthorized", "Unauthorized")
