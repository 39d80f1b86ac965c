"""Addresses of the pages. Clusters are named, so that an address says what it shows."""

from __future__ import annotations

from django.urls import path

from gpupools.web.views import (
    access,
    changes,
    clusters,
    components,
    dashboard,
    diagnosis,
    jobs,
    nodes,
    notices,
    numbers,
    pods,
    pools,
    session,
)

app_name = "web"

urlpatterns = [
    path("", session.home, name="home"),
    path("sign-in/", session.sign_in, name="sign-in"),
    path("sign-out/", session.sign_out, name="sign-out"),
    path("password/", session.password, name="password"),
    path("theme/", session.theme, name="theme"),
    path("api/", session.api, name="api"),
    path("clusters/", clusters.index, name="clusters"),
    path("clusters/connect/", clusters.connect, name="cluster-connect"),
    path("c/<slug:cluster>/credentials/", clusters.refresh, name="cluster-refresh"),
    path("c/<slug:cluster>/disconnect/", clusters.disconnect, name="cluster-disconnect"),
    path("c/<slug:cluster>/node-pools/", pools.index, name="pools"),
    path("c/<slug:cluster>/create-node-pool/", pools.create, name="pool-create"),
    path("c/<slug:cluster>/node-pools/<str:name>/", pools.detail, name="pool"),
    path("c/<slug:cluster>/node-pools/<str:name>/edit/", pools.edit, name="pool-edit"),
    path("c/<slug:cluster>/node-pools/<str:name>/scale/", pools.scale, name="pool-scale"),
    path("c/<slug:cluster>/node-pools/<str:name>/delete/", pools.delete, name="pool-delete"),
    path("c/<slug:cluster>/node-pools/<str:name>/change-mode/", changes.request_change, name="change-request"),
    path("c/<slug:cluster>/nodes/", nodes.index, name="nodes"),
    path("c/<slug:cluster>/nodes/<str:name>/", nodes.detail, name="node"),
    path("c/<slug:cluster>/ai-suite/", components.index, name="components"),
    path("c/<slug:cluster>/ai-suite/<str:name>/install/", components.install, name="component-install"),
    path("c/<slug:cluster>/ai-suite/<str:name>/uninstall/", components.uninstall, name="component-uninstall"),
    path("c/<slug:cluster>/jobs/", jobs.index, name="jobs"),
    path("c/<slug:cluster>/create-job/", jobs.create, name="job-create"),
    path("c/<slug:cluster>/jobs/<int:pk>/", jobs.detail, name="job"),
    path("c/<slug:cluster>/jobs/<int:pk>/delete/", jobs.delete, name="job-delete"),
    path("c/<slug:cluster>/pods/", pods.index, name="pods"),
    path("c/<slug:cluster>/pods/<str:namespace>/<str:name>/", pods.detail, name="pod"),
    path("c/<slug:cluster>/pods/<str:namespace>/<str:name>/log/", pods.log, name="pod-log"),
    path("c/<slug:cluster>/diagnosis/", diagnosis.index, name="diagnosis"),
    path("c/<slug:cluster>/dashboard/", dashboard.dashboard, name="dashboard"),
    path("c/<slug:cluster>/explain/<slug:figure>/", numbers.explain, name="explain"),
    path("c/<slug:cluster>/dashboard/text/", dashboard.text, name="dashboard-text"),
    path("approvals/", changes.approvals, name="approvals"),
    path("changes/<int:pk>/", changes.detail, name="change"),
    path("changes/<int:pk>/decide/", changes.decide, name="change-decide"),
    path("notices/", notices.settings, name="notices"),
    path("audit/", access.audit_log, name="audit"),
    path("tokens/", access.api_tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", access.revoke_token, name="token-revoke"),
    path("users/", access.people, name="users"),
    path("users/grants/<int:pk>/revoke/", access.revoke_grant, name="grant-revoke"),
    path("users/<int:pk>/active/", access.switch_user, name="user-active"),
]
