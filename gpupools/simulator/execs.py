"""``kubectl exec`` over WebSocket: the channel protocol (v5 and v4), a command's output in time, a small terminal.

Runs the same programs as containers do; it asks the kubelet what a container can see. Attach is not served.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from gpupools.simulator.auth import Tokens
from gpupools.simulator.errors import ApiError, bad_request
from gpupools.simulator.programs import Situation, execution, is_open_shell, knows, shell_of
from gpupools.simulator.server import check_host
from gpupools.simulator.shell import FOREVER, Complaint, Run
from gpupools.simulator.terminal import EndOfInput, Input
from gpupools.simulator.wire import Receive, Send, Target, encode, parse_request, parse_target

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

# (namespace, pod, container or "") -> what the container can see; raises ApiError when nothing runs there.
Lookup = Callable[[str, str, str], Situation]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the query asks for."""

    argv: tuple[str, ...]
    container: str
    stdin: bool
    tty: bool

    @classmethod
    def read(cls, query: bytes) -> Wanted:
        """Read a query; 400 without a command."""
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        argv = tuple(value for name, value in pairs if name == "command")
        if not argv or not argv[0]:
            raise bad_request("you must specify at least one command for the container")
        given = dict(pairs)
        on = {name for name in ("stdin", "tty") if given.get(name, "").lower() in ("true", "1")}
        return cls(argv, given.get("container", ""), "stdin" in on, "tty" in on)


class ExecSockets:
    """The ASGI application for WebSockets."""

    def __init__(self, tokens: Tokens, lookup: Lookup, *, speed: float) -> None:
        self._tokens = tokens
        self._lookup = lookup
        self._speed = speed

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one WebSocket."""
        await receive()  # websocket.connect
        try:
            target = self._admit(scope)
            protocol = next((name for name in PROTOCOLS if name in scope.get("subprotocols", ())), "")
            if not protocol:
                raise bad_request(f"unable to negotiate protocol: client must offer one of {', '.join(PROTOCOLS)}")
        except ApiError as error:
            await _refuse(error, send)
            return
        await send({"type": "websocket.accept", "subprotocol": protocol})
        try:
            wanted, situation = self._look_up(scope, target)
        except ApiError as error:
            # Once the connection stands, clients look for errors on its error channel.
            await send({"type": "websocket.send", "bytes": bytes([ERROR]) + encode(error.body())})
            await send({"type": "websocket.close", "code": 1000})
            return
        session = Session(wanted, situation, send, speed=self._speed)
        listening = asyncio.ensure_future(_listen(receive, session.input))
        running = asyncio.ensure_future(session.run())
        try:
            await asyncio.wait((listening, running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (listening, running):
                task.cancel()
            ended = await asyncio.gather(listening, running, return_exceptions=True)
        if isinstance(ended[1], Exception):
            raise ended[1]
        if not session.input.gone:
            await send({"type": "websocket.close", "code": 1000})

    def _admit(self, scope: Mapping[str, Any]) -> Target:
        request = parse_request({**scope, "method": "GET"}, b"")
        check_host(request.headers.get("host", ""))
        identity = self._tokens.identify(request.headers.get("authorization", ""))
        target = parse_target(request.path)
        if target is None or target.row.kind != "Pod" or target.subresource not in ("exec", "attach"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        identity.check("create", "", f"pods/{target.subresource}", target.namespace, target.name)
        return target

    def _look_up(self, scope: Mapping[str, Any], target: Target) -> tuple[Wanted, Situation]:
        refuse_attach(target)
        wanted = Wanted.read(scope["query_string"])
        situation = self._lookup(target.namespace, target.name, wanted.container)
        if not knows(situation, wanted.argv[0]):
            raise ApiError(
                500,
                "InternalError",
                "Internal error occurred: error executing command in container: failed to exec in container: failed "
                "to start exec: OCI runtime exec failed: exec failed: unable to start container process: exec: "
                f'"{wanted.argv[0]}": executable file not found in $PATH: unknown',
            )
        return wanted, situation


def refuse_attach(target: Target) -> None:
    """Raise 501 for attach, which the embedded cluster does not have."""
    if target.subresource == "attach":
        raise ApiError(
            501, "NotImplemented", "the embedded cluster serves no attach: use logs -f to read, and exec to run"
        )


async def _refuse(error: ApiError, send: Send) -> None:
    body = encode(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def _listen(receive: Receive, into: Input) -> None:
    """Take frames in until the client goes."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            into.gone = True
            return
        frame = message.get("bytes") or (message.get("text") or "").encode()
        if not frame:
            continue
        channel, data = frame[0], frame[1:]
        if channel == STDIN:
            into.feed(data)
        elif channel == CLOSE and data[:1] == bytes([STDIN]):
            into.close()
        elif channel == RESIZE:
            into.resize(data)


@dataclass(slots=True)
class Session:
    """One command that runs for a client."""

    wanted: Wanted
    situation: Situation
    send: Send
    speed: float
    input: Input = field(default_factory=Input)

    async def run(self) -> None:
        """Run the command, and say on the error channel how it ended."""
        argv = self.wanted.argv
        self.input.echo = self._write if self.wanted.tty else None
        if self.wanted.stdin and is_open_shell(argv):
            code = await self._interactive()
        elif self.wanted.stdin and argv == ("cat",):
            code = await self._copy()
        else:
            code = await self._play(execution(self.situation, argv))
        await self._frame(ERROR, encode(_status(code)))

    async def _frame(self, channel: int, data: bytes) -> None:
        await self.send({"type": "websocket.send", "bytes": bytes([channel]) + data})

    async def _write(self, text: str, channel: int = STDOUT) -> None:
        # A terminal has one stream, and its lines end like a typewriter's.
        if self.wanted.tty:
            text, channel = text.replace("\n", "\r\n"), STDOUT
        await self._frame(channel, text.encode())

    async def _play(self, steps: Run, begun: float = 0.0) -> int:
        """Print a program's lines when they are due; return its exit code."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            try:
                at, line = next(steps)
            except StopIteration as end:
                return int(end.value or 0)
            if at == FOREVER:
                await asyncio.get_running_loop().create_future()  # runs until the client goes
            due = start + (at - begun) / self.speed
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if line is not None:
                await self._write(line + "\n", STDERR if isinstance(line, Complaint) else STDOUT)

    async def _copy(self) -> int:
        with contextlib.suppress(EndOfInput):
            while True:
                await self._write(await self.input.line() + "\n")
        return 0

    async def _interactive(self) -> int:
        """Be a shell: one line after the other, with a prompt on a terminal."""
        shell = shell_of(self.situation)
        code = 0
        while True:
            if self.wanted.tty:
                await self._write("# ")
            try:
                line = await self.input.line()
            except EndOfInput:
                if self.wanted.tty:
                    await self._write("\n")
                return code
            words = line.split()
            if words[:2] == ["stty", "size"]:
                await self._write(f"{self.input.rows} {self.input.columns}\n")
                continue
            code = await self._play(shell.run(line), shell.elapsed)
            if words[:1] == ["exit"]:
                return code


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: error executing command, exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
