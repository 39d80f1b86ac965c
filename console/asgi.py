"""What the web server serves: pages and API over HTTP, live pages over WebSockets."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Before the imports below: they need Django's applications to be loaded.
http_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402  # see above
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402  # see above
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402  # see above

from gpupools.live.routing import websocket_urlpatterns  # noqa: E402  # see above

application = ProtocolTypeRouter(
    {
        "http": http_application,
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
