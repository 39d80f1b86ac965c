"""A small shell for the commands that test pods run: it says what is printed when, and how it ends.

Commands joined by ``;``, ``&&``, ``||`` and pipes, variables, ``for`` and ``while`` loops; nothing touches this
machine. What it does not know is asked from its caller.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

# One thing that happens: seconds since the start, and the line that is printed (None: only time passed).
Step = tuple[float, str | None]
# Steps counted from the program's own start; the generator's value is the exit code.
Run = Generator[Step, None, int]
Command = Callable[[Sequence[str], Mapping[str, str]], Run]

FOREVER = float("inf")
_SYNTAX_ERROR = 2
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*)|\?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_JOINTS = frozenset({";", "&&", "||", "|", "&", ";;"})
_LOOP_WORDS = frozenset({"for", "while", "until"})


class OutOfMemory(int):
    """The exit code of a program that the kernel killed because it used more memory than its container may."""

    __slots__ = ()


class Complaint(str):
    """A line that goes to standard error."""

    __slots__ = ()


class ExitError(Exception):
    """The script called ``exit``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def sleep_seconds(words: Sequence[str]) -> float | None:
    """Return how long ``sleep`` with these arguments sleeps; None when it would complain."""
    total = 0.0
    for word in words:
        found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([smhd]?)", word)
        if word in ("infinity", "inf"):
            total = FOREVER
        elif found:
            total += float(found[1]) * _SECONDS[found[2]]
        else:
            return None
    return total if words else None


class Shell:
    """Runs one script. ``command`` runs everything that is not the shell's own."""

    def __init__(self, env: Mapping[str, str], command: Command) -> None:
        self._env = dict(env)
        self._command = command
        self._at = 0.0
        self._code = 0

    @property
    def elapsed(self) -> float:
        """Seconds that the scripts run so far took; steps of the next one count on from here."""
        return self._at

    def run(self, script: str) -> Run:
        """Yield the script's steps; the generator's value is the exit code."""
        try:
            tokens = _tokens(script)
        except ValueError:
            yield 0.0, Complaint("sh: syntax error: unterminated quoted string")
            return _SYNTAX_ERROR
        try:
            yield from self._list(tokens)
        except ExitError as end:
            return end.code
        return self._code

    def _list(self, tokens: list[str]) -> Iterator[Step]:
        joint = ";"
        for before, part in _parts(tokens):
            joint = before
            if not part or (joint == "&&" and self._code) or (joint == "||" and not self._code):
                continue
            if part[0] in _LOOP_WORDS:
                yield from self._loop(part)
            else:
                yield from self._pipeline(part)

    def _loop(self, tokens: list[str]) -> Iterator[Step]:
        inner = _inside(tokens)
        if inner is None:
            yield self._at, 'sh: syntax error: "done" expected'
            raise ExitError(_SYNTAX_ERROR)
        head, body = inner
        if head[0] == "for":
            for value in self._words(" ".join(head[3:])):
                self._env[head[1]] = value
                yield from self._list(body)
            return
        wanted = head[0] == "while"
        while True:
            started = self._at
            yield from self._list(head[1:])
            if (self._code == 0) != wanted:
                self._code = 0
                return
            yield from self._list(body)
            if self._at == started:
                # A loop that takes no time would never come to an end: let each round take a second.
                self._at += 1.0
                yield self._at, None

    def _words(self, text: str) -> list[str]:
        words: list[str] = []
        for word in shlex.split(self._expand(text).replace("$(", " $( ").replace(")", " ) ")):
            words.append(word)
        if words[:2] == ["$(", "seq"]:
            numbers = [int(word) for word in words[2:-1] if word.lstrip("-").isdigit()]
            first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1]) if numbers else (1, 0)
            return [str(number) for number in range(first, last + 1)]
        ranges = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", text.strip())
        if ranges:
            return [str(number) for number in range(int(ranges[1]), int(ranges[2]) + 1)]
        return words

    def _expand(self, piece: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0] == "$?":
                return str(self._code)
            return self._env.get(found[1] or found[3], found[2] or "")

        if piece.startswith("'"):
            return piece
        return _VARIABLE.sub(value, piece)

    def _pipeline(self, tokens: list[str]) -> Iterator[Step]:
        stages: list[list[str]] = [[]]
        for piece in tokens:
            if piece == "|":
                stages.append([])
            else:
                stages[-1].append(piece)
        split = [[word for piece in stage for word in self._split(piece)] for stage in stages]
        first, *filters = [_without_redirects(stage) for stage in split]
        quiet = any(_redirected(stage) for stage in split)
        if not filters:
            for at, line in self._simple(first):
                yield at, None if quiet else line
            return
        printed: list[str] = []
        for at, line in self._simple(first):
            if line is None:
                yield at, None
            else:
                printed.append(line)
        for words in filters:
            printed = _filtered(words, printed)
        for line in printed:
            yield self._at, None if quiet else line

    def _split(self, piece: str) -> list[str]:
        return shlex.split(self._expand(piece)) if piece else []

    def _simple(self, words: list[str]) -> Iterator[Step]:
        while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
            name, _, value = words.pop(0).partition("=")
            self._env[name] = value
        if not words:
            return
        name, *rest = words
        self._code = 0
        if name in ("exit", "return"):
            raise ExitError(int(rest[0]) & 255 if rest and rest[0].isdigit() else self._code)
        if name == "exec" and rest:
            yield from self._simple(rest)
            raise ExitError(self._code)
        if name == "export":
            for word in rest:
                key, _, value = word.partition("=")
                self._env[key] = value
        elif name == "echo":
            yield self._at, " ".join(rest[1:] if rest[:1] in (["-n"], ["-e"]) else rest)
        elif name in (":", "true", "set", "cd", "trap", "wait", "mkdir", "touch", "ulimit"):
            return
        elif name in ("false", "test", "["):
            self._code = 1 if name == "false" else self._test(rest)
        else:
            yield from self._foreign(words)

    def _foreign(self, words: list[str]) -> Iterator[Step]:
        started = self._at
        steps = self._command(words, self._env)
        while True:
            try:
                offset, line = next(steps)
            except StopIteration as end:
                self._code = end.value or 0
                return
            self._at = started + offset
            yield self._at, line

    def _test(self, words: list[str]) -> int:
        words = [word for word in words if word != "]"]
        if len(words) == 3 and words[1] in ("=", "==", "-eq"):
            return int(words[0] != words[2])
        if len(words) == 3 and words[1] in ("!=", "-ne"):
            return int(words[0] == words[2])
        if len(words) == 2 and words[0] in ("-n", "-z"):
            return int(bool(words[1]) != (words[0] == "-n"))
        return 0 if words else 1


