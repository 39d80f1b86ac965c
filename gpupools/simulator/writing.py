"""POST, PUT, PATCH and DELETE on objects: checks what the request says of itself, then writes through the store."""

from __future__ import annotations

from typing import Any

from gpupools.simulator import eventviews, ownership, patches
from gpupools.simulator.errors import ApiError, Cause, bad_request, conflict, not_found
from gpupools.simulator.journal import Stored
from gpupools.simulator.kinds import Object
from gpupools.simulator.presenting import Presenter
from gpupools.simulator.selectors import selection
from gpupools.simulator.store import Store
from gpupools.simulator.unknownfields import check_fields
from gpupools.simulator.values import copy_of, stamp
from gpupools.simulator.wire import Request, Response, Target, encode

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# A generated name that is taken is made anew this often, as the real server does.
GENERATED_NAME_ATTEMPTS = 8


class Writer:
    """Writes of one store, as HTTP requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, request: Request, target: Target) -> Response:
        """Create the object in the body; generated names are tried again when taken."""
        presenter = Presenter(request, target, self._store.now)
        obj = self._body(request, target)
        headers = check_fields(target.row, obj, request.query.get("fieldValidation", ""), what="create")
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
        presenter = Presenter(request, target, self._store.now)
        obj = self._body(request, target)
        headers = check_fields(target.row, obj, request.query.get("fieldValidation", ""), what="update")
        stored = self._update(request, target, obj, request.manager)
        return Response(presenter.one(stored), headers=headers)

    def patch(self, request: Request, target: Target) -> Response:
        """Patch an object in one of the four ways; server-side apply creates what is not there."""
        presenter = Presenter(request, target, self._store.now)
        media = request.content_type()
        if media == APPLY_PATCH:
            return self._apply(request, target, presenter)
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
        headers = check_fields(target.row, patched, mode, what="patch", patch=patch)
        self._check_identity(target, patched, named=True)
        return Response(presenter.one(self._update(request, target, patched, request.manager)), headers=headers)

    def _patch_body(self, request: Request, media: str) -> Any:
        if media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
            raise ApiError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}, {APPLY_PATCH}",
            )
        patch = request.decoded()
        if media != JSON_PATCH and not isinstance(patch, dict):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
            )
        return patch

    def _apply(self, request: Request, target: Target, presenter: Presenter) -> Response:
        if not request.query.get("fieldManager"):
            raise _invalid_patch_option("fieldManager", "Required value: is required for apply patch")
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
            raise conflict(target.row, target.name, "uid mismatch: a uid was given, but nothing exists")
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
        options = _delete_options(request)
        preconditions = options.get("preconditions") or {}
        last, gone = self._store.delete(
            target.row.kind,
            target.namespace,
            target.name,
            grace_seconds=options.get("gracePeriodSeconds"),
            propagation=_propagation(options),
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            dry_run=request.dry_run or options.get("dryRun") == ["All"],
        )
        if gone and target.row.kind not in ("Pod", "ServiceAccount"):
            return Response(encode(_success(target, last)))
        presenter = Presenter(request, target, self._store.now)
        return Response(presenter.one(Stored(target.row, last)))

    def delete_collection(self, request: Request, target: Target) -> Response:
        """Delete everything selected; answer with the list of what was."""
        options = _delete_options(request)
        presenter = Presenter(request, target, self._store.now)
        test = selection(target.row, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        deleted: list[Stored] = []
        for stored in self._store.all_stored(target.row.kind, target.namespace or None):
            if test is not None and not test(stored.object):
                continue
            meta = stored.object["metadata"]
            last, _ = self._store.delete(
                target.row.kind,
                meta.get("namespace", ""),
                meta["name"],
                grace_seconds=options.get("gracePeriodSeconds"),
                propagation=_propagation(options),
                dry_run=request.dry_run,
            )
            deleted.append(Stored(target.row, last))
        return Response(presenter.many(deleted, {"resourceVersion": str(self._store.version)}))

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
        if obj.get("kind", target.row.kind) != target.row.kind or (
            obj.get("apiVersion", target.row.api_version) != target.row.api_version
        ):
            raise bad_request(
                f'{obj.get("kind", "")} in version "{obj.get("apiVersion", "")}" cannot be handled as a '
                f'{target.row.kind}: no kind "{obj.get("kind", "")}" is registered for version '
                f'"{obj.get("apiVersion", "")}"'
            )
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
        if target.name and not meta.get("name") and named:
            raise bad_request("the name of the object (based on URL) was undeterminable: name must be provided")
        if target.name and meta.get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
            )
        if meta.get("namespace") and target.row.namespaced and meta["namespace"] != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _invalid_patch_option(field: str, message: str) -> ApiError:
    return ApiError(
        422,
        "Invalid",
        f'PatchOptions.meta.k8s.io "" is invalid: {field}: {message}',
        [Cause("FieldValueRequired", field, message)],
        details={"group": "meta.k8s.io", "kind": "PatchOptions"},
    )


def _delete_options(request: Request) -> Object:
    """Return DeleteOptions of the body, or what the query says in their stead."""
    options: Object = dict(request.object()) if request.body else {}
    grace = request.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if request.query.get("propagationPolicy"):
        options["propagationPolicy"] = request.query["propagationPolicy"]
    return options


def _propagation(options: Object) -> str:
    policy = options.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and not policy:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy not in ("", "Background", "Foreground", "Orphan"):
        message = f'Unsupported value: "{policy}": supported values: "Background", "Foreground", "Orphan", "nil"'
        raise ApiError(
            422,
            "Invalid",
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {message}',
            [Cause("FieldValueNotSupported", "propagationPolicy", message)],
            details={"group": "meta.k8s.io", "kind": "DeleteOptions"},
        )
    return str(policy)


def _success(target: Target, last: Object) -> Object:
    details: Object = {"name": target.name}
    if target.row.group:
        details["group"] = target.row.group
    details |= {"kind": target.row.plural, "uid": last["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
