"""Log lines carry the request's id, in both formats, and hold one event each."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEAK = """
import logging, structlog, django
django.setup()
structlog.contextvars.bind_contextvars(request_id="request-0001")
structlog.get_logger("gpupools.one").info("ours", pool="a10")
logging.getLogger("gpupools.two").warning("with %s", "arguments", extra={"color_message": "x"})
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("gpupools.three").exception("failed")
"""


def lines(form: str) -> list[str]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings", "GPUPOOLS_LOG_FORMAT": form}
    done = subprocess.run(
        [sys.executable, "-c", SPEAK], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()


def test_machines_read_one_json_object_per_event():
    ours, theirs, failed = (json.loads(line) for line in lines("json"))
    assert (ours["event"], ours["pool"], ours["level"], ours["logger"]) == ("ours", "a10", "info", "gpupools.one")
    assert theirs["event"] == "with arguments"
    assert "color_message" not in theirs
    assert "ZeroDivisionError" in failed["exception"]
    assert {line["request_id"] for line in (ours, theirs, failed)} == {"request-0001"}


def test_people_read_plain_lines_without_colour_codes():
    text = "\n".join(lines("console"))
    assert "request_id=request-0001" in text
    assert "ZeroDivisionError" in text
    assert "\x1b[" not in text
