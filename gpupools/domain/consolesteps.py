"""What a person does in the ACK console where neither the add-on API nor manifests install a component. Pure.

Names of menus and boxes are the ACK console's own; its addresses were not tried here, and the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpupools.domain.modes import Component

CONSOLE = "https://cs.console.aliyun.com"


@dataclass(frozen=True, slots=True)
class Manual:
    """Steps by hand, the page where they begin, and the documentation."""

    steps: tuple[str, ...]
    page: str
    documentation: str


def manual(component: Component, *, cluster_id: str) -> Manual:
    """Return the steps that install a component in the ACK console."""
    cluster = f"{CONSOLE}/#/k8s/cluster/{cluster_id}" if cluster_id else f"{CONSOLE}/#/k8s/cluster/list"
    begin = "Open the cluster in the ACK console."
    if component is Component.AI_INSTALLER:
        return Manual(
            (
                begin,
                "In the left navigation choose Applications > Cloud-native AI Suite.",
                "Press Deploy (or Modify, where the suite is there already).",
                "Tick Scheduling Policy Extension (Batch Task Scheduling, GPU Sharing, Topology-aware GPU Scheduling).",
                "Press Deploy Cloud-native AI Suite and wait until the component is Deployed.",
            ),
            cluster,
            "https://www.alibabacloud.com/help/en/ack/cloud-native-ai-suite/",
        )
    return Manual(
        (
            begin,
            "In the left navigation choose Operations > Add-ons.",
            f"Search for {component.value} and press Install on its card.",
            "Leave the settings as they are unless you know better, and press OK.",
        ),
        cluster,
        "https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/manage-system-components",
    )
