"""How every process logs: one line per event, as text or as JSON, with the request's id."""

from __future__ import annotations

import sys
from typing import Any

import structlog


def _without_colours(_: Any, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Drop uvicorn's second copy of its message, which is meant for a terminal."""
    event.pop("color_message", None)
    return event


def logging_config(*, level: str, as_json: bool) -> dict[str, Any]:
    """Return Django's LOGGING, and make structlog's loggers go the same way."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_colours,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    if as_json:
        last: list[structlog.types.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        last = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    quiet = {"level": "WARNING"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            },
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": level, "propagate": True},
            # Its request lines repeat what the web server says, with every 404.
            "django.request": {"level": "ERROR"},
            "django.server": {"handlers": [], "propagate": True},
            "uvicorn": {"handlers": [], "level": level, "propagate": True},
            # Its lines would carry every probe and every poll of an open page.
            "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": True},
            "axes": quiet,
            "urllib3": quiet,
            "kubernetes": quiet,
            "alibabacloud_credentials": quiet,
            "celery.beat": quiet,
            "celery.worker.strategy": quiet,
            "celery.app.trace": quiet if level != "DEBUG" else {"level": level},
        },
    }
