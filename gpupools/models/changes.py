"""Requests to change a pool's mode or policy, and the steps that carry them out."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from gpupools.domain.changes import OPEN, State
from gpupools.domain.modes import MODE_LABEL, PLACEMENT_LABEL, PlacementPolicy, mode_of_label
from gpupools.models.access import Onlooker, User
from gpupools.models.pools import NodePool


class ModeChangeQuerySet(models.QuerySet["ModeChange"]):
    """Requests to change modes."""

    def visible_to(self, actor: Onlooker) -> ModeChangeQuerySet:
        """Narrow to the clusters seen whole: the blast radius names pods of every namespace."""
        return self.filter(actor.scope.sees_all_of_cluster("pool__cluster"))


class ModeChange(models.Model):
    """A request to change a pool's mode or policy. At most one that is not final holds a pool."""

    class Holders(models.TextChoices):
        WAIT = "wait", "Wait for them to finish"
        EVICT = "evict", "Evict them"

    class Way(models.TextChoices):
        WHOLE = "whole", "The whole pool at once"
        BATCHES = "batches", "A few nodes at a time"
        MOVE = "move", "Move nodes into another pool"
        JOIN = "join", "Take nodes into this pool"

    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="changes")
    from_mode = models.CharField(max_length=16, blank=True)
    from_policy = models.CharField(max_length=16, blank=True)
    target_mode = models.CharField(max_length=16)
    target_policy = models.CharField(max_length=16, blank=True)
    holders = models.CharField(max_length=8, choices=Holders.choices, default=Holders.WAIT)
    way = models.CharField(max_length=8, choices=Way.choices, default=Way.WHOLE)
    batch_size = models.PositiveSmallIntegerField(default=0, help_text="Nodes per batch; 0: all at once.")
    node_names = models.JSONField(default=list, help_text="The nodes concerned; empty: all of the pool.")
    target_pool = models.ForeignKey(
        NodePool, on_delete=models.CASCADE, null=True, blank=True, related_name="incoming_changes"
    )
    undoes = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="undone_by")
    outlook = models.JSONField(default=dict, help_text="Cards before and after, and what pending pods gain or lose.")
    rule = models.CharField(max_length=200, blank=True, help_text="Why no second person had to decide.")
    diff = models.JSONField(default=dict)
    blast_radius = models.JSONField(default=list)
    warnings = models.JSONField(default=list)
    fingerprint = models.CharField(max_length=64)
    state = models.CharField(
        max_length=16, choices=[(state.value, state.value) for state in State], default=State.PENDING.value
    )
    reason = models.TextField()
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="requested_changes")
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, blank=True, related_name="decided_changes"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True, help_text="Why it lapsed, failed or is paused.")
    remembered = models.JSONField(default=dict, help_text="What must be put back: who was cordoned before.")

    objects = ModeChangeQuerySet.as_manager()

    class Meta:
        ordering = ["-requested_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["pool"],
                condition=Q(state__in=sorted(state.value for state in OPEN)),
                name="one_open_change_per_pool",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pool}: {self.from_mode or 'undeclared'} -> {self.target_mode}"

    @property
    def restored_from(self) -> tuple[str, ...]:
        """What is found on nodes that this change brings back to what their pool wants; empty for any other change."""
        if self.way not in (self.Way.WHOLE, self.Way.BATCHES) or not self.from_mode or self.undoes_id:
            return ()
        packs = PlacementPolicy.BINPACK.value
        if self.from_mode != self.target_mode or (self.from_policy or packs) != (self.target_policy or packs):
            return ()
        found = set()
        for row in self.diff.get("nodes", ()):
            old = {each["key"]: each["old"] for each in row["labels"]}
            mode = mode_of_label(old[MODE_LABEL]) if old.get(MODE_LABEL) else None
            found.add(mode.value if mode else old.get(MODE_LABEL) or old.get(PLACEMENT_LABEL) or "no label")
        return tuple(sorted(found))


class ChangeStep(models.Model):
    """One step of a change's plan, with what it waits for and since when."""

    class State(models.TextChoices):
        WAITING = "waiting", "Not started"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        SKIPPED = "skipped", "Not carried out"

    change = models.ForeignKey(ModeChange, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=32)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    detail = models.CharField(max_length=1000, blank=True)
    wave = models.PositiveSmallIntegerField(default=0, help_text="Which batch it belongs to; 0: all nodes.")
    node_names = models.JSONField(default=list, help_text="The nodes of its batch; empty: all.")
    expected_seconds = models.PositiveIntegerField(default=0)
    is_rollback = models.BooleanField(default=False)
    waiting_since = models.DateTimeField(null=True, blank=True, help_text="Since when it waits for what it says.")
    confirmed_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    confirmed_at = models.DateTimeField(null=True, blank=True)
    learned = models.JSONField(default=dict, help_text="Task ids and the like, stored before waiting on them.")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["change_id", "position"]
        constraints = [models.UniqueConstraint(fields=["change", "position"], name="steps_are_in_order")]

    def __str__(self) -> str:
        return f"{self.position}. {self.title}"


class PoolHold(models.Model):
    """A pool that an open change holds; a change may hold two, and a pool is held once: the key says so."""

    pool = models.OneToOneField(NodePool, on_delete=models.CASCADE, primary_key=True, related_name="hold")
    change = models.ForeignKey(ModeChange, on_delete=models.CASCADE, related_name="holds")

    def __str__(self) -> str:
        return f"{self.pool} by change {self.change_id}"
