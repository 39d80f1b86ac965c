"""Templates, submissions, pods and nodes on the wire."""

from __future__ import annotations

from rest_framework import serializers

from gpupools.domain.findings import REFUSALS
from gpupools.models import JobTemplate, Submission


class FindingOut(serializers.Serializer[None]):
    """One thing that the linter says about a manifest."""

    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=["error", "warning"])
    path = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()
    refused_by = serializers.ChoiceField(
        choices=["", *REFUSALS],
        # Submissions of earlier versions were kept without it.
        default="",
        help_text="Of an error: who does not do as it is written. `api-server` refuses the manifest, `scheduler` "
        "leaves its pods pending, on the `node` they would not run as their mode needs, `console` does not send it.",
    )


class JobTemplateOut(serializers.ModelSerializer[JobTemplate]):
    """A versioned manifest with typed parameters."""

    parameters = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = JobTemplate
        fields = ["slug", "version", "title", "description", "yaml", "parameters", "is_builtin", "created_at"]


class RenderIn(serializers.Serializer[None]):
    """Values for a template's parameters."""

    parameters = serializers.DictField(required=False, default=dict)


class RenderOut(serializers.Serializer[None]):
    """A template with its values put in."""

    yaml = serializers.CharField()


class ManifestIn(serializers.Serializer[None]):
    """A manifest as YAML text, for one cluster."""

    cluster = serializers.CharField(max_length=63)
    yaml = serializers.CharField(trim_whitespace=False, max_length=4 * 1024 * 1024)


class SubmissionIn(ManifestIn):
    """A manifest to submit; ``template`` names where it came from."""

    template = serializers.CharField(max_length=63, required=False, allow_blank=True, default="")


class RejectionOut(serializers.Serializer[None]):
    """Why a node does not take a pod, with the amounts of what is short: wanted, free, free on the best card."""

    code = serializers.CharField()
    reason = serializers.CharField(help_text="The scheduler's own words.")
    resource = serializers.CharField(allow_blank=True)
    asked = serializers.IntegerField()
    free = serializers.IntegerField()
    best = serializers.IntegerField()
    unresolvable = serializers.BooleanField(help_text="No eviction could help.")


class VerdictOut(serializers.Serializer[None]):
    """What the preview says of one node."""

    node = serializers.CharField()
    fits = serializers.BooleanField()
    reasons = serializers.ListField(child=serializers.CharField())
    codes = serializers.ListField(child=serializers.CharField())
    cards = serializers.ListField(child=serializers.IntegerField())
    score = serializers.FloatField(allow_null=True)
    tie_set = serializers.ListField(child=serializers.IntegerField(), help_text="Cards that score alike on this node.")
    waits_for = serializers.IntegerField(help_text="Terminating pods that have to end first.")
    rejections = RejectionOut(many=True)


class PreviewOut(serializers.Serializer[None]):
    """Where one pod would land now: an estimate, not a reservation."""

    chosen = serializers.CharField(allow_null=True)
    cards = serializers.ListField(child=serializers.IntegerField())
    tie_nodes = serializers.ListField(child=serializers.CharField())
    tie_cards = serializers.ListField(
        child=serializers.IntegerField(), help_text="Cards that score alike; more of them than `cards`: not firm."
    )
    message = serializers.CharField()
    prefilter = serializers.CharField(allow_blank=True, help_text="A reason that stands for all nodes at once.")
    verdicts = VerdictOut(many=True)


class SpotOut(serializers.Serializer[None]):
    """So many pods in a row that land on one node; ``node`` is null for those that do not fit."""

    node = serializers.CharField(allow_null=True)
    pods = serializers.IntegerField()


class SequenceOut(serializers.Serializer[None]):
    """Where the pods of a Job land one after the other."""

    pods = serializers.IntegerField()
    first_unfit = serializers.IntegerField(
        allow_null=True, help_text="The first pod that does not fit, counted from 0; null when all do."
    )
    spots = SpotOut(many=True)
    unfit = PreviewOut(allow_null=True, help_text="What the nodes say to that pod, with those before it placed.")


class LargestFreeOut(serializers.Serializer[None]):
    """The most of what is short that one ask could get now on a node in reach; cpu in millicores, memory in bytes.

    ``gpu`` is null where it is not of one card.
    """

    node = serializers.CharField()
    resource = serializers.CharField()
    amount = serializers.IntegerField()
    gpu = serializers.IntegerField(allow_null=True)


