"""POST, PUT, PATCH and DELETE on objects: checks what the request says of itself, then writes through the store."""

from __future__ import annotations

from typing import Any

from gpupools.simulator import eventviews, ownership, patches
from gpupools.simulator.errors import (
    ApiError,
    Cause,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    refuse_options,
)
from gpupools.simulator.journal import Stored
from gpupools.simulator.kinds import KINDS, Kind, Object
from gpupools.simulator.presenting import Presenter
from gpupools.simulator.selectors import selection
from gpupools.simulator.store import Store
from gpupools.simulator.unknownfields import Headers, check_fields, check_shape
from gpupools.simulator.values import copy_of, stamp
from gpupools.simulator.wire import Request, Response, Target, encode, unsupported_media_type

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# Jobs are older than garbage collection, and still behave so.
_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_POLICIES = ("Foreground", "Background", "Orphan")
# Namespaces that the API server keeps whatever anybody says.
_IMMORTAL = frozenset(("default", "kube-public", "kube-system"))
# Kinds that a PUT creates where there is none, and kinds that are never replaced without a resourceVersion.
_MADE_BY_PUT = frozenset(("Event", "Lease"))
_NEVER_BLIND = frozenset(("Lease",))
# Where the real server says that its kinds are registered.
_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"

# A generated name that is taken is made anew this often, as the real server does.
GENERATED_NAME_ATTEMPTS = 8


