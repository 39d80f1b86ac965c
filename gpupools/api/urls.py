"""Addresses of the REST API, below /api/v1/."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from gpupools.api.views import changes, clusters, diagnosis, fleet, people, pools, requests, watching, work

app_name = "api"

_top = SimpleRouter()
_top.register("me", people.MeView, "me")
_top.register("clusters", clusters.ClusterView, "cluster")
_top.register("node-pools", pools.NodePoolView, "node-pool")
_top.register("job-templates", work.JobTemplateView, "job-template")
_top.register("submissions", work.SubmissionView, "submission")
_top.register("mode-changes", changes.ModeChangeView, "mode-change")
_top.register("operation-requests", requests.OperationRequestView, "operation-request")
_top.register("audit-entries", people.AuditEntryView, "audit-entry")
_top.register("pushes", people.PushView, "push")
_top.register("tokens", people.TokenView, "token")
_top.register("users", people.UserView, "user")
_top.register("grants", people.GrantView, "grant")

_in_cluster = SimpleRouter()
_in_cluster.register("components", clusters.ComponentView, "component")
_in_cluster.register("nodes", fleet.NodeView, "node")
_in_cluster.register("pods", fleet.PodView, "pod")
_in_cluster.register("allocation", fleet.AllocationView, "allocation")
_in_cluster.register("watch", watching.WatchView, "watch")
_in_cluster.register("diagnosis", diagnosis.DiagnosisView, "diagnosis")

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="api:schema"), name="docs"),
    path("clusters/<str:cluster>/", include(_in_cluster.urls)),
    path("", include(_top.urls)),
]
