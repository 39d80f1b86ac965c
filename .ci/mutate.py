"""Changes the rules of allocation and placement one small thing at a time and looks whether a test notices.

Works on a copy in a temporary folder with an environment of its own, so that the checkout and .venv stay as they are.
Prints the changes that no test noticed; each is a wish for a test, unless it changes no answer. Takes some minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOL = "mutmut==3.8.1"
NEEDS = ("msgspec", "pyyaml", "pytest", "hypothesis", "pytest-asyncio")
# What allocation.py and placement.py are, with what they were split into.
RULES = (
    "allocation", "placement", "devices", "filters", "wishes", "asks", "states", "groups", "topology", "ledger",
    "verdicts", "totals", "explain",
)  # fmt: skip
# It reads pages of docs/, which no rule is in.
NOT_COPIED = "test_failure_scenarios.py"


def pinned() -> list[str]:
    """Return the versions of the checkout's own pins for what the copy needs."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "requirements-dev.txt"))
    found = {name: re.search(rf"(?im)^{re.escape(name)}==(\S+)", text) for name in NEEDS}
    return [f"{name}=={version[1]}" if version else name for name, version in found.items()]


def copy_to(folder: Path) -> None:
    """Copy the rules and their tests, and tell the tool about them."""
    ignored = shutil.ignore_patterns("__pycache__")
    (folder / "gpupools").mkdir()
    (folder / "tests").mkdir()
    shutil.copytree(ROOT / "gpupools" / "domain", folder / "gpupools" / "domain", ignore=ignored)
    for name in ("gpupools/__init__.py", "gpupools/errors.py", "tests/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    others = shutil.ignore_patterns("__pycache__", NOT_COPIED)
    shutil.copytree(ROOT / "tests" / "domain", folder / "tests" / "domain", ignore=others)
    paths = "".join(f"\n    gpupools/domain/{name}.py" for name in RULES)
    (folder / "setup.cfg").write_text(
        f"[mutmut]\npaths_to_mutate={paths}\ntests_dir=\n    tests/domain\nalso_copy=\n    gpupools\n    tests\n\n"
        "[tool:pytest]\naddopts = --import-mode=importlib -q\npythonpath = .\nasyncio_mode = auto\n",
        encoding="utf-8",
    )


def main() -> int:
    """Run the tool; the exit code says whether anything survived."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", TOOL, *pinned()], check=True)  # noqa: S603  # our pins
        work = folder / "copy"
        work.mkdir()
        copy_to(work)
        tool = folder / "venv" / "bin" / "mutmut"
        subprocess.run([tool, "run", *sys.argv[1:]], cwd=work, check=True)  # noqa: S603  # our own command
        done = subprocess.run([tool, "results"], cwd=work, check=True, capture_output=True, text=True)  # noqa: S603
        survivors = [line.strip().partition(":")[0] for line in done.stdout.splitlines() if "survived" in line]
        for survivor in survivors:
            subprocess.run([tool, "show", survivor], cwd=work, check=True)  # noqa: S603  # its own names
        print(f"\n{len(survivors)} changes were not noticed")  # noqa: T201  # a script of the build
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