class Writer:
    """Writes of one store, as HTTP requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, request: Request, target: Target) -> Response:
        """Create the object in the body; generated names are tried again when taken."""
        request.check_options()
        presenter = Presenter(request, target, self._store.now)
        obj = self._body(request, target)
        mode = request.query.get("fieldValidation", "")
        headers = check_fields(target.row, obj, mode, what="create", body=request.body)
        if obj["metadata"].get("resourceVersion", "") not in ("", "0"):
            # Found out by the real server's storage, which gives no reason.
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        generated = not obj["metadata"].get("name") and obj["metadata"].get("generateName")
        for attempt in range(GENERATED_NAME_ATTEMPTS):
            try:
                stored = self._store.create_stored(
                    target.row.kind, obj, manager=request.manager, dry_run=request.dry_run
                )
            except ApiError as error:
                if error.reason == "AlreadyExists" and generated and attempt + 1 < GENERATED_NAME_ATTEMPTS:
                    continue
                raise
            return Response(presenter.one(stored), 201, headers=headers)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def update(self, request: Request, target: Target) -> Response:
        """Replace an object, its status, or a namespace's finalizers."""
        request.check_options()
        presenter = Presenter(request, target, self._store.now)
        obj = self._body(request, target)
        mode = request.query.get("fieldValidation", "")
        headers = check_fields(target.row, obj, mode, what="update", body=request.body)
        kind, meta = target.row.kind, obj["metadata"]
        if kind in _MADE_BY_PUT and not self._store.peek(kind, target.namespace, target.name):
            stored = self._store.create_stored(kind, obj, manager=request.manager, dry_run=request.dry_run)
            return Response(presenter.one(stored), 201, headers=headers)
        if kind in _NEVER_BLIND and not meta.get("resourceVersion"):
            cause = Cause(
                "FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
            )
            raise invalid(target.row, target.name, [cause])
        stored = self._update(request, target, obj, request.manager)
        return Response(presenter.one(stored), headers=headers)

    def patch(self, request: Request, target: Target) -> Response:
        """Patch an object in one of the four ways; server-side apply creates what is not there."""
        request.check_options()
        presenter = Presenter(request, target, self._store.now)
        media = request.content_type()
        if media == APPLY_PATCH:
            return self._apply(request, target, presenter)
        if "force" in request.query:
            said = "Forbidden: may not be specified for non-apply patch"
            refuse_options("PatchOptions", [Cause("FieldValueForbidden", "force", said)])
        patch = self._patch_body(request, media)
        stored = self._store.stored(target.row.kind, target.namespace, target.name)
        live = self._viewed(target, stored.object)
        if media == JSON_PATCH:
            patched = patches.json_patch(live, patch)
        elif media == MERGE_PATCH:
            patched = copy_of(patches.merge_patch(live, patch))
        else:
            patched = patches.strategic_merge(live, patch)
        if target.group == "events.k8s.io":
            patched = eventviews.to_core(patched)
        if not isinstance(patched.get("metadata"), dict):
            raise bad_request("the patched object has no metadata")
        mode = request.query.get("fieldValidation", "")
        shown = patches.go_text(patch) if media == STRATEGIC_PATCH else encode(patched).decode()
        headers = check_fields(target.row, patched, mode, what="patch", patch=shown, body=request.body)
        self._check_type(target, patched)
        self._check_identity(target, patched, named=True)
        return Response(presenter.one(self._update(request, target, patched, request.manager)), headers=headers)

    def _patch_body(self, request: Request, media: str) -> Any:
        if media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
            raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH))
        patch = request.decoded()
        if media != JSON_PATCH and not isinstance(patch, dict):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
            )
        return patch

    def _apply(self, request: Request, target: Target, presenter: Presenter) -> Response:
        if not request.query.get("fieldManager"):
            said = "Required value: is required for apply patch"
            refuse_options("PatchOptions", [Cause("FieldValueRequired", "fieldManager", said)])
        applied = copy_of(request.object())
        meta = applied.get("metadata")
        if not isinstance(meta, dict):
            raise bad_request("error decoding YAML: Object 'metadata' is missing")
        if applied.get("kind") != target.row.kind or applied.get("apiVersion") != target.row.api_version:
            raise bad_request(
                f"the apiVersion and kind of the object ({applied.get('apiVersion')}, {applied.get('kind')}) do not "
                f"match the URL ({target.row.api_version}, {target.row.kind})"
            )
        if meta.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        self._check_identity(target, applied)
        meta.setdefault("name", target.name)
        if target.namespace:
            meta.setdefault("namespace", target.namespace)
        headers = check_fields(target.row, applied, request.query.get("fieldValidation", ""), what="apply")
        manager, force = request.manager, request.flag("force")
        moment = stamp(self._store.now())
        found = self._store.peek(target.row.kind, target.namespace, target.name)
        if found is None and target.subresource:
            raise not_found(target.row, target.name)
        if found is None and meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise conflict(target.row, target.name, why)
        if (
            found is not None
            and meta.get("resourceVersion", found["metadata"]["resourceVersion"])
            != (found["metadata"]["resourceVersion"])
        ):
            raise conflict(target.row, target.name)
        applied = self._without_foreign_parts(target, applied)
        merged = ownership.apply(
            found, applied, manager=manager, subresource=target.subresource, force=force, moment=moment
        )
        if found is None:
            stored = self._store.create_stored(target.row.kind, merged, dry_run=request.dry_run)
            return Response(presenter.one(stored), 201, headers=headers)
        stored = self._update(request, target, merged, "")
        return Response(presenter.one(stored), headers=headers)

    @staticmethod
    def _without_foreign_parts(target: Target, applied: Object) -> Object:
        """Drop what this endpoint does not write, so that nobody owns it by applying it here."""
        if target.subresource == "status":
            return {key: value for key, value in applied.items() if key in ("apiVersion", "kind", "metadata", "status")}
        if target.row.has_status:
            return {key: value for key, value in applied.items() if key != "status"}
        return applied

    def delete(self, request: Request, target: Target) -> Response:
        """Delete one object: 200 with a Status when it is gone, with the object while it waits."""
        request.check_options()
        options = _delete_options(request)
        preconditions = options.get("preconditions") or {}
        if target.row.kind == "Namespace" and target.name in _IMMORTAL:
            raise forbidden(target.row, target.name, "this namespace may not be deleted")
        self._check_preconditions(target, preconditions)
        propagation, headers = _propagation(target.row, options)
        last, gone = self._store.delete(
            target.row.kind,
            target.namespace,
            target.name,
            grace_seconds=options.get("gracePeriodSeconds"),
            propagation=propagation,
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            dry_run=_dry(request, options),
        )
        if gone and target.row.kind not in ("Pod", "ServiceAccount"):
            return Response(encode(_success(target, last)), headers=headers)
        presenter = Presenter(request, target, self._store.now)
        # "Not yet": said only to those who asked in the old way for dependents to go too.
        status = 202 if not gone and options.get("orphanDependents") is False else 200
        return Response(presenter.one(Stored(target.row, last)), status, headers=headers)

    def _check_preconditions(self, target: Target, preconditions: Object) -> None:
        """Raise 409 when the object is not the one that was meant; the store looks again, with the same result."""
        meta = self._store.stored(target.row.kind, target.namespace, target.name).object["metadata"]
        for field, what, hint in (
            ("uid", "UID", "The object might have been deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", "The object might have been modified"),
        ):
            wanted = preconditions.get(field)
            if wanted and wanted != meta[field]:
                raise ApiError(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {target.row.kind_and_group} "{target.name}": the {what} in the '
                    f"precondition ({wanted}) does not match the {what} in record ({meta[field]}). {hint}",
                    details={
                        **({"group": target.row.group} if target.row.group else {}),
                        "name": target.name,
                        "kind": target.row.kind,
                    },
                )

    def delete_collection(self, request: Request, target: Target) -> Response:
        """Delete everything selected; answer with the list of what was."""
        request.check_options()
        options = _delete_options(request)
        presenter = Presenter(request, target, self._store.now)
        test = selection(target.row, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        deleted: list[Stored] = []
        propagation, headers = _propagation(target.row, options)
        for stored in self._store.all_stored(target.row.kind, target.namespace or None):
            if test is not None and not test(stored.object):
                continue
            meta = stored.object["metadata"]
            last, _ = self._store.delete(
                target.row.kind,
                meta.get("namespace", ""),
                meta["name"],
                grace_seconds=options.get("gracePeriodSeconds"),
                propagation=propagation,
                dry_run=_dry(request, options),
            )
            deleted.append(Stored(target.row, last))
        body = presenter.many(deleted, {"resourceVersion": str(self._store.version)})
        return Response(body, headers=headers)

    def _update(self, request: Request, target: Target, obj: Object, manager: str) -> Stored:
        return self._store.update_stored(
            target.row.kind, obj, subresource=target.subresource, manager=manager, dry_run=request.dry_run
        )

    def _viewed(self, target: Target, obj: Object) -> Object:
        return eventviews.to_events_v1(obj) if target.group == "events.k8s.io" else obj

    def _body(self, request: Request, target: Target) -> Object:
        """Return the object of a create or update, checked against the URL."""
        obj = request.object()
        if target.group == "events.k8s.io" and target.row.kind == "Event":
            obj = eventviews.to_core(obj)
        self._check_type(target, obj)
        meta = obj.setdefault("metadata", {})
        if not isinstance(meta, dict):
            raise bad_request("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")
        self._check_identity(target, obj, named=True)
        obj = copy_of(obj)
        if target.row.namespaced:
            obj["metadata"].setdefault("namespace", target.namespace)
            if not obj["metadata"]["namespace"]:
                raise bad_request("an empty namespace may not be set during creation")
        return obj

    def _check_identity(self, target: Target, obj: Object, *, named: bool = False) -> None:
        """Check what an object says of itself against the URL; ``named``: it has to say its name."""
        meta = obj.get("metadata") or {}
        if meta.get("namespace") and target.row.namespaced and meta["namespace"] != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if target.name and not meta.get("name") and named:
            raise bad_request(
                f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
            )
        if target.name and meta.get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
            )

    @staticmethod
    def _check_type(target: Target, obj: Object) -> None:
        """Check what a body says it is; it need not say anything."""
        row = target.row
        kind, api_version = obj.get("kind") or row.kind, obj.get("apiVersion") or row.api_version
        if (kind, api_version) == (row.kind, row.api_version):
            return
        if any((kind, api_version) == (known.kind, known.api_version) for known in KINDS.values()):
            if api_version != row.api_version:
                raise bad_request(
                    f"the API version in the data ({api_version}) does not match the expected API version "
                    f"({row.api_version})"
                )
            raise bad_request(f"the kind in the data ({kind}) does not match the expected kind ({row.kind})")
        raise bad_request(
            f'{kind} in version "{str(api_version).rpartition("/")[2]}" cannot be handled as a {row.kind}: no kind '
            f'"{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"'
        )


