"""How cGPU shares the compute time of a card among its pods: the policies 0 to 5, and which one a cluster has. Pure.

ACK sets it for a whole cluster as POLICY in the environment of cGPU's DaemonSets; all nodes must have the same one,
and a node on which the module is loaded takes another one only after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpupools.domain.gpus import Workload

POLICY_VARIABLE = "POLICY"
# The DaemonSets that load the module, by the names that ACK gives them.
INSTALLERS = ("cgpu-installer", "cgpu-core-installer")


@dataclass(frozen=True, slots=True)
class ComputePolicy:
    """One way to share compute time."""

    value: int
    name: str
    text: str


POLICIES: tuple[ComputePolicy, ...] = (
    ComputePolicy(0, "average", "Time is cut into equal parts, one for each pod that the card can take."),
    ComputePolicy(1, "preemptive", "The pods that are there share all the time; each gets as much as it can."),
    ComputePolicy(2, "weighted", "As preemptive, and a pod with more weight gets more."),
    ComputePolicy(3, "fixed", "Each pod gets a fixed part of the time, also when the card is idle otherwise."),
    ComputePolicy(4, "weak", "As preemptive, with weaker isolation of compute and less cost."),
    ComputePolicy(5, "native", "The driver of the card decides; cGPU only keeps memory apart."),
)


@dataclass(frozen=True, slots=True)
class PolicyFound:
    """The policy that a cluster's DaemonSets say, or why it is unknown. It counts for nodes set up since."""

    policy: ComputePolicy | None
    reason: str = ""


def found(workloads: Iterable[Workload]) -> PolicyFound:
    """Read the policy of a cluster from its DaemonSets."""
    said = {each.name: each.policy for each in workloads if each.kind == "DaemonSet" and each.name in INSTALLERS}
    if not said:
        return PolicyFound(None, f"none of the DaemonSets of ack-ai-installer that load cGPU ({_both()}) is there")
    values = {name: value for name, value in sorted(said.items()) if value}
    if not values:
        return PolicyFound(None, f"{' and '.join(sorted(said))} names no {POLICY_VARIABLE}")
    if len(set(values.values())) > 1:
        each = " and ".join(f"{name} says {value}" for name, value in values.items())
        return PolicyFound(None, f"{each}, and a cluster can have only one")
    (value,) = set(values.values())
    policy = next((each for each in POLICIES if str(each.value) == value.strip()), None)
    if policy is None:
        return PolicyFound(None, f"{next(iter(values))} says {value!r}, which is none of 0 to 5")
    return PolicyFound(policy)


def _both() -> str:
    return " or ".join(INSTALLERS)
