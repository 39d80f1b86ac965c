"""Clusters, components and node pools on the wire. Credentials go in and never come out."""

from __future__ import annotations

from rest_framework import serializers

from gpupools.models import Cluster, NodePool


class AbilityOut(serializers.Serializer[None]):
    """Whether a function of the console works with the cluster's identity, and which rights it lacks."""

    code = serializers.CharField()
    title = serializers.CharField()
    allowed = serializers.BooleanField()
    missing = serializers.ListField(child=serializers.CharField())


class ClusterOut(serializers.ModelSerializer[Cluster]):
    """A connected cluster. ``abilities`` is empty before the first probe, and where the server does not say."""

    edition = serializers.CharField(read_only=True, help_text="Pro, standard or another kind of ACK's; empty elsewhere")
    abilities = AbilityOut(many=True, read_only=True)

    class Meta:
        model = Cluster
        fields = [
            "name", "provider", "is_embedded", "server", "context", "ack_cluster_id", "region", "spec", "edition",
            "version", "in_cluster", "abilities", "state", "last_error", "last_seen_at", "unreachable_since",
            "created_at",
        ]  # fmt: skip


class AckAccessIn(serializers.Serializer[None]):
    """How to reach the ACK OpenAPI."""

    cluster_id = serializers.CharField(max_length=64)
    region = serializers.CharField(max_length=64)
    access_key_id = serializers.CharField(max_length=128, write_only=True, required=False, allow_blank=True, default="")
    access_key_secret = serializers.CharField(
        max_length=256, write_only=True, required=False, allow_blank=True, default=""
    )
    ram_role = serializers.CharField(
        max_length=64, required=False, allow_blank=True, default="",
        help_text="Instead of an AccessKey: the RAM role of the machine that the console runs on.",
    )  # fmt: skip
    endpoint = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")
    protocol = serializers.ChoiceField(choices=["https", "http"], default="https")


class CredentialsIn(serializers.Serializer[None]):
    """What reaches a cluster. On ``ack`` the kubeconfig may be left out: ACK gives one."""

    kubeconfig = serializers.CharField(
        max_length=256 * 1024, write_only=True, required=False, allow_blank=True, default="", trim_whitespace=False
    )
    context = serializers.CharField(max_length=253, required=False, allow_blank=True, default="")
    ack = AckAccessIn(required=False, allow_null=True, default=None)
    in_cluster = serializers.BooleanField(
        default=False, help_text="By the service account of the console's own pod; nothing else is given then."
    )


class ClusterIn(CredentialsIn):
    """What connects a cluster."""

    name = serializers.CharField(max_length=63)
    provider = serializers.CharField(max_length=16)


class ReasonIn(serializers.Serializer[None]):
    """Why something is done."""

    reason = serializers.CharField(max_length=2000)


class ComponentOut(serializers.Serializer[None]):
    """A component of the AI suite in one cluster."""

    name = serializers.CharField()
    title = serializers.CharField()
    purpose = serializers.CharField()
    without_it = serializers.CharField()
    state = serializers.CharField(help_text="absent, installing, installed, degraded, removing, failed or unknown")
    version = serializers.CharField()
    desired = serializers.IntegerField(allow_null=True)
    ready = serializers.IntegerField(allow_null=True)
    found_by = serializers.CharField()
    detail = serializers.CharField()
    checked_at = serializers.DateTimeField(allow_null=True)
    modes = serializers.ListField(child=serializers.CharField())
    pools = serializers.ListField(child=serializers.CharField())
    restart_kills = serializers.BooleanField(help_text="Whether its restart ends the pods that compute through it.")
    busy = serializers.CharField(help_text="The operation on its way, empty without one.")
    error = serializers.CharField(help_text="What the last operation failed with.")


class InstallIn(serializers.Serializer[None]):
    """How to install a component; one of the two is needed where the add-on API does not know it."""

    image_prefix = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")
    manifests = serializers.CharField(
        max_length=1024 * 1024, required=False, allow_blank=True, default="", trim_whitespace=False,
        help_text="YAML documents of the component, uploaded by an administrator.",
    )  # fmt: skip


