"""What a tour found: steps with their status, and the allocation tables as text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from gpupools.errors import ConsoleError
from gpupools.management.touring.client import NoAnswer, Refusal

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


class Failed(Exception):
    """A step did not come out as it must."""


class Skipped(Exception):
    """A step needs what this cluster lacks; the message says what."""


@dataclass
class Step:
    """One step, as it is printed."""

    name: str
    status: str
    seconds: float
    detail: str = ""


@dataclass
class Report:
    """All steps in order. ``whole``: this cluster lacks nothing, so a skipped step is a failed one."""

    say: Callable[[str], None]
    whole: bool
    steps: list[Step] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Run one step: it may set ``detail``, raise Failed or Skipped; what the console refuses fails it."""
        step, began = Step(name, OK, 0.0), time.monotonic()
        try:
            yield step
        except Skipped as reason:
            step.status, step.detail = (FAILED if self.whole else SKIPPED), str(reason)
        except (Failed, Refusal, NoAnswer, ConsoleError) as reason:
            step.status, step.detail = FAILED, str(reason)
        except BaseException as reason:
            step.status, step.detail = FAILED, f"{type(reason).__name__}: {reason}"
            raise
        finally:
            step.seconds = round(time.monotonic() - began, 2)
            self.steps.append(step)
            self.say(f"{step.status:<8}{step.seconds:>7.1f} s  {step.name}{f': {step.detail}' if step.detail else ''}")

    def passed(self, name: str) -> bool:
        """Tell whether a step of this name has passed."""
        return any(step.name == name and step.status == OK for step in self.steps)

    @property
    def failed(self) -> bool:
        """Tell whether any step failed, or none was made."""
        return not self.steps or any(step.status == FAILED for step in self.steps)

    def as_text(self) -> str:
        """Return one JSON object, and the tables below it."""
        counts = {status: sum(step.status == status for step in self.steps) for status in (OK, FAILED, SKIPPED)}
        head = json.dumps({"steps": [asdict(step) for step in self.steps], "counts": counts}, indent=1)
        return "\n\n".join([head, *self.tables])
