"""Settings of a test run: the product's own, on a temporary data folder and a broker port of its own.

The environment is set before the product's settings are read, and child processes inherit it.
"""

import os
import socket
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet

DATA_DIR = Path(tempfile.mkdtemp(prefix="gpupools-test-"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


for _name in [name for name in os.environ if name.startswith("GPUPOOLS_") and not name.startswith("GPUPOOLS_TEST_")]:
    # What the developer has exported for a console of their own must not change what the tests see.
    del os.environ[_name]
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "console.settings",
    "GPUPOOLS_DATA_DIR": str(DATA_DIR),
    "GPUPOOLS_SECRET_KEY": "only-for-tests-" + os.urandom(32).hex(),
    "GPUPOOLS_CREDENTIALS_KEY": Fernet.generate_key().decode(),
    "GPUPOOLS_ALLOW_LOOPBACK_CLUSTERS": "true",
    "DATABASE_URL": os.environ.get("GPUPOOLS_TEST_POSTGRES_URL", "")
    if os.environ.get("GPUPOOLS_TEST_DATABASE") == "postgresql"
    else f"sqlite:///{DATA_DIR}/console.sqlite3",
    "REDIS_URL": os.environ.get("GPUPOOLS_TEST_REDIS_URL") or f"redis://127.0.0.1:{_free_port()}/0",
}
os.environ.pop("PORT", None)

from console import settings as product  # noqa: E402  # reads the environment set above

globals().update({name: getattr(product, name) for name in dir(product) if name.isupper()})

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F821  # taken over from the product above
    # A file, not memory: threads and child processes of a test must see the same rows.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}  # noqa: F821  # as above

# The real one takes a quarter of a second per password, by design.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
