"""Pages for what no view answers: unknown addresses, refused forms, crashes."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from gpupools.errors import Missing, NotAllowed
from gpupools.web.door import show_error


def not_readable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that Django refuses to read, mostly because it is larger than any form of the console."""
    large = isinstance(exception, (RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent))
    if not large:
        return _lone(
            request, 400, _("Not in order"), _("The console cannot read this request."), _("Go back and retry.")
        )
    if isinstance(exception, RequestDataTooBig):
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // (1024 * 1024)
        sentence = _("What was sent is larger than %(most)s MiB, so it was not read, and nothing was done.")
        sentence %= {"most": most}
    else:
        most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
        sentence = _("What was sent has more than %(most)s fields, so it was not read, and nothing was done.")
        sentence %= {"most": most}
    return _lone(
        request,
        413,
        _("Too large"),
        sentence,
        _("Go back with your browser, which keeps what you typed, shorten it and send it again."),
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown address."""
    if request.user.is_authenticated:
        return show_error(request, Missing(_("The console has no page at this address.")))
    return _lone(
        request, 404, _("Not found"), _("The console has no page at this address."), _("Sign in and start anew.")
    )


def not_allowed(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses."""
    if request.user.is_authenticated:
        return show_error(request, NotAllowed(_("The console refused this request.")))
    return _lone(request, 403, _("Not allowed"), _("The console refused this request."), _("Sign in and try again."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form whose protection token is missing or old."""
    return _lone(
        request,
        403,
        _("This form is too old"),
        _("It was opened before you signed in, or your browser keeps no cookies."),
        _("Go back, reload the page and send the form again."),
    )


def crashed(request: HttpRequest) -> HttpResponse:
    """Answer a fault of ours; needs neither database nor session, which may be what broke."""
    return _lone(
        request,
        500,
        _("The console failed"),
        _("Something went wrong here, in the console. Your clusters are not affected."),
        _("Try again. If it stays, give this request's id to whoever runs the console: its log has the details."),
    )


def _lone(request: HttpRequest, status: int, title: str, sentence: str, advice: str) -> HttpResponse:
    context = {
        "title": title,
        "sentence": sentence,
        "advice": advice,
        "theme": "auto",
        "request_id": getattr(request, "request_id", ""),
    }
    return HttpResponse(render_to_string("gpupools/lone_error.html", context), status=status)
