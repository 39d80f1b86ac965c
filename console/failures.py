"""What answers where no view does: a problem document under /api/, a page elsewhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from gpupools.api.errors import CONTENT_TYPE, problem, status_unread, unread
from gpupools.web.views import errors as pages

API = "/api/"


def _problem(status: int, title: str, detail: str, code: str) -> HttpResponse:
    return JsonResponse(
        problem(status, title=title, detail=detail, code=code), status=status, content_type=CONTENT_TYPE
    )


def not_readable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that Django refuses to read: too large, with too many fields, or not in order."""
    if request.path.startswith(API):
        return JsonResponse(unread(exception), status=status_unread(exception), content_type=CONTENT_TYPE)
    return pages.not_readable(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown address."""
    if request.path.startswith(API):
        return _problem(404, "Not found", "The API has nothing at this address.", "not-found")
    return pages.not_found(request, exception)


def not_allowed(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses."""
    if request.path.startswith(API):
        return _problem(403, "Not allowed", "The console refused this request.", "not-allowed")
    return pages.not_allowed(request, exception)


def crashed(request: HttpRequest) -> HttpResponse:
    """Answer a fault of ours; the log has the request's id."""
    if request.path.startswith(API):
        return _problem(500, "The console failed", "Something went wrong in the console; its log says what.", "error")
    return pages.crashed(request)
