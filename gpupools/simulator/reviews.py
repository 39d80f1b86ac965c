"""Questions about oneself: SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview (``kubectl auth``)."""

from __future__ import annotations

from gpupools.simulator.auth import OPEN_PATHS, Identity
from gpupools.simulator.errors import ApiError, Cause, bad_request
from gpupools.simulator.kinds import Object
from gpupools.simulator.unknownfields import check_shape
from gpupools.simulator.wire import Request, Response, encode

_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def answer(path: str, request: Request, identity: Identity) -> Response | None:
    """Answer a review, None when the path is not one."""
    if path == _ACCESS:
        review = check_shape("SelfSubjectAccessReview", request.object())
        return _created({**review, "status": _access(review, identity)})
    if path == _RULES:
        review = check_shape("SelfSubjectRulesReview", request.object())
        return _created({**review, "status": _rules(review, identity)})
    if path == _WHO:
        user = {"username": identity.user, "uid": identity.role, "groups": list(identity.groups)}
        review = check_shape("SelfSubjectReview", request.object())
        return _created({**review, "status": {"userInfo": user}})
    return None


def _created(review: Object) -> Response:
    review.setdefault("metadata", {"creationTimestamp": None})
    return Response(encode(review), 201)


def _access(review: Object, identity: Identity) -> Object:
    spec = review.get("spec") or {}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (asked is None) == (path is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        if asked is not None:
            text = "cannot be specified in combination with nonResourceAttributes"
        raise ApiError(
            422,
            "Invalid",
            f'SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: '
            f"{encode(path).decode()}: {text}",
            [Cause("FieldValueInvalid", "spec.resourceAttributes", f"Invalid value: {encode(path).decode()}: {text}")],
            details={"group": "authorization.k8s.io", "kind": "SelfSubjectAccessReview"},
        )
    if asked is None:
        return {"allowed": identity.may_path(path.get("verb", ""), path.get("path", ""))}
    resource = asked.get("resource", "")
    if asked.get("subresource"):
        resource = f"{resource}/{asked['subresource']}"
    allowed = identity.may(asked.get("verb", ""), asked.get("group", ""), resource)
    if not allowed:
        return {"allowed": False}
    return {"allowed": True, "reason": f'RBAC: allowed by the role "{identity.role}" of the embedded cluster'}


def _rules(review: Object, identity: Identity) -> Object:
    if not (review.get("spec") or {}).get("namespace"):
        raise bad_request("no namespace on request")
    rules = [
        {
            "verbs": sorted(rule.verbs),
            "apiGroups": sorted(rule.groups),
            "resources": sorted(rule.resources),
        }
        for rule in identity.rules
    ]
    paths = [{"verbs": ["get"], "nonResourceURLs": list(OPEN_PATHS)}]
    if identity.role == "admin":
        paths.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    return {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
