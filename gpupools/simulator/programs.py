"""What containers do: which lines they print when, how long they run and how they end.

Known commands (shells, sleep, nvidia-smi, python training scripts, servers) behave as their names say; an unknown
program works for half a minute in a pod that may end, and runs on in one that shall not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from gpupools.simulator import nvidiasmi
from gpupools.simulator.nvidiasmi import VisibleCard
from gpupools.simulator.shell import FOREVER, Complaint, OutOfMemory, Run, Shell, sleep_seconds

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_TRAINING_SECONDS = 60.0
_UNKNOWN_SECONDS = 30.0
# Images whose own command is a shell: without a terminal it ends at once.
_SHELL_IMAGES = ("alpine", "busybox", "debian", "ubuntu", "centos", "nvidia/cuda", "cuda", "python", "bash")
_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_FILES_AT_ROOT = ("bin", "dev", "etc", "home", "lib", "proc", "root", "sys", "tmp", "usr", "var")
_UNAME = "Linux embedded 5.10.134-19.2.al8.x86_64 #1 SMP x86_64 GNU/Linux"
_SERVERS = ("nginx", "httpd", "redis", "pause", "tritonserver", "vllm", "serving", "server")


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a program can see. ``may_end``: the pod's restart policy is not Always."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    cards: tuple[VisibleCard, ...]
    started: datetime
    may_end: bool
    memory_limit_bytes: int = 0  # 0: as much as the node has
    daemon: str = ""  # name of the DaemonSet that the pod belongs to


def program(situation: Situation) -> Run:
    """Return the program's steps: (seconds since its start, line or None); the generator's value is its exit code."""
    if situation.daemon:
        return _service([f"{situation.daemon} started", "Registered with the kubelet"])
    argv = [*situation.command, *situation.args]
    if not argv:
        return _image_default(situation)
    return _Interpreter(situation).command(argv, situation.env)


def execution(situation: Situation, argv: Sequence[str]) -> Run:
    """Return the steps of a command that is run beside a container's own program; it must be known."""
    return _Interpreter(situation, strict=True).command(argv, situation.env)


def knows(situation: Situation, name: str) -> bool:
    """Return whether a container has a command."""
    return _Interpreter(situation, strict=True).knows(name)


def is_open_shell(argv: Sequence[str]) -> bool:
    """Return whether a command line is a shell that reads what to do from its input."""
    return PurePosixPath(argv[0]).name in _SHELLS and all(word.startswith("-") and "c" not in word for word in argv[1:])


def shell_of(situation: Situation) -> Shell:
    """Return a shell inside a container."""
    return Shell(situation.env, _Interpreter(situation, strict=True).command)


def _image_default(situation: Situation) -> Run:
    name = situation.image.rsplit("/", 1)[-1].partition(":")[0].partition("@")[0]
    if any(known in name for known in _SERVERS):
        return _service([f"{name} is ready"])
    if name in _SHELL_IMAGES:
        return _ends(0.1, [], 0)
    return _unknown(situation, name)


def _service(lines: Sequence[str]) -> Run:
    for position, line in enumerate(lines):
        yield 0.2 * (position + 1), line
    yield FOREVER, None
    return 0


def _ends(seconds: float, lines: Sequence[str], code: int) -> Run:
    for line in lines:
        yield 0.0, line
    yield seconds, None
    return code


def _unknown(situation: Situation, name: str) -> Run:
    if not situation.may_end:
        return _service([f"{name} started"])
    return _ends(_UNKNOWN_SECONDS, [f"{name} started"], 0)


