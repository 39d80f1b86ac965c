"""The settings as a whole, read by a process of its own: defaults stand alone, nonsense is refused by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def read(expression: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Evaluate an expression over the settings in a process that has only this environment."""
    bare = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    return subprocess.run(
        [sys.executable, "-c", f"from django.conf import settings; print(({expression}))"],
        env={**bare, "DJANGO_SETTINGS_MODULE": "console.settings", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_any_variable_the_console_stands_alone_on_this_machine():
    found = read(
        "settings.DEBUG, settings.ALLOWED_HOSTS, settings.GPUPOOLS_PORT, settings.DATABASES['default']['ENGINE']"
    )
    assert found.stdout.strip() == ("(False, ['localhost', '127.0.0.1', '[::1]'], 8000, 'django.db.backends.sqlite3')")


@pytest.mark.parametrize(
    ("variable", "nonsense"),
    [
        ("GPUPOOLS_DEBUG", "perhaps"),
        ("PORT", "80000"),
        ("GPUPOOLS_POLL_SECONDS", "soon"),
        ("GPUPOOLS_MAX_MANIFEST_BYTES", "-1"),
        ("GPUPOOLS_LANGUAGE_CODE", "xx"),
        ("GPUPOOLS_LOG_LEVEL", "LOUD"),
        ("GPUPOOLS_TRUSTED_ORIGINS", "console.example.com"),
        ("DATABASE_URL", "oracle://rows"),
        ("REDIS_URL", "localhost:6379"),
        ("GPUPOOLS_TIME_ZONE", "Mars/Olympus"),
    ],
)
def test_nonsense_is_refused_at_start_by_the_variables_name(variable: str, nonsense: str):
    found = read("settings.DEBUG", **{variable: nonsense})
    assert found.returncode != 0
    last_line = found.stderr.strip().splitlines()[-1]
    assert variable in last_line
    assert nonsense in last_line


def test_a_secret_key_that_is_kept_in_the_data_folder_is_used(tmp_path: Path):
    (tmp_path / "secret-key").write_text("kept-" + "x" * 60 + "\n")
    found = read("settings.SECRET_KEY[:5], settings.GPUPOOLS_SECRET_KEY_IS_TEMPORARY", GPUPOOLS_DATA_DIR=str(tmp_path))
    assert found.stdout.strip() == "('kept-', False)"


def test_a_command_beside_a_running_console_finds_its_broker(tmp_path: Path):
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "url").write_text("redis://127.0.0.1:4242/0\n")
    assert read("settings.REDIS_URL", GPUPOOLS_DATA_DIR=str(tmp_path)).stdout.strip() == "redis://127.0.0.1:4242/0"


def test_reading_the_settings_makes_no_file(tmp_path: Path):
    read("settings.SECRET_KEY", GPUPOOLS_DATA_DIR=str(tmp_path / "var"))
    assert not (tmp_path / "var").exists()


def test_https_makes_cookies_secure_and_believes_the_proxy():
    found = read(
        "settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE, settings.SECURE_SSL_REDIRECT, "
        "settings.SECURE_PROXY_SSL_HEADER, settings.SECURE_HSTS_SECONDS > 0",
        GPUPOOLS_HTTPS="true",
    )
    assert found.stdout.strip() == "(True, True, True, ('HTTP_X_FORWARDED_PROTO', 'https'), True)"


def test_collected_static_files_are_hashed_and_compressed(tmp_path: Path):
    found = read("settings.STORAGES['staticfiles']['BACKEND']", GPUPOOLS_STATIC_ROOT=str(tmp_path))
    assert found.stdout.strip() == "whitenoise.storage.CompressedManifestStaticFilesStorage"


def test_the_version_is_the_changelogs_newest():
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert read("settings.GPUPOOLS_VERSION").stdout.strip() == newest.split()[1]


@pytest.mark.parametrize("port", ["abc", "99999"])
def test_a_mistyped_variable_is_one_line_and_no_traceback(port: str):
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PORT": port, "DJANGO_SETTINGS_MODULE": "console.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("The console cannot start: PORT")
    assert len(ended.stderr.splitlines()) == 1
