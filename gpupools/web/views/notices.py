"""What somebody wants e-mail about, and the last things that they were told."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from gpupools.models import Notice
from gpupools.services import notices
from gpupools.web.door import actor_of, page
from gpupools.web.forms import ConsoleForm
from gpupools.web.shell import show

LAST = 30


class WishForm(ConsoleForm):
    """Which notices come by e-mail."""

    mail_waiting = forms.BooleanField(
        label=gettext_lazy("A mode change or another operation waits for my decision"), required=False
    )
    mail_failed = forms.BooleanField(
        label=gettext_lazy("What I asked for or approved failed, is paused or waits for a person"), required=False
    )


@require_http_methods(["GET", "HEAD", "POST"])
@page
def settings(request: HttpRequest) -> HttpResponse:
    """Show and keep what somebody wants e-mail about."""
    actor = actor_of(request)
    wish = notices.wish_of(actor)
    initial = {"mail_waiting": wish.mail_waiting, "mail_failed": wish.mail_failed}
    form = WishForm(request.POST or None, initial=initial)
    if request.method == "POST":
        form = WishForm(request.POST)
        if form.is_valid():
            notices.wish(actor, **form.cleaned_data)
            messages.success(request, _("Kept."))
            return redirect("web:notices")
    rows = Notice.objects.filter(user=actor.user).select_related("change__pool__cluster", "operation__cluster")[:LAST]
    return show(request, "notices.html", {"nav": "notices", "form": form, "rows": rows})
