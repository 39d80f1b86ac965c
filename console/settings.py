"""All settings, read from the environment in this one file; without any variable, the embedded defaults.

The table in README.md lists every variable. What is contradictory or unsafe is said by gpupools/checks.py.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from secrets import token_urlsafe

from csp.constants import NONCE, NONE, SELF
from django.utils.translation import gettext_lazy as _

from console.environment import (
    envbool,
    envdatabase,
    envint,
    envlist,
    envorigins,
    envpath,
    envredis,
    envsecret,
    envstr,
    envwords,
    envzone,
)
from console.logs import logging_config
from gpupools.domain.requests import Kind

BASE_DIR = Path(__file__).resolve().parent.parent


def version() -> str:
    """Return the newest version that CHANGELOG.md names."""
    found = re.search(r"^## v?(\d+\.\d+\S*)", (BASE_DIR / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "0"


GPUPOOLS_VERSION = version()

# Where a console keeps its own files: database, secrets, broker, logs, the embedded cluster.
GPUPOOLS_DATA_DIR = envpath("GPUPOOLS_DATA_DIR", BASE_DIR / "var")

# Secrets. `manage.py up` keeps made-up ones in the data folder; elsewhere they come from the environment.
SECRET_KEY = envsecret("GPUPOOLS_SECRET_KEY", kept_in=GPUPOOLS_DATA_DIR / "secret-key")
GPUPOOLS_SECRET_KEY_IS_TEMPORARY = not SECRET_KEY
if GPUPOOLS_SECRET_KEY_IS_TEMPORARY:
    # Good for one process and for commands that sign nothing; a system check refuses it for serving.
    SECRET_KEY = token_urlsafe(50)
GPUPOOLS_CREDENTIALS_KEY = envsecret("GPUPOOLS_CREDENTIALS_KEY", kept_in=GPUPOOLS_DATA_DIR / "credentials-key")
# Keys before it, which still read; `manage.py rotatecredentials` writes everything anew with the one above.
GPUPOOLS_OLD_CREDENTIALS_KEYS = envlist("GPUPOOLS_OLD_CREDENTIALS_KEYS", ())

# Where it is reached.
DEBUG = envbool("GPUPOOLS_DEBUG", False)
GPUPOOLS_HOST = envstr("GPUPOOLS_HOST", "127.0.0.1")
GPUPOOLS_PORT = envint("PORT", 8000, lowest=1, highest=65535)
ALLOWED_HOSTS = envlist("GPUPOOLS_ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]"))
CSRF_TRUSTED_ORIGINS = envorigins("GPUPOOLS_TRUSTED_ORIGINS")
GPUPOOLS_HTTPS = envbool("GPUPOOLS_HTTPS", False)

# What it does.
GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS = envbool("GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS", False)
GPUPOOLS_DENIED_ADDRESSES = envlist("GPUPOOLS_DENIED_ADDRESSES", ())
GPUPOOLS_ALLOW_INSECURE_TLS = envbool("GPUPOOLS_ALLOW_INSECURE_TLS", False)
GPUPOOLS_SERVICE_ACCOUNT_DIR = envpath(
    "GPUPOOLS_SERVICE_ACCOUNT_DIR", Path("/var/run/secrets/kubernetes.io/serviceaccount")
)
GPUPOOLS_CLUSTER_TIMEOUT_SECONDS = envint("GPUPOOLS_CLUSTER_TIMEOUT_SECONDS", 10, lowest=1, highest=120)
GPUPOOLS_POLL_SECONDS = envint("GPUPOOLS_POLL_SECONDS", 15, lowest=2, highest=3600)
GPUPOOLS_CHANGE_EXPIRY_HOURS = envint("GPUPOOLS_CHANGE_EXPIRY_HOURS", 24, lowest=1, highest=24 * 90)
# One person may ask and decide: off, and said on every page where it is on.
GPUPOOLS_ALLOW_SELF_APPROVAL = envbool("GPUPOOLS_ALLOW_SELF_APPROVAL", False)
# What else than mode changes a second person must approve.
GPUPOOLS_APPROVAL_REQUIRED = envwords("GPUPOOLS_APPROVAL_REQUIRED", tuple(Kind), choices=tuple(Kind))
GPUPOOLS_IDEMPOTENCY_HOURS = envint("GPUPOOLS_IDEMPOTENCY_HOURS", 24, lowest=1, highest=24 * 30)
GPUPOOLS_MAX_MANIFEST_BYTES = envint("GPUPOOLS_MAX_MANIFEST_BYTES", 256 * 1024, lowest=1024, highest=4 * 1024 * 1024)

# E-mail. Without a server it goes to the log of the worker.
EMAIL_HOST = envstr("GPUPOOLS_EMAIL_HOST", "")
EMAIL_PORT = envint("GPUPOOLS_EMAIL_PORT", 587, lowest=1, highest=65535)
EMAIL_HOST_USER = envstr("GPUPOOLS_EMAIL_USER", "")
EMAIL_HOST_PASSWORD = envsecret("GPUPOOLS_EMAIL_PASSWORD")
EMAIL_USE_TLS = envbool("GPUPOOLS_EMAIL_TLS", True)
EMAIL_TIMEOUT = 10
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'console'}.EmailBackend"
DEFAULT_FROM_EMAIL = envstr("GPUPOOLS_EMAIL_FROM", "gpupools@localhost")
# What links in e-mails begin with.
GPUPOOLS_PUBLIC_URL = envstr("GPUPOOLS_PUBLIC_URL", f"http://{GPUPOOLS_HOST}:{GPUPOOLS_PORT}")

# Storage.
DATABASES = {"default": envdatabase("DATABASE_URL", GPUPOOLS_DATA_DIR / "console.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# A console that runs on the data folder keeps its broker's address there, for commands beside it.
REDIS_URL = envredis("REDIS_URL", "redis://127.0.0.1:6379/0", kept_in=GPUPOOLS_DATA_DIR / "broker" / "url")

# Application.
INSTALLED_APPS = [
    "console.admin.RowsConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "channels",
    "csp",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "gpupools",
]
MIDDLEWARE = [
    "console.health.probes",
    "console.middleware.request_id",
    "django.middleware.security.SecurityMiddleware",
    "console.middleware.PlainStaticFiles",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
            ],
            "builtins": ["gpupools.web.templatetags"],
        },
    },
]

# People.
AUTH_USER_MODEL = "gpupools.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"
SESSION_COOKIE_AGE = int(timedelta(hours=12).total_seconds())
# One person who mistypes must not lock out a colleague behind the same proxy, nor one name everywhere.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_ON_SUCCESS = True
AXES_ENABLE_ADMIN = False
AXES_LOCKOUT_CALLABLE = "gpupools.web.views.session.locked_out"
AXES_VERBOSE = False

# Browser safety. Nothing inline, nothing from another host; a nonce is there for what makes styles itself.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    },
}
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "gpupools.web.views.errors.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
CSRF_COOKIE_SAMESITE = SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE = SECURE_SSL_REDIRECT = GPUPOOLS_HTTPS
SECURE_HSTS_SECONDS = int(timedelta(days=30).total_seconds()) if GPUPOOLS_HTTPS else 0
if GPUPOOLS_HTTPS:
    # The proxy that ends TLS must set this header and drop the client's own.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# A byte of text is up to six in a form or in JSON (%0D%0A, \u00e9). What is too large for its field is refused there,
# with what was typed kept; only what no field could mean is refused unread.
DATA_UPLOAD_MAX_MEMORY_SIZE = max(GPUPOOLS_MAX_MANIFEST_BYTES * 6, 8 * 1024 * 1024) + 64 * 1024

# Pages.
LANGUAGE_CODE = envstr("GPUPOOLS_LANGUAGE_CODE", "en", choices=("en", "es", "zh-hans"))
LANGUAGES = [("en", _("English")), ("es", _("Spanish")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = USE_TZ = True
TIME_ZONE = envzone("GPUPOOLS_TIME_ZONE", "UTC")
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Empty: files are served as they lie in static/. Set: `collectstatic` has put hashed, compressed ones there.
_static_root = envstr("GPUPOOLS_STATIC_ROOT", "")
STATIC_ROOT = _static_root or None
WHITENOISE_USE_FINDERS = not _static_root
WHITENOISE_ALLOW_ALL_ORIGINS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _static_root
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# REST.
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "gpupools.api.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "gpupools.api.errors.handle",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU Pools Console",
    "DESCRIPTION": "GPU node pools, modes, jobs, approvals and what every card holds.",
    "VERSION": GPUPOOLS_VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# Live pages. The publish/subscribe layer, since the other one drops its readers after five idle seconds.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "gpupools"},
    },
}

# Tasks. Rows are the queue: a message only wakes a worker, so a lost or doubled one must cost nothing.
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_TIME_LIMIT_SECONDS = 300
CELERY_TASK_TIME_LIMIT = CELERY_TASK_TIME_LIMIT_SECONDS
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Above the time limit, or a long task is started a second time; and looked at every two seconds,
    # or the messages of a killed worker come back minutes late.
    "visibility_timeout": 2 * CELERY_TASK_TIME_LIMIT_SECONDS,
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 2,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "gpupools"
CELERY_TIMEZONE = "UTC"

# Logs.
LOGGING = logging_config(
    level=envstr("GPUPOOLS_LOG_LEVEL", "INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")),
    as_json=envstr("GPUPOOLS_LOG_FORMAT", "console", choices=("console", "json")) == "json",
)
