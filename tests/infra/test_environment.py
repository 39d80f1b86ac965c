"""Readers of the environment give the right type, or refuse with the variable, what was found and what is allowed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from console import environment

ROOT = Path(__file__).parents[2]
NAME = "GPUPOOLS_TEST_READER"


@pytest.mark.parametrize("word", ["true", "True", "YES", "on", "1", " true "])
def test_a_switch_is_on_for_words_that_mean_yes(monkeypatch: pytest.MonkeyPatch, word: str):
    monkeypatch.setenv(NAME, word)
    assert environment.envbool(NAME, False) is True


@pytest.mark.parametrize("word", ["false", "No", "OFF", "0"])
def test_a_switch_is_off_for_words_that_mean_no(monkeypatch: pytest.MonkeyPatch, word: str):
    monkeypatch.setenv(NAME, word)
    assert environment.envbool(NAME, True) is False


@pytest.mark.parametrize("found", ["ture", "2", "enabled", "-"])
def test_a_switch_refuses_other_words_by_name(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setenv(NAME, found)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME}: found '{found}'; allowed is true or false"):
        environment.envbool(NAME, False)


@pytest.mark.parametrize("empty", ["", "   "])
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, empty: str):
    monkeypatch.setenv(NAME, empty)
    assert environment.envbool(NAME, True) is True
    assert environment.envint(NAME, 7, lowest=1, highest=9) == 7
    assert environment.envstr(NAME, "word") == "word"
    assert environment.envlist(NAME, ["a"]) == ["a"]
    assert environment.envsecret(NAME) == ""


@pytest.mark.parametrize("found", ["many", "1.5", "1_0", "+3", "٣", "0", "10", "-1", "0x3"])
def test_a_number_refuses_what_is_not_a_whole_number_within_its_bounds(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setenv(NAME, found)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME}: found .*a whole number from 1 to 9"):
        environment.envint(NAME, 5, lowest=1, highest=9)


@pytest.mark.parametrize("bound", ["1", "9"])
def test_a_numbers_bounds_are_allowed_themselves(monkeypatch: pytest.MonkeyPatch, bound: str):
    monkeypatch.setenv(NAME, bound)
    assert environment.envint(NAME, 5, lowest=1, highest=9) == int(bound)


def test_a_text_with_choices_refuses_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NAME, "fr")
    with pytest.raises(ImproperlyConfigured, match=f"{NAME}: found 'fr'; allowed is one of en, es"):
        environment.envstr(NAME, "en", choices=("en", "es"))


def test_a_list_drops_blanks_and_empty_entries(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(NAME, " a, b ,,c,")
    assert environment.envlist(NAME, ()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("", ("size-0", "delete")),
        ("  ", ("size-0", "delete")),
        ("none", ()),
        ("delete", ("delete",)),
        ("delete , size-0,", ("size-0", "delete")),
        ("delete,delete", ("delete",)),
    ],
)
def test_a_list_of_known_words_is_off_only_by_the_word_none(
    monkeypatch: pytest.MonkeyPatch, found: str, words: tuple[str, ...]
):
    monkeypatch.setenv(NAME, found)
    assert environment.envwords(NAME, ("size-0", "delete"), choices=("size-0", "delete")) == words


@pytest.mark.parametrize(
    ("found", "bad"), [("size0", "size0"), ("delete,none", "none"), ("delete;size-0", "delete;size-0")]
)
def test_a_word_that_nobody_knows_is_refused_with_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, found: str, bad: str
):
    monkeypatch.setenv(NAME, found)
    with pytest.raises(
        ImproperlyConfigured, match=f"{NAME}: found '{bad}'; allowed is none, or a list out of size-0, delete"
    ):
        environment.envwords(NAME, ("size-0",), choices=("size-0", "delete"))


@pytest.mark.parametrize("found", ["console.example.com", "https://", "ftp://a", "https://a/path"])
def test_an_origin_without_scheme_or_host_or_with_a_path_is_refused(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setenv(NAME, found)
    with pytest.raises(ImproperlyConfigured, match=NAME):
        environment.envorigins(NAME)


class TestSecret:
    """Secrets come from NAME, NAME_FILE or the data folder, and never show in a refusal."""

    def test_it_is_read_from_the_file_that_the_variable_names(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        (tmp_path / "secret").write_text("hush\n")
        monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "secret"))
        assert environment.envsecret(NAME) == "hush"

    def test_the_variable_wins_over_the_file_it_is_kept_in(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        (tmp_path / "kept").write_text("old")
        monkeypatch.setenv(NAME, "new")
        assert environment.envsecret(NAME, kept_in=tmp_path / "kept") == "new"

    def test_it_is_read_from_where_it_is_kept(self, tmp_path: Path):
        (tmp_path / "kept").write_text("old\n")
        assert environment.envsecret(NAME, kept_in=tmp_path / "kept") == "old"

    def test_both_ways_at_once_are_refused_without_showing_the_secret(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(NAME, "hush")
        monkeypatch.setenv(f"{NAME}_FILE", "/nowhere")
        with pytest.raises(ImproperlyConfigured, match=f"{NAME} and {NAME}_FILE") as refusal:
            environment.envsecret(NAME)
        assert "hush" not in str(refusal.value)

    def test_a_file_that_cannot_be_read_is_refused(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(f"{NAME}_FILE", "/nowhere/secret")
        with pytest.raises(ImproperlyConfigured, match=f"{NAME}_FILE: found '/nowhere/secret'"):
            environment.envsecret(NAME)


class TestDatabase:
    """SQLite and PostgreSQL addresses become settings that hold under concurrency."""

    def test_sqlite_writes_immediately_and_keeps_a_log(self, tmp_path: Path):
        found = environment.envdatabase(NAME, tmp_path / "rows.sqlite3")
        assert found["NAME"] == str(tmp_path / "rows.sqlite3")
        assert found["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
        assert "journal_mode=WAL" in found["OPTIONS"]["init_command"]

    def test_postgresql_uses_a_pool_and_no_lasting_connections(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(NAME, "postgresql://me:p%40ss@db.example.com:5433/rows?sslmode=require")
        found = environment.envdatabase(NAME, Path("unused"))
        assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"], found["NAME"]) == (
            "me", "p@ss", "db.example.com", "5433", "rows",
        )  # fmt: skip
        assert found["CONN_MAX_AGE"] == 0
        assert found["OPTIONS"]["pool"]["max_size"] > 1
        assert found["OPTIONS"]["sslmode"] == "require"

    @pytest.mark.parametrize(
        "found", ["mysql://me:hush@db/rows", "postgresql://me:hush@db", "postgresql://me:hush@db:port/rows", "rows.db"]
    )
    def test_other_addresses_are_refused_without_the_password(self, monkeypatch: pytest.MonkeyPatch, found: str):
        monkeypatch.setenv(NAME, found)
        with pytest.raises(ImproperlyConfigured, match=NAME) as refusal:
            environment.envdatabase(NAME, Path("unused"))
        assert "hush" not in str(refusal.value)


@pytest.mark.parametrize("found", ["http://cache", "redis://", "redis://:hush@cache:port", "redis://:hush@cache/name"])
def test_a_broker_address_of_another_kind_is_refused_without_the_password(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setenv(NAME, found)
    with pytest.raises(ImproperlyConfigured, match=NAME) as refusal:
        environment.envredis(NAME, "redis://127.0.0.1:6379/0")
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize("found", ["redis://cache", "redis://:secret@cache:6380/2", "rediss://user:secret@cache"])
def test_a_broker_address_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setenv(NAME, found)
    assert environment.envredis(NAME, "redis://127.0.0.1:6379/0") == found


def test_a_command_whose_database_cannot_be_opened_says_where_it_looked(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "inspect"],
        env={**os.environ, "GPUPOOLS_DATA_DIR": str(nowhere), "DATABASE_URL": f"sqlite:///{nowhere}/x.sqlite3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"It is the file {nowhere}/x.sqlite3" in done.stderr
