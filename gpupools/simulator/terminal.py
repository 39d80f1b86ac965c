"""The input side of an exec session: lines from bytes, with a terminal's echo and editing keys where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

_END, _INTERRUPT, _BACKSPACES = "\x04", "\x03", "\x7f\b"
MOST_WAITING_BYTES = 1024 * 1024


class EndOfInput(Exception):  # noqa: N818  # an end, no error
    """The client closed its input."""


class _Size(msgspec.Struct, rename="pascal"):
    width: int = 80
    height: int = 24


@dataclass(slots=True)
class Input:
    """What the client types. ``echo`` writes back to a terminal; None without one."""

    echo: Callable[[str], Awaitable[None]] | None = None
    gone: bool = False
    columns: int = 80
    rows: int = 24
    _closed: bool = False
    _waiting: str = ""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def feed(self, data: bytes) -> None:
        """Take bytes in; what nobody reads is dropped beyond a bound."""
        if len(self._waiting) < MOST_WAITING_BYTES:
            self._waiting += data.decode("utf-8", "replace")
        self._arrived.set()

    def close(self) -> None:
        """Say that nothing follows."""
        self._closed = True
        self._arrived.set()

    def resize(self, data: bytes) -> None:
        """Take the terminal's size in: ``{"Width": 80, "Height": 24}``."""
        try:
            size = msgspec.json.decode(data, type=_Size)
        except msgspec.DecodeError:
            return
        self.columns, self.rows = size.width, size.height

    async def _letter(self) -> str:
        while not self._waiting:
            if self._closed:
                raise EndOfInput
            self._arrived.clear()
            await self._arrived.wait()
        letter, self._waiting = self._waiting[0], self._waiting[1:]
        return letter

    async def line(self) -> str:
        """Return the next line without its end; raise EndOfInput when there is none."""
        line = ""
        while True:
            try:
                letter = await self._letter()
            except EndOfInput:
                if line:
                    return line
                raise
            if letter in "\r\n":
                await self._show("\n")
                return line
            if self.echo is None:
                line += letter
            elif letter == _END and not line:
                raise EndOfInput
            elif letter == _INTERRUPT:
                await self._show("^C\n")
                return ""
            elif letter in _BACKSPACES:
                if line:
                    line = line[:-1]
                    await self._show("\b \b")
            elif letter.isprintable():
                line += letter
                await self._show(letter)

    async def _show(self, text: str) -> None:
        if self.echo is not None:
            await self.echo(text)
