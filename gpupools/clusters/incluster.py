"""The way into the cluster that the console itself runs in: its pod's service account.

The kubelet replaces the token's file before the token ends, so the file is named and read again, never kept.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from gpupools.clusters.channel import tls_context
from gpupools.clusters.port import Connection
from gpupools.errors import Invalid

CONTEXT = "in-cluster"


def connection(folder: Path, *, timeout_seconds: float = 10.0) -> Connection:
    """Return the way in by the token and the certificate in ``folder``.

    Raises Invalid on ``in_cluster`` where the console runs in no pod, or its pod has no service account.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = folder / "token", folder / "ca.crt"
    try:
        authority = ca.read_bytes()
        present = bool(token.read_text().strip())
    except (OSError, UnicodeDecodeError):
        present, authority = False, b""
    if not host or not present or not authority:
        raise Invalid.field(
            "in_cluster",
            "The console does not run in a pod with a service account: give a kubeconfig instead.",
            code="not-in-cluster",
            found=f"no {'KUBERNETES_SERVICE_HOST' if not host else 'token or ca.crt in ' + str(folder)}",
            allowed="a pod with automountServiceAccountToken",
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    tls_context(cluster, {})
    return Connection(
        server,
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [{"name": CONTEXT, "cluster": cluster}],
            "users": [{"name": CONTEXT, "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        },
        CONTEXT,
        None,
        timeout_seconds,
    )