class EditOut(serializers.Serializer[None]):
    """One field of a manifest to change; its values are as they stand in YAML, empty where nothing stands."""

    field = serializers.CharField()
    found = serializers.CharField(allow_blank=True)
    value = serializers.CharField(allow_blank=True, help_text="Empty: take the field out.")


class WhatIfOut(serializers.Serializer[None]):
    """A change with which more pods would fit: tried out, not guessed, and the manifest checked with its edits made.

    ``node`` takes the first pod that finds no room now.
    """

    code = serializers.CharField(help_text="wait, smaller, toleration, selector, pool, mode or node")
    sentence = serializers.CharField()
    node = serializers.CharField()
    cards = serializers.ListField(child=serializers.IntegerField())
    edits = EditOut(many=True, help_text="All that changes in the manifest; empty where nothing does.")
    pods = serializers.IntegerField(help_text="How many pods of all would fit then.")
    pool = serializers.CharField(allow_blank=True, help_text="Of which pool one more node would help.")


class HelpOut(serializers.Serializer[None]):
    """What would help the first pod that does not fit, and those after it."""

    largest = LargestFreeOut(allow_null=True)
    options = WhatIfOut(many=True)
    tried = serializers.BooleanField(help_text="Whether anything was tried: not where no node is asked at all.")


class CardSetOut(serializers.Serializer[None]):
    """Cards of a topology node by a named measure; only `ack` is what the scheduler does."""

    label = serializers.CharField()
    title = serializers.CharField()
    cards = serializers.ListField(child=serializers.IntegerField())
    slowest = serializers.FloatField()
    total = serializers.FloatField()


class CheckOut(serializers.Serializer[None]):
    """What is known of a manifest before it is sent."""

    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    parallelism = serializers.IntegerField()
    findings = FindingOut(many=True)
    taken_at = serializers.DateTimeField(allow_null=True, help_text="Age of what the preview stands on.")
    preview = PreviewOut(allow_null=True)
    unknown = serializers.CharField(allow_blank=True, help_text="Why there is no preview.")
    note = serializers.CharField(allow_blank=True, help_text="What the preview takes for granted.")
    sequence = SequenceOut(allow_null=True)
    help = HelpOut()
    alternatives = CardSetOut(many=True)


class SubmissionOut(serializers.ModelSerializer[Submission]):
    """One manifest sent to one cluster."""

    cluster = serializers.SlugRelatedField(slug_field="name", read_only=True)
    template = serializers.CharField(source="template.slug", default=None, read_only=True, allow_null=True)
    submitted_by = serializers.CharField(source="submitted_by.username", read_only=True)
    findings = FindingOut(many=True, read_only=True)

    class Meta:
        model = Submission
        fields = [
            "id", "cluster", "template", "kind", "namespace", "name", "yaml", "findings", "state", "object_uid",
            "error", "submitted_by", "submitted_at",
        ]  # fmt: skip


class CardUseOut(serializers.Serializer[None]):
    """What a pod holds of one card; ``index`` is null where the API does not tell which card."""

    index = serializers.IntegerField(allow_null=True)
    memory_units = serializers.IntegerField()
    core_percent = serializers.IntegerField()
    cards = serializers.IntegerField()


class ReasonOut(serializers.Serializer[None]):
    """One counted reason of the scheduler; the codes are those of a preview, or `other`."""

    count = serializers.IntegerField(help_text="Nodes that gave it.")
    code = serializers.CharField()
    text = serializers.CharField()
    resource = serializers.CharField(allow_blank=True)
    taint = serializers.CharField(allow_blank=True)


class UnschedulableOut(serializers.Serializer[None]):
    """What the scheduler said of a pod that waits, read from the wording of its release."""

    nodes = serializers.IntegerField()
    prefilter = serializers.CharField(allow_blank=True, help_text="A reason that stands for all nodes at once.")
    reasons = ReasonOut(many=True)
    victims_missing = serializers.IntegerField(help_text="Nodes where no pod could make way.")
    not_helpful = serializers.IntegerField(help_text="Nodes where no eviction could help.")


