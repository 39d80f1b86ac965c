"""Rows, constraints and querysets; no rules and no writing beyond that. Services are the only writers."""

from gpupools.models.access import ApiToken, Grant, Onlooker, Role, Scope, User
from gpupools.models.allocation import AllocationPoint, WatchLease
from gpupools.models.audit import AuditEntry, IdempotencyKey
from gpupools.models.changes import ChangeStep, ModeChange, PoolHold
from gpupools.models.clusters import Cluster, ComponentState
from gpupools.models.jobs import JobTemplate, Submission
from gpupools.models.notices import Notice, NoticeWish
from gpupools.models.pools import NodePool
from gpupools.models.pushes import Push
from gpupools.models.requests import OperationRequest

__all__ = [
    "AllocationPoint",
    "ApiToken",
    "AuditEntry",
    "ChangeStep",
    "Cluster",
    "ComponentState",
    "Grant",
    "IdempotencyKey",
    "JobTemplate",
    "ModeChange",
    "NodePool",
    "Notice",
    "NoticeWish",
    "Onlooker",
    "OperationRequest",
    "PoolHold",
    "Push",
    "Role",
    "Scope",
    "Submission",
    "User",
    "WatchLease",
]
