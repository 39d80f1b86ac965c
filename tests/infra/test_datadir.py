"""The data folder is private, keeps its secrets, and belongs to one console at a time."""

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gpupools.errors import Conflict, Invalid
from gpupools.management.datadir import DataLock, keep_secrets, prepare


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_for_their_owner_alone(tmp_path: Path):
    prepare(tmp_path / "var")
    assert mode(tmp_path / "var") == 0o700
    assert mode(tmp_path / "var" / "logs") == 0o700


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="cannot be used"):
        prepare(tmp_path / "file" / "var")


def test_secrets_are_made_once_and_readable_by_their_owner_alone(tmp_path: Path):
    assert keep_secrets(tmp_path, {}) == ["secret-key", "credentials-key"]
    first = (tmp_path / "secret-key").read_text()
    assert keep_secrets(tmp_path, {}) == []
    assert (tmp_path / "secret-key").read_text() == first
    assert len(first.strip()) >= 50
    assert mode(tmp_path / "secret-key") == mode(tmp_path / "credentials-key") == 0o600
    Fernet((tmp_path / "credentials-key").read_text().strip().encode())


def test_a_secret_that_others_can_read_is_closed_to_them_again(tmp_path: Path):
    keep_secrets(tmp_path, {})
    (tmp_path / "secret-key").chmod(0o644)
    keep_secrets(tmp_path, {})
    assert mode(tmp_path / "secret-key") == 0o600


def test_no_file_is_made_for_a_secret_of_the_environment(tmp_path: Path):
    made = keep_secrets(tmp_path, {"GPUPOOLS_SECRET_KEY": "x", "GPUPOOLS_CREDENTIALS_KEY_FILE": "/run/secrets/key"})
    assert made == []
    assert not (tmp_path / "secret-key").exists()


def test_a_second_console_on_the_folder_is_refused_until_the_first_ends(tmp_path: Path):
    first, second = DataLock(tmp_path), DataLock(tmp_path)
    first.take()
    with pytest.raises(Conflict, match="already runs on .* --data-dir"):
        second.take()
    first.release()
    second.take()
    second.release()
