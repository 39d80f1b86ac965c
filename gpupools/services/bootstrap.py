"""The first run of a console: its embedded cluster, the built-in templates, the first two accounts."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from gpupools.models import Cluster, Role, User
from gpupools.services import clusters, jobs, users
from gpupools.services.access import SYSTEM

EMBEDDED = "embedded"
ACCOUNTS = (("admin", Role.ADMIN), ("operator", Role.OPERATOR))


def first_run(*, kubeconfig: str, ack: Mapping[str, str]) -> list[tuple[str, str]]:
    """Make ready what a console needs, and return the accounts that were made: (name, password), shown once.

    May be run at each start: what is there stays, accounts are made only while there are none, and the embedded
    cluster's credentials are brought up to date. An empty kubeconfig means that there is no embedded cluster.
    """
    if kubeconfig:
        _connect_embedded(kubeconfig, ack)
    jobs.load_catalogue()
    # Last: passwords that were made before something failed would never be shown.
    return _make_accounts()


def _connect_embedded(kubeconfig: str, ack: Mapping[str, str]) -> None:
    provider = Cluster.Provider.ACK if ack else Cluster.Provider.KUBERNETES
    cluster = Cluster.objects.filter(name=EMBEDDED, is_embedded=True).first()
    if cluster is None:
        clusters.connect(SYSTEM, name=EMBEDDED, provider=provider, kubeconfig=kubeconfig, ack=ack, is_embedded=True)
    else:
        clusters.refresh(SYSTEM, cluster, kubeconfig=kubeconfig, ack=ack, provider=provider)


@transaction.atomic
def _make_accounts() -> list[tuple[str, str]]:
    if User.objects.exists():
        return []
    made = []
    for username, role in ACCOUNTS:
        user, password = users.create_user(SYSTEM, username=username)
        users.grant(SYSTEM, user, role=role)
        made.append((username, password))
    return made