def _tokens(script: str) -> list[str]:
    """Split a script at blanks and joints, keeping quotes; a line's end is a joint."""
    script = re.sub(r"\\\n", " ", script)
    script = re.sub(r"(^|\s)#[^\n]*", r"\1", script)
    script = re.sub(r"\d?>&\d", "", script)
    tokens: list[str] = []
    for line in _lines_outside_quotes(script):
        lexer = shlex.shlex(line, posix=False, punctuation_chars=";&|")
        lexer.whitespace_split = True
        lexer.commenters = ""
        tokens += [*lexer, ";"]
    return tokens


def _lines_outside_quotes(script: str) -> list[str]:
    lines, quote = [""], ""
    for letter in script:
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        if letter == "\n" and not quote:
            lines.append("")
        else:
            lines[-1] += letter
    return lines


def _parts(tokens: list[str]) -> list[tuple[str, list[str]]]:
    """Cut at ``;``, ``&&`` and ``||`` outside loops: pairs of the joint before, and the tokens."""
    parts: list[tuple[str, list[str]]] = [(";", [])]
    depth = 0
    for piece in tokens:
        if piece in _LOOP_WORDS:
            depth += 1
        elif piece == "done":
            depth -= 1
        if depth <= 0 and piece in _JOINTS and piece != "|":
            parts.append((";" if piece in ("&", ";;") else piece, []))
        else:
            parts[-1][1].append(piece)
    return parts


def _inside(tokens: list[str]) -> tuple[list[str], list[str]] | None:
    """Split a loop into what stands before its ``do`` and between ``do`` and its ``done``."""
    if "do" not in tokens or tokens[-1] != "done":
        return None
    start = tokens.index("do")
    head = tokens[:start]
    while head and head[-1] == ";":
        head.pop()
    return head, tokens[start + 1 : -1]


def _without_redirects(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif re.fullmatch(r"\d?>>?(&\d)?|<", word):
            skip = "&" not in word
        elif not re.fullmatch(r"\d?>>?\S+", word):
            kept.append(word)
    return kept


def _redirected(words: list[str]) -> bool:
    """Return whether what a command prints goes to a file."""
    return any(re.match(r"1?>", word) for word in words)


def _filtered(words: list[str], lines: list[str]) -> list[str]:
    """Apply one stage of a pipe to what came before it."""
    name, *rest = words or [""]
    plain = [word for word in rest if not word.startswith("-")]
    if name == "wc":
        return [str(len(lines))]
    if name in ("head", "tail"):
        digits = re.search(r"\d+", " ".join(rest))
        count = int(digits[0]) if digits else 10
        return lines[:count] if name == "head" else lines[-count:]
    if name == "grep":
        pattern = plain[0] if plain else ""
        options = "".join(word for word in rest if word.startswith("-"))
        if "i" in options:
            return [line for line in lines if (pattern.lower() in line.lower()) != ("v" in options)]
        return [line for line in lines if (pattern in line) != ("v" in options)]
    if name == "sed":
        found = re.fullmatch(r"s(.)(.*?)\1(.*?)\1(g?)", plain[0]) if plain else None
        if found:
            return [line.replace(found[2], found[3], -1 if found[4] else 1) for line in lines]
    if name == "sort":
        return sorted(lines)
    return lines
