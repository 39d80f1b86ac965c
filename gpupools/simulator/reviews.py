"""Questions about oneself: SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview (``kubectl auth``)."""

from __future__ import annotations

from gpupools.simulator.auth import Identity
from gpupools.simulator.kinds import Object
from gpupools.simulator.wire import Request, Response, encode

_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def answer(path: str, request: Request, identity: Identity) -> Response | None:
    """Answer a review, None when the path is not one."""
    if path == _ACCESS:
        return _created({**request.object(), "status": _access(request.object(), identity)})
    if path == _RULES:
        return _created({**request.object(), "status": _rules(identity)})
    if path == _WHO:
        user = {"username": identity.user, "uid": identity.role, "groups": list(identity.groups)}
        return _created({**request.object(), "status": {"userInfo": user}})
    return None


def _created(review: Object) -> Response:
    review.setdefault("metadata", {"creationTimestamp": None})
    return Response(encode(review), 201)


def _access(review: Object, identity: Identity) -> Object:
    spec = review.get("spec") or {}
    asked = spec.get("resourceAttributes")
    if asked is None:
        # Every identity may read what is not a resource: health, version, discovery.
        verb = (spec.get("nonResourceAttributes") or {}).get("verb", "")
        allowed = identity.role == "admin" or verb in ("get", "head")
        return {"allowed": allowed}
    resource = asked.get("resource", "")
    if asked.get("subresource"):
        resource = f"{resource}/{asked['subresource']}"
    allowed = identity.may(asked.get("verb", ""), asked.get("group", ""), resource)
    if not allowed:
        return {"allowed": False}
    return {"allowed": True, "reason": f'RBAC: allowed by the role "{identity.role}" of the embedded cluster'}


def _rules(identity: Identity) -> Object:
    rules = [
        {
            "verbs": sorted(rule.verbs),
            "apiGroups": sorted(rule.groups),
            "resources": sorted(rule.resources),
        }
        for rule in identity.rules
    ]
    paths = {"verbs": ["get"], "nonResourceURLs": ["/api", "/apis", "/healthz", "/livez", "/readyz", "/version"]}
    return {"resourceRules": rules, "nonResourceRules": [paths], "incomplete": False}
