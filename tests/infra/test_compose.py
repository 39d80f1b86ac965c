"""The compose file runs the commands of `make run` with settings that exist, and knows no password by heart."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpupools.management import console_processes as parts

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
OURS = ("migrate", "web", "worker", "beat", "watcher")
NOT_SETTINGS = {"FORWARDED_ALLOW_IPS"}  # read by uvicorn itself


@pytest.fixture
def ground(tmp_path: Path) -> parts.Ground:
    return parts.Ground(
        folder=tmp_path,
        host="0.0.0.0",
        port=8000,
        redis_url="redis://127.0.0.1/0",
        fleet="demo",
        speed=1,
        environment={},
    )


def test_all_processes_of_the_console_are_there_and_the_embedded_cluster_is_not():
    assert set(SERVICES) == {"postgres", "redis", *OURS}


@pytest.mark.parametrize("name", OURS)
def test_a_service_gets_only_settings_that_are_read(name: str):
    settings = (ROOT / "console" / "settings.py").read_text(encoding="utf-8")
    for variable in set(SERVICES[name]["environment"]) - NOT_SETTINGS:
        assert f'"{variable}"' in settings


@pytest.mark.parametrize("name", ["worker", "beat", "web", "watcher"])
def test_a_service_runs_the_program_that_make_run_runs(name: str, ground: parts.Ground):
    children = {"watcher": lambda: parts.watcher(ground, clusters=1)}
    local = children.get(name, lambda: getattr(parts, name)(ground))().command
    # From the module or command on: interpreter, paths and what only one of them needs aside.
    program = next(word for word in local if word in {"celery", "uvicorn", "watchclusters"})
    composed = SERVICES[name]["command"]
    assert program in composed
    for option in ("--pool", "--concurrency", "--lifespan", "--without-gossip"):
        if option in local and not option.startswith("--without"):
            assert composed[composed.index(option) + 1] == local[local.index(option) + 1]


@pytest.mark.parametrize(
    "secret", ["POSTGRES_PASSWORD", "REDIS_PASSWORD", "GPUPOOLS_SECRET_KEY", "GPUPOOLS_CREDENTIALS_KEY"]
)
def test_a_secret_has_no_default_and_its_lack_is_refused(secret: str):
    uses = re.findall(rf"\$\{{{secret}([^}}]*)\}}", TEXT)
    assert uses
    assert all(use.startswith(":?") for use in uses)


def test_the_readme_tells_every_variable_that_compose_refuses_to_start_without():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for variable in set(re.findall(r"\$\{(\w+):\?", TEXT)):
        assert re.search(rf"^{variable}=", readme, re.MULTILINE), variable


def test_only_loopback_of_the_host_is_opened():
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