class PodOut(serializers.Serializer[None]):
    """A pod with the cards that it holds."""

    uid = serializers.CharField(source="pod.uid")
    namespace = serializers.CharField(source="pod.namespace")
    name = serializers.CharField(source="pod.name")
    node = serializers.CharField(source="pod.node")
    phase = serializers.CharField(source="pod.phase")
    ready = serializers.BooleanField(source="pod.ready")
    terminating = serializers.BooleanField(source="pod.terminating")
    reason = serializers.CharField(source="pod.reason")
    message = serializers.CharField(source="pod.message")
    unschedulable = UnschedulableOut(allow_null=True)
    restarts = serializers.IntegerField(source="pod.restarts")
    owner_kind = serializers.CharField(source="pod.owner_kind")
    owner_name = serializers.CharField(source="pod.owner_name")
    created_at = serializers.CharField(source="pod.created_at")
    started_at = serializers.CharField(source="pod.started_at")
    image = serializers.CharField(source="pod.image")
    containers = serializers.ListField(child=serializers.CharField(), source="pod.containers")
    mode = serializers.CharField()
    asks = serializers.DictField(child=serializers.IntegerField())
    uses = CardUseOut(many=True)


class PodPage(serializers.Serializer[None]):
    """Pods, with the age of what is known; ``taken_at`` null: nothing is known yet."""

    taken_at = serializers.DateTimeField(allow_null=True)
    next_after = serializers.CharField(allow_null=True)
    results = PodOut(many=True)


class CheckRowOut(serializers.Serializer[None]):
    """One live check of a node; ``ok`` null: cannot be known."""

    code = serializers.CharField()
    title = serializers.CharField()
    ok = serializers.BooleanField(allow_null=True)
    found = serializers.CharField()
    expected = serializers.CharField()
    fix = serializers.CharField()


class TaintOut(serializers.Serializer[None]):
    """A taint of a node."""

    key = serializers.CharField()
    value = serializers.CharField()
    effect = serializers.CharField()


class DriftOut(serializers.Serializer[None]):
    """A label or taint that is not as the pool wants it."""

    key = serializers.CharField()
    wanted = serializers.CharField()
    found = serializers.CharField()
    by = serializers.CharField(help_text="The field manager that wrote it, where the API server knows.")
    since = serializers.CharField(help_text="When; empty where that is unknown.")


class ChangingOut(DriftOut):
    """A label or taint that a mode change under way is writing, so that it differs from the pool meanwhile."""

    change = serializers.IntegerField()


class NodeOut(serializers.Serializer[None]):
    """A node as it is: labels, taints, resources, and the checks of its mode. ``mode`` is empty without GPUs."""

    name = serializers.CharField()
    uid = serializers.CharField(source="node.uid")
    ip = serializers.CharField(source="node.ip")
    pool = serializers.CharField(allow_blank=True)
    mode = serializers.CharField(allow_null=True)
    ready = serializers.BooleanField(source="node.ready")
    unschedulable = serializers.BooleanField(source="node.unschedulable")
    instance_type = serializers.CharField(source="node.instance_type")
    kubelet_version = serializers.CharField(source="node.kubelet_version")
    created_at = serializers.CharField(source="node.created_at")
    labels = serializers.DictField(child=serializers.CharField(), source="node.labels")
    taints = TaintOut(many=True)
    allocatable = serializers.DictField(child=serializers.IntegerField(), source="node.allocatable")
    capacity = serializers.DictField(child=serializers.IntegerField(), source="node.capacity")
    checks = CheckRowOut(many=True)
    verified = serializers.BooleanField(help_text="No check says no, and the mode's resources are reported.")
    drift = DriftOut(many=True)
    changing = ChangingOut(many=True)


class NodePage(serializers.Serializer[None]):
    """Nodes, with the age of what is known."""

    taken_at = serializers.DateTimeField(allow_null=True)
    next_after = serializers.CharField(allow_null=True)
    results = NodeOut(many=True)


class LogOut(serializers.Serializer[None]):
    """The end of a container's log."""

    text = serializers.CharField()


class InspectOut(serializers.Serializer[None]):
    """The allocation as text, laid out as ``kubectl inspect cgpu`` does, and whole cards below."""

    taken_at = serializers.DateTimeField(allow_null=True)
    shared = serializers.CharField()
    whole = serializers.CharField()
