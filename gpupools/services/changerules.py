"""What may be asked of a pool's mode, and what a change would do to whom. It reads rows and writes nothing."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpupools.domain import plans
from gpupools.domain.modes import ACK_POOL_LABEL, CHOOSABLE, MODES, Mode, PlacementPolicy
from gpupools.errors import Conflict, FieldError, Invalid
from gpupools.models import Cluster, ModeChange, NodePool
from gpupools.services import changefacts
from gpupools.services.changefacts import Seen
from gpupools.services.poolspecs import names

PRO_SPEC: Final = "ack.pro"


def checked(
    pool: NodePool, target_mode: str, target_policy: str | None, holders: str, reason: str
) -> tuple[Mode, PlacementPolicy | None, str, str]:
    """Check what needs no look at the cluster, all of it at once."""
    errors: list[FieldError] = []
    mode = Mode(target_mode) if target_mode in CHOOSABLE else None
    if mode is None:
        is_foreign = target_mode in list(Mode)
        message = "This mode is only shown here, not set." if is_foreign else "There is no such scheduling mode."
        code = "read-only" if is_foreign else "unknown"
        errors.append(FieldError("target_mode", message, code, str(target_mode)[:80], ", ".join(CHOOSABLE)))
    else:
        errors += _mode_errors(pool.cluster, mode)
    policy: PlacementPolicy | None = None
    if target_policy and target_policy not in list(PlacementPolicy):
        allowed = ", ".join(PlacementPolicy)
        errors.append(
            FieldError("target_policy", "There is no such placement policy.", "unknown", target_policy[:80], allowed)
        )
    elif target_policy and mode is not None and not MODES[mode].shared:
        message = f"A placement policy has no effect in mode {mode.value}: its cards are handed out whole."
        errors.append(FieldError("target_policy", message, "no-effect", target_policy, "nothing"))
    elif mode is not None and MODES[mode].shared:
        policy = PlacementPolicy(target_policy or pool.policy or PlacementPolicy.BINPACK)
    if holders not in ModeChange.Holders.values:
        allowed = ", ".join(ModeChange.Holders.values)
        errors.append(
            FieldError("holders", "This is not a way to treat holders.", "unknown", str(holders)[:80], allowed)
        )
    if not reason.strip():
        errors.append(FieldError("reason", "Say why the change is wanted: somebody else decides on it.", "required"))
    if errors or mode is None:
        raise Invalid("This mode change cannot be asked for.", errors=errors)
    return mode, policy, str(holders), reason.strip()


def _mode_errors(cluster: Cluster, mode: Mode) -> list[FieldError]:
    if not MODES[mode].needs_pro or not cluster.spec or cluster.spec.startswith(PRO_SPEC):
        return []
    message = f"Mode {mode.value} needs an ACK managed Pro cluster; this one is {cluster.spec}."
    basic = ", ".join(each for each in CHOOSABLE if not MODES[each].needs_pro)
    return [FieldError("target_mode", message, "needs-pro", mode.value, basic)]


def check_possible(cluster: Cluster, seen: Seen, mode: Mode) -> None:
    """Refuse what could not be carried out."""
    present = changefacts.components(cluster, mode, seen.workloads)
    if changefacts.mps_is_missing(mode, present):
        raise Invalid.field(
            "target_mode",
            "Mode mps needs the MPS Control Daemon (ack-mps-control) in the cluster first: install it.",
            code="needs-component",
            found=mode.value,
        )
    if cluster.provider == Cluster.Provider.KUBERNETES:
        foreign = [node for node in seen.nodes if ACK_POOL_LABEL in node.labels]
        if foreign:
            raise Conflict(
                f"{names(foreign)} belong to a node pool of ACK: writing their labels directly can break running "
                "GPU pods. Connect the cluster with provider ack, and change the mode of that node pool.",
                code="ack-node",
            )


def judged(pool: NodePool, seen: Seen, mode: Mode, policy: PlacementPolicy | None, *, evict: bool) -> dict[str, Any]:
    """Return the columns that say what the change does and to whom."""
    leaving = seen.unlike(mode)
    declared = leaving[0].declared if leaving else None
    from_mode = Mode(pool.mode) if pool.mode else declared
    affected = plans.blast_radius(leaving, seen.pods, from_mode=from_mode, evict=evict)
    facts = changefacts.facts(pool, seen, mode)
    warned = plans.warnings(from_mode, mode, affected=affected, evict=evict)
    warned += [
        ("component-missing", f"{name} is not installed: the nodes report no cards until it is.")
        for name, present in facts["components"].items()
        if not present
    ]
    return {
        "from_mode": from_mode.value if from_mode else "",
        "diff": {**changefacts.diff(pool, seen, mode, policy), "facts": facts},
        "blast_radius": [msgspec.to_builtins(each) for each in affected],
        "warnings": [{"code": code, "message": message} for code, message in warned],
        "fingerprint": plans.fingerprint(facts),
    }
