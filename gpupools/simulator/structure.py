"""How objects merge: which lists are keyed and by what, and which lists and maps are one value.

The tables cover the kinds that are served, by field name; the names do not clash among them.
"""

from __future__ import annotations

from collections.abc import Mapping

# Strategic merge patch: lists of objects that merge by a key. All others (tolerations, taints, args) are replaced.
PATCH_KEYS: Mapping[str, str] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}

# Lists of words that merge as sets, in patches and in apply.
SETS = frozenset(("finalizers", "podCIDRs"))

# Server-side apply: lists whose items are owned one by one, by these keys; a key that is left out has a default.
APPLY_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "claims": ("name",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "protocol"),
    "resourceClaimStatuses": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}

KEY_DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}

# Maps that are one value to server-side apply: who sets one, sets all of it.
ATOMIC_MAPS = frozenset(
    (
        "configMapKeyRef",
        "fieldRef",
        "involvedObject",
        "labelSelector",
        "namespaceSelector",
        "nodeSelector",
        "related",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "resourceFieldRef",
        "secretKeyRef",
        "selector",
    )
)

# Keyed lists whose items are one value each: who sets a field of an item, sets the item.
ATOMIC_ITEMS = frozenset(("imagePullSecrets", "ownerReferences", "secrets"))