class _Interpreter:
    """Runs commands in one container, be it from its argv or from a shell script.

    ``strict``: a command that nobody knows is not there; else it is taken for the image's own program.
    """

    def __init__(self, situation: Situation, *, strict: bool = False) -> None:
        self._situation = situation
        self._strict = strict
        self._known: dict[str, Callable[[Sequence[str], Mapping[str, str]], Run]] = {
            "sleep": self._sleep,
            "nvidia-smi": self._nvidia_smi,
            "env": self._env,
            "printenv": self._env,
            "true": lambda words, env: _ends(0.0, [], 0),
            "false": lambda words, env: _ends(0.0, [], 1),
            "echo": lambda words, env: _ends(0.0, [" ".join(words)], 0),
            "printf": self._printf,
            "date": self._date,
            "hostname": lambda words, env: _ends(0.0, [env.get("HOSTNAME", "")], 0),
            "pwd": lambda words, env: _ends(0.0, ["/"], 0),
            "seq": self._seq,
            "exit": lambda words, env: _ends(0.0, [], int(words[0]) if words and words[0].isdigit() else 0),
            "pause": lambda words, env: _service([]),
            "nginx": lambda words, env: _service(["nginx is ready"]),
            "tail": lambda words, env: self._use_memory(2**60) if "/dev/zero" in words else _service([]),
            "stress": self._stress,
            "stress-ng": self._stress,
            "cat": self._cat,
            "ls": lambda words, env: _ends(0.0, _FILES_AT_ROOT if words in ([], ["/"]) else [], 0),
            "whoami": lambda words, env: _ends(0.0, ["root"], 0),
            "id": lambda words, env: _ends(0.0, ["uid=0(root) gid=0(root) groups=0(root)"], 0),
            "uname": lambda words, env: _ends(0.0, [_UNAME if "-a" in words else "Linux"], 0),
        }

    def knows(self, name: str) -> bool:
        """Return whether there is such a command; nvidia-smi comes with the cards."""
        plain = PurePosixPath(name).name
        if plain == "nvidia-smi":
            return bool(self._situation.cards)
        return plain in _SHELLS or plain in self._known or plain.startswith("python")

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> Run:
        """Run one command line that is split into words already."""
        name = PurePosixPath(argv[0]).name
        words = list(argv[1:])
        if name in _SHELLS:
            return self._shell(words, env)
        if name in self._known:
            return self._known[name](words, env)
        if name.startswith("python") or name in ("torchrun", "mpirun", "horovodrun", "accelerate"):
            return self._python(words)
        if self._strict:
            return _ends(0.0, [Complaint(f"sh: {name}: not found")], 127)
        return _unknown(self._situation, name)

    def _cat(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        files = {"/etc/hostname": env.get("HOSTNAME", ""), "/etc/os-release": 'PRETTY_NAME="Embedded Linux"'}
        lines = [files.get(name) or Complaint(f"cat: {name}: No such file or directory") for name in words]
        return _ends(0.0, lines, int(any(isinstance(line, Complaint) for line in lines)))

    def _shell(self, words: list[str], env: Mapping[str, str]) -> Run:
        for position, word in enumerate(words):
            if word.startswith("-") and "c" in word and position + 1 < len(words):
                return Shell(env, self.command).run(words[position + 1])
        if not words:
            return _ends(0.1, [], 0)
        return _unknown(self._situation, words[0])

    def _sleep(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        seconds = sleep_seconds(words)
        if seconds is None:
            return _ends(0.0, [f"sleep: invalid time interval '{' '.join(words)}'"], 1)
        return _ends(seconds, [], 0)

    def _nvidia_smi(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        if not self._situation.cards:
            yield 0.0, Complaint("sh: nvidia-smi: not found")
            return 127
        lines, code = nvidiasmi.run(words, self._situation.cards, self._situation.started)
        # Talking to the driver takes a moment.
        yield 0.4, None
        for line in lines:
            yield 0.4, line
        return code

    def _stress(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        """Use memory: ``stress --vm 1 --vm-bytes 2G``."""
        text = " ".join(words)
        asked = re.search(r"--vm-bytes[ =](\d+)([kKmMgG]?)", text)
        workers = re.search(r"(?:--vm|-m)[ =](\d+)", text)
        size = int(asked[1]) * _SIZES[asked[2].lower()] if asked else 0
        return self._use_memory(size * (int(workers[1]) if workers else 1))

    def _use_memory(self, size_bytes: int) -> Run:
        limit = self._situation.memory_limit_bytes or 2**40
        if size_bytes > limit:
            yield 1.0, None
            return OutOfMemory(137)
        yield FOREVER, None
        return 0

    def _env(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        if words:
            return _ends(0.0, [env[word] for word in words if word in env], int(words[0] not in env))
        return _ends(0.0, [f"{name}={value}" for name, value in env.items()], 0)

    def _printf(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        text = " ".join(words).replace("\\n", "\n")
        return _ends(0.0, text.splitlines(), 0)

    def _date(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        return _ends(0.0, [self._situation.started.strftime("%a %b %e %H:%M:%S UTC %Y")], 0)

    def _seq(self, words: Sequence[str], env: Mapping[str, str]) -> Run:
        numbers = [int(word) for word in words if word.lstrip("-").isdigit()]
        first, last = (numbers[0], numbers[-1]) if len(numbers) > 1 else (1, numbers[0] if numbers else 0)
        return _ends(0.0, [str(number) for number in range(first, last + 1)], 0)

    def _python(self, words: list[str]) -> Run:
        if "-c" in words[:-1]:
            return self._python_code(words[words.index("-c") + 1])
        text = " ".join(words).lower()
        if any(word in text for word in ("mnist", "train", "tfjob", "finetune", "resnet", "benchmark")):
            return self._training(words)
        return _unknown(self._situation, PurePosixPath(words[0]).name if words else "python")

    def _python_code(self, code: str) -> Run:
        at, exit_code = 0.1, 0
        for statement in code.replace("\n", ";").split(";"):
            words = statement.strip()
            if words.startswith("print("):
                yield at, words[6:].rstrip(")").strip("'\"")
            elif "sleep(" in words:
                seconds = sleep_seconds([words.partition("sleep(")[2].rstrip(") ")])
                at += seconds or 0.0
                yield at, None
            elif words.startswith(("sys.exit(", "exit(")):
                digits = words.partition("(")[2].rstrip(") ")
                exit_code = int(digits) if digits.isdigit() else 1
                break
            elif words.startswith("raise "):
                yield at, "Traceback (most recent call last):"
                yield at, words.removeprefix("raise ").replace("('", ": ").rstrip("')")
                exit_code = 1
                break
        yield at, None
        return exit_code

    def _training(self, words: Sequence[str]) -> Run:
        """Train: find the cards, print the accuracy every few steps, end after a while."""
        steps = _max_steps(words)
        for number, card in enumerate(self._situation.cards):
            usable_mib = card.memory_mib * 95 // 100
            yield (
                2.0,
                f"Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:{number} with {usable_mib} MB "
                f"memory) -> physical GPU (device: {number}, name: {card.name}, pci bus id: {card.bus_id})",
            )
        if not self._situation.cards:
            yield 2.0, "No GPU found, training on the CPU"
        every = max(1, steps // 100)
        for step in range(0, steps + 1, every):
            at = 3.0 + (_TRAINING_SECONDS - 4.0) * step / max(1, steps)
            yield at, f"Accuracy at step {step}: {_accuracy(step):.4f}"
        yield _TRAINING_SECONDS, "Training finished"
        return 0


def _max_steps(words: Sequence[str]) -> int:
    for position, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.lstrip("-").replace("-", "_") in ("max_steps", "steps", "train_steps"):
            value = value or (words[position + 1] if position + 1 < len(words) else "")
            if value.isdigit() and int(value) > 0:
                return min(int(value), 1_000_000)
    return 1000


def _accuracy(step: int) -> float:
    """A learning curve: from guessing one digit in ten to what the sample reaches."""
    return 0.9685 - 0.87 / (1.0 + step / 18.0)