class EndingIn(ReasonIn):
    """Why something is done that may end pods, and which: all of them are named by who approves that."""

    approved_pods = serializers.ListField(
        child=serializers.CharField(max_length=320), required=False, default=list, help_text="namespace/name"
    )


class UpgradeIn(EndingIn, InstallIn):
    """How to upgrade or configure a component."""

    version = serializers.CharField(
        max_length=64, required=False, allow_blank=True, default="", help_text="Of the add-on; empty: the newest."
    )
    config = serializers.CharField(
        max_length=16 * 1024, required=False, allow_blank=True, default="", help_text="A JSON object, as text."
    )


class OfferOut(serializers.Serializer[None]):
    """What an upgrade would lead to; empty where the provider offers none."""

    version = serializers.CharField()
    configuration = serializers.CharField()


class ChangeLineOut(serializers.Serializer[None]):
    """One value that would change; empty: it is not there."""

    path = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class RehearsalOut(serializers.Serializer[None]):
    """What applying one object would do."""

    kind = serializers.CharField()
    name = serializers.CharField()
    outcome = serializers.CharField(help_text="created, changed, unchanged or refused")
    lines = ChangeLineOut(many=True)
    problem = serializers.CharField()


class NodeHealthOut(serializers.Serializer[None]):
    """Whether one DaemonSet of a component does its work on one node; ``ok`` null: it is starting."""

    node = serializers.CharField()
    daemonset = serializers.CharField()
    ok = serializers.BooleanField(allow_null=True)
    detail = serializers.CharField()


class ComponentHealthOut(serializers.Serializer[None]):
    """A component node by node, and the pods that end when its own do."""

    results = NodeHealthOut(many=True)
    clients = serializers.ListField(child=serializers.CharField(), help_text="namespace/name")


class TaintField(serializers.Serializer[None]):
    """A taint of a node pool."""

    key = serializers.CharField(max_length=317)
    value = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")
    effect = serializers.CharField(max_length=32, default="NoSchedule")


class SeenOut(serializers.Serializer[None]):
    """What the provider reported last; empty before the first look."""

    state = serializers.CharField(required=False)
    labels = serializers.DictField(child=serializers.CharField(), required=False)
    taints = TaintField(many=True, required=False)
    total_nodes = serializers.IntegerField(required=False)
    healthy_nodes = serializers.IntegerField(required=False)
    failed_nodes = serializers.IntegerField(required=False)


class NodePoolOut(serializers.ModelSerializer[NodePool]):
    """A node pool: wanted state beside what was seen last."""

    cluster = serializers.SlugRelatedField(slug_field="name", read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    taints = TaintField(many=True, read_only=True)
    instance_types = serializers.ListField(child=serializers.CharField(), read_only=True)
    node_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    seen = SeenOut(read_only=True)
    auto_scaling = serializers.DictField(
        read_only=True, help_text="enable, min_instances, max_instances, type; empty where it is off."
    )
    open_change = serializers.SerializerMethodField(help_text="The mode change that holds this pool, if any.")

    class Meta:
        model = NodePool
        fields = [
            "id", "cluster", "name", "pool_id", "mode", "policy", "instance_types", "desired_size",
            "auto_scaling", "cpu_policy", "labels", "taints",
            "node_names", "state", "seen", "error", "synced_at", "created_at", "version", "open_change",
        ]  # fmt: skip

    def get_open_change(self, pool: NodePool) -> int | None:
        """Return the id of the change that holds the pool; the view prefetches it as ``open_changes``."""
        return next((change.pk for change in pool.open_changes), None)  # type: ignore[attr-defined]


class AutoScalingField(serializers.Serializer[None]):
    """Whether ACK makes and removes machines by itself, and between which sizes."""

    enable = serializers.BooleanField(default=False)
    min_instances = serializers.IntegerField(min_value=0, default=0)
    max_instances = serializers.IntegerField(min_value=0, default=0)
    type = serializers.CharField(
        max_length=16,
        required=False,
        allow_blank=True,
        default="",
        help_text="cpu, gpu, gpushare or spot; set once. Empty: by the mode.",
    )


class NodePoolIn(serializers.Serializer[None]):
    """What a new node pool shall be. ``node_names``: on plain Kubernetes, the existing nodes that make the pool."""

    cluster = serializers.CharField(max_length=63)
    name = serializers.CharField(max_length=63)
    mode = serializers.CharField(max_length=16)
    policy = serializers.CharField(max_length=16, required=False, allow_blank=True, allow_null=True, default=None)
    instance_types = serializers.ListField(child=serializers.CharField(max_length=64), required=False, default=list)
    desired_size = serializers.IntegerField(min_value=0, required=False, default=0)
    labels = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False, default=dict)
    taints = TaintField(many=True, required=False, default=list)
    node_names = serializers.ListField(child=serializers.CharField(max_length=253), required=False, default=list)
    vswitch_ids = serializers.ListField(child=serializers.CharField(max_length=64), required=False, default=list)
    auto_scaling = AutoScalingField(required=False, allow_null=True, default=None, help_text="On ACK only.")
    reason = serializers.CharField(max_length=2000, required=False, allow_blank=True, default="")


