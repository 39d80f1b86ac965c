"""Clusters, and their components."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from gpupools.api.base import IDEMPOTENCY_KEY, Door
from gpupools.api.serializers.clusters import (
    ClusterIn,
    ClusterOut,
    ComponentHealthOut,
    ComponentOut,
    CredentialsIn,
    EndingIn,
    InstallIn,
    OfferOut,
    ReasonIn,
    RehearsalOut,
    UpgradeIn,
)
from gpupools.api.serializers.people import PushOut
from gpupools.api.serializers.poolplans import CgpuPolicyOut
from gpupools.api.serializers.requests import OperationRequestOut
from gpupools.api.views.requests import asked
from gpupools.domain.cgpupolicy import POLICIES
from gpupools.errors import Missing
from gpupools.models import Cluster, OperationRequest, Push, Role
from gpupools.services import clusters, componentcare, componentguards, components, pooladvice

_PUSHED_OR_ASKED = PolymorphicProxySerializer(
    "PushedOrAsked", [PushOut, OperationRequestOut], resource_type_field_name=None
)


class ClusterView(Door):
    """Connected clusters."""

    queryset = Cluster.objects.none()
    serializer_class = ClusterOut
    lookup_field = "name"
    filterset_fields = ["provider", "state"]

    def get_queryset(self) -> Any:
        """Clusters that the caller has any grant on."""
        return Cluster.objects.visible_to(self.actor).order_by("-pk")

    def list(self, request: Request) -> Response:
        """List clusters."""
        return self.paged(self.filter_queryset(self.get_queryset()), ClusterOut)

    def retrieve(self, request: Request, name: str) -> Response:
        """Read one cluster."""
        return Response(ClusterOut(self.cluster(name)).data)

    @extend_schema(responses=CgpuPolicyOut)
    @action(detail=True, methods=["get"], url_path="cgpu-policy")
    def cgpu_policy(self, request: Request, name: str) -> Response:
        """Say how cGPU shares compute time in this cluster, or why that is unknown, and which ways there are."""
        found = pooladvice.cgpu_policy(self.cluster(name))
        return Response(CgpuPolicyOut({"policy": found.policy, "reason": found.reason, "policies": POLICIES}).data)

    @extend_schema(request=ClusterIn, responses={201: ClusterOut}, parameters=[IDEMPOTENCY_KEY])
    def create(self, request: Request) -> Response:
        """Connect a cluster: the credentials are checked, tried and kept encrypted."""
        values = self.read(ClusterIn)

        def work() -> Response:
            return Response(ClusterOut(clusters.connect(self.actor, **values)).data, status=201)

        return self.once(work)

    @extend_schema(request=CredentialsIn, responses=ClusterOut)
    @action(detail=True, methods=["post"])
    def credentials(self, request: Request, name: str) -> Response:
        """Put new credentials in the place of the old ones, which serve until the new ones have answered."""
        return Response(ClusterOut(clusters.refresh(self.actor, self.cluster(name), **self.read(CredentialsIn))).data)

    @extend_schema(request=None, responses=ClusterOut)
    @action(detail=True, methods=["post"])
    def probe(self, request: Request, name: str) -> Response:
        """Ask the cluster now for its version and for what its identity may do."""
        found = self.cluster(name)
        self.actor.require(Role.OPERATOR, found)
        clusters.probe(found)
        return Response(ClusterOut(found).data)

    @extend_schema(request=ReasonIn, responses={204: None})
    @action(detail=True, methods=["post"])
    def disconnect(self, request: Request, name: str) -> Response:
        """Forget a cluster; nothing is changed in it."""
        clusters.disconnect(self.actor, self.cluster(name), **self.read(ReasonIn))
        return Response(status=204)


class ComponentView(Door):
    """Components of the Cloud-native AI Suite in one cluster."""

    queryset = Cluster.objects.none()
    serializer_class = ComponentOut
    pagination_class = None
    lookup_field = "name"

    @extend_schema(responses=ComponentOut(many=True))
    def list(self, request: Request, cluster: str) -> Response:
        """List the components of the catalogue with their state here."""
        return Response(ComponentOut(components.overview(self.cluster()), many=True).data)

    @extend_schema(responses=ComponentOut)
    def retrieve(self, request: Request, cluster: str, name: str) -> Response:
        """Read one component."""
        row = next((row for row in components.overview(self.cluster()) if row.name == name), None)
        if row is None:
            raise Missing(f"There is no component {name}.", code="no-such-component")
        return Response(ComponentOut(row).data)

    @extend_schema(request=InstallIn, responses={202: PushOut}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def install(self, request: Request, cluster: str, name: str) -> Response:
        """Install a component: by the add-on API, or by manifests where that does not know it."""
        values = self.read(InstallIn)
        return self.once(
            lambda: Response(PushOut(components.install(self.actor, self.cluster(), name, **values)).data, status=202)
        )

    @extend_schema(request=InstallIn, responses=RehearsalOut(many=True))
    @action(detail=True, methods=["post"])
    def rehearse(self, request: Request, cluster: str, name: str) -> Response:
        """Read what applying manifests would change, by a dry run; nothing is written."""
        found = componentcare.rehearse(self.actor, self.cluster(), name, **self.read(InstallIn))
        return Response(RehearsalOut(found, many=True).data)

    @extend_schema(responses=OfferOut)
    @action(detail=True, methods=["get"])
    def offer(self, request: Request, cluster: str, name: str) -> Response:
        """Ask the provider which version an upgrade leads to, and how the add-on is configured."""
        return Response(OfferOut(componentcare.offer(self.actor, self.cluster(), name)).data)

    @extend_schema(responses=ComponentHealthOut)
    @action(detail=True, methods=["get"])
    def nodes(self, request: Request, cluster: str, name: str) -> Response:
        """Read for each node that needs the component whether it works there, and why not."""
        found = self.cluster()
        health = componentcare.nodes(self.actor, found, name)
        clients = componentguards.clients(found, components.known(name)) if self.actor.can(Role.OPERATOR, found) else ()
        return Response(ComponentHealthOut({"results": health, "clients": clients}).data)

    @extend_schema(request=UpgradeIn, responses={202: _PUSHED_OR_ASKED}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def upgrade(self, request: Request, cluster: str, name: str) -> Response:
        """Upgrade or configure a component; what that ends has to be approved, by naming pods or by a second person.

        With a `Location`, the answer is the request that a second person must approve.
        """
        values = self.read(UpgradeIn)
        return self.once(lambda: self._on_its_way(componentcare.upgrade(self.actor, self.cluster(), name, **values)))

    @extend_schema(request=EndingIn, responses={202: _PUSHED_OR_ASKED}, parameters=[IDEMPOTENCY_KEY])
    @action(detail=True, methods=["post"])
    def uninstall(self, request: Request, cluster: str, name: str) -> Response:
        """Remove a component; refused while node pools need it, or pods end that nobody has approved to end.

        With a `Location`, the answer is the request that a second person must approve.
        """
        values = self.read(EndingIn)
        return self.once(lambda: self._on_its_way(components.uninstall(self.actor, self.cluster(), name, **values)))

    def _on_its_way(self, made: Push | OperationRequest) -> Response:
        return asked(self, made) if isinstance(made, OperationRequest) else Response(PushOut(made).data, status=202)