def _delete_options(request: Request) -> Object:
    """Return DeleteOptions of the body, or what the query says in their stead."""
    options: Object = check_shape("DeleteOptions", request.object()) if request.body else {}
    grace = request.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if request.query.get("propagationPolicy"):
        options["propagationPolicy"] = request.query["propagationPolicy"]
    return options


def _dry(request: Request, options: Object) -> bool:
    return request.dry_run or options.get("dryRun") == ["All"]


def _propagation(row: Kind, options: Object) -> tuple[str, Headers]:
    """Return what becomes of dependents, and a warning where that surprises many; 422 for a policy that is none."""
    policy, causes = options.get("propagationPolicy"), []
    if options.get("orphanDependents") is not None and policy is not None:
        said = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        causes.append(Cause("FieldValueInvalid", "propagationPolicy", said))
    if policy is not None and policy not in _POLICIES:
        words = ", ".join(f'"{word}"' for word in (*_POLICIES, "nil"))
        said = f'Unsupported value: "{policy}": supported values: {words}'
        causes.append(Cause("FieldValueNotSupported", "propagationPolicy", said))
    if options.get("dryRun") not in (None, [], ["All"]):
        said = f'Unsupported value: {encode(options["dryRun"]).decode()}: supported values: "All"'
        causes.append(Cause("FieldValueNotSupported", "dryRun", said))
    refuse_options("DeleteOptions", causes)
    if options.get("orphanDependents") is not None:
        return "Orphan" if options["orphanDependents"] else "Background", ()
    if policy is None and row.kind == "Job":
        return "Orphan", (("warning", f'299 - "{_PODS_STAY}"'),)
    return str(policy or ""), ()


def _success(target: Target, last: Object) -> Object:
    details: Object = {"name": target.name}
    if target.row.group:
        details["group"] = target.row.group
    details |= {"kind": target.row.plural, "uid": last["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
