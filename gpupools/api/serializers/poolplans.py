"""Node pools as they would be, on the wire: an edit or a new pool before it is saved, and what to know of a pool."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from gpupools.api.serializers.work import DriftOut
from gpupools.services.pooladvice import NewPool
from gpupools.services.poolpreviews import EditPreview


class AdviceOut(serializers.Serializer[None]):
    """Something to know although nothing forbids it, with a stable code."""

    code = serializers.CharField()
    message = serializers.CharField()


class AdviceList(serializers.Serializer[None]):
    """Everything to know of one pool; empty where all is well."""

    results = AdviceOut(many=True)


class PoolFoundOut(serializers.Serializer[None]):
    """A pool's nodes, counted, beside what it wants. Null where nothing of the cluster is known yet."""

    taken_at = serializers.DateTimeField(allow_null=True)
    mode_wanted = serializers.CharField(help_text="Empty: none was declared.")
    nodes_wanted = serializers.IntegerField()
    nodes = serializers.IntegerField(allow_null=True)
    nodes_ready = serializers.IntegerField(allow_null=True)
    modes = serializers.DictField(child=serializers.IntegerField(), allow_null=True, help_text="GPU nodes by mode.")
    card_models = serializers.DictField(child=serializers.IntegerField(), allow_null=True)
    drifting = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="Nodes that differ.")
    changing = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Nodes that a mode change under way is writing."
    )


class KeyWriteOut(serializers.Serializer[None]):
    """One label, or one taint (``taint <key>:<effect>``), before and after; null: it is not there."""

    key = serializers.CharField()
    kind = serializers.CharField(help_text="added, changed or removed")
    old = serializers.CharField(allow_null=True)
    new = serializers.CharField(allow_null=True)


class NodePreviewOut(serializers.Serializer[None]):
    """One node: what would be written on it, or, without ``update_nodes``, in what it would differ; none: it stays."""

    node = serializers.CharField()
    writes = KeyWriteOut(many=True)
    drift = DriftOut(many=True)
    changes_mode = serializers.BooleanField(help_text="Saving is refused (would-change-mode): ask for a mode change.")


class PodName(serializers.Serializer[None]):
    """A pod; both empty where the caller may not see its namespace."""

    namespace = serializers.CharField()
    pod = serializers.CharField()


class EditPreviewOut(serializers.Serializer[None]):
    """What an edit would do to a pool and to each of its nodes. Nothing was written."""

    version = serializers.IntegerField(source="pool.version", help_text="The pool's, for If-Match of the edit.")
    update_nodes = serializers.BooleanField(help_text="Whether nodes that exist would be written to.")
    pool = KeyWriteOut(many=True, source="pool_writes")
    nodes = NodePreviewOut(many=True)
    touched = serializers.SerializerMethodField(help_text="How many nodes get or lose something, or would differ.")
    untouched = serializers.SerializerMethodField(help_text="How many nodes stay as they are.")
    would_change_mode = serializers.ListField(child=serializers.CharField(), source="refused")
    evicted_pods = serializers.SerializerMethodField()
    advice = AdviceOut(many=True)

    def get_touched(self, preview: EditPreview) -> int:
        """Count the nodes with a write."""
        return len(preview.touched)

    def get_untouched(self, preview: EditPreview) -> int:
        """Count the nodes without one."""
        return len(preview.nodes) - len(preview.touched)

    def get_evicted_pods(self, preview: EditPreview) -> list[dict[str, str]]:
        """Name the pods that a new NoExecute taint ends."""
        return [{"namespace": namespace, "pod": pod} for namespace, pod in preview.evicted]


class GroupOut(serializers.Serializer[None]):
    """Nodes to which the same happens."""

    nodes = serializers.ListField(child=serializers.CharField())
    writes = KeyWriteOut(many=True)


class NewPoolOut(serializers.Serializer[None]):
    """A node pool as it would be made, checked by the rules of making it. Nothing was made."""

    name = serializers.CharField(source="spec.name")
    labels = serializers.DictField(child=serializers.CharField(), help_text="All labels, the mode's among them.")
    auto_scaling = serializers.SerializerMethodField()
    groups = GroupOut(many=True, help_text="The nodes named for it, by what happens to them.")
    would_change_mode = serializers.ListField(
        child=serializers.CharField(), source="changing", help_text="Nodes for which a mode change is asked for."
    )
    advice = AdviceOut(many=True)

    def get_auto_scaling(self, new: NewPool) -> dict[str, Any]:
        """Return the bounds with the type that ACK will keep; empty where it is off."""
        scaling = new.spec.auto_scaling
        if scaling is None or not scaling.enable:
            return {}
        return {
            "enable": True,
            "min_instances": scaling.min_instances,
            "max_instances": scaling.max_instances,
            "type": scaling.kind,
        }


class InstanceTypeOut(serializers.Serializer[None]):
    """An ECS instance type with GPUs that the console knows; any other may be given too."""

    name = serializers.CharField()
    family = serializers.CharField()
    card = serializers.CharField()
    cards = serializers.IntegerField()
    card_memory_mib = serializers.IntegerField()
    card_memory_units = serializers.IntegerField(help_text="Of aliyun.com/gpu-mem in the default unit of 1 GiB")
    vcpus = serializers.IntegerField()
    memory_gib = serializers.IntegerField()
    purpose = serializers.CharField()


class InstanceTypeList(serializers.Serializer[None]):
    """All instance types that the console knows."""

    results = InstanceTypeOut(many=True)


class ComputePolicyOut(serializers.Serializer[None]):
    """One of the ways in which cGPU shares compute time."""

    value = serializers.IntegerField()
    name = serializers.CharField()
    text = serializers.CharField()


class CgpuPolicyOut(serializers.Serializer[None]):
    """How cGPU shares compute time in a cluster: one policy for all of it, which counts after a restart."""

    policy = ComputePolicyOut(allow_null=True, help_text="Null: unknown, for the reason given.")
    reason = serializers.CharField()
    policies = ComputePolicyOut(many=True)