class NodePoolEdit(serializers.Serializer[None]):
    """What an edit may change; mode and policy go through a mode change."""

    elsewhere = {
        "mode": "A mode is changed by a request that another person approves: POST /api/v1/mode-changes/.",
        "policy": "A placement policy is changed by a request: POST /api/v1/mode-changes/.",
        "desired_size": "The size is set by the action scale/.",
    }

    labels = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    taints = TaintField(many=True, required=False)
    update_nodes = serializers.BooleanField(
        default=False, help_text="Update Labels and Taints of Existing Nodes; else only nodes added later get them."
    )
    reason = serializers.CharField(
        max_length=2000,
        required=False,
        allow_blank=True,
        default="",
        help_text="Needed where a NoExecute taint ends pods.",
    )
    approved_pods = serializers.ListField(
        child=serializers.CharField(max_length=320),
        required=False,
        default=list,
        help_text="namespace/name of all pods that a NoExecute taint ends, where no second person has to approve that.",
    )


class ScaleIn(serializers.Serializer[None]):
    """The size that a pool shall have: absolute, never added; and the bounds of auto scaling, if they change."""

    desired_size = serializers.IntegerField(min_value=0)
    auto_scaling = AutoScalingField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(
        max_length=2000,
        required=False,
        allow_blank=True,
        default="",
        help_text="Needed to 0 while there are nodes, and below their number while pods run there.",
    )
    approved_pods = serializers.ListField(
        child=serializers.CharField(max_length=320),
        required=False,
        default=list,
        help_text="namespace/name of all pods that may end, where no second person has to approve that.",
    )


class TakeOutIn(serializers.Serializer[None]):
    """Nodes that leave a pool: with their machines on ACK, which stay; elsewhere only by their labels."""

    node_names = serializers.ListField(child=serializers.CharField(max_length=253))
    reason = serializers.CharField(max_length=2000)


class AttachIn(serializers.Serializer[None]):
    """Machines outside the cluster that join an ACK pool; what is on their disks is lost."""

    instance_ids = serializers.ListField(child=serializers.CharField(max_length=64))
    reason = serializers.CharField(max_length=2000)


class AdoptIn(serializers.Serializer[None]):
    """The node whose labels and taints the pool takes over."""

    node_name = serializers.CharField(max_length=253)
    reason = serializers.CharField(max_length=2000)


class RestoreIn(serializers.Serializer[None]):
    """Why nodes are brought back; ``holders``, where a mode changes: wait for pods that hold cards, or evict."""

    holders = serializers.CharField(max_length=8, required=False, default="wait")
    reason = serializers.CharField(max_length=2000)


class AnswerOut(serializers.Serializer[None]):
    """What an answer to drift became: a request where a mode changes or pods end, null where it is done at once."""

    change = serializers.IntegerField(allow_null=True)
    request = serializers.IntegerField(allow_null=True, help_text="Of an operation: a taint that ends pods.")


class DeleteIn(serializers.Serializer[None]):
    """Deleting a pool that still has nodes takes ``force`` and a reason."""

    force = serializers.BooleanField(default=False)
    reason = serializers.CharField(max_length=2000, required=False, allow_blank=True, default="")
