"""One command's conversation with the agent, without an event loop: to import one takes longer than all the rest.

It knows the way on which nothing goes wrong. Whatever else happens before the command is started raises
:class:`Undecided`, and :mod:`penstock.client` begins again from the start, which knows what to say; what happens
afterwards raises :class:`Lost`, and it attaches to the container.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

import msgpack
import msgspec

from penstock.cli.errors import CommandError
from penstock.model.container import ContainerSpec, Ended
from penstock.peer_credentials import check_server

#: As in ``penstock.wire``, which a test compares; importing it would cost 10 ms.
PROTOCOL = 1
MAX_FRAME_BYTES = 8 * 1024 * 1024
#: An agent that is well answers within milliseconds.
_HELLO_S = 2.0
#: Once a signal came, the agent's word that the command was started is waited for so long; then the signal ends us.
_GRACE_S = 1.0
_READ_BYTES = 65536
_REQUEST, _RESPONSE = 0, 1
#: What the user's terminal or supervisor sends to us is meant for the command.
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Undecided(Exception):  # noqa: N818 - no error: somebody else goes on
    """Nothing was started yet."""


class Lost(Exception):  # noqa: N818 - no error: somebody else goes on
    """The connection broke; the container is on its own."""


class Started(NamedTuple):
    """What was launched."""

    container: str
    not_enforced: dict[str, str]


class Signals:
    """Those that come from now on are the command's. A second Ctrl-C kills."""

    def __init__(self) -> None:
        self.killed = False
        self.interrupts = 0
        self.received: deque[int] = deque()
        self._wake, wakes = socket.socketpair()
        self._wakes = wakes
        for sock in (self._wake, wakes):
            sock.setblocking(False)
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Readable when a signal came."""
        return self._wake.fileno()

    def noticed(self) -> None:
        """Not readable any more until the next one."""
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(_READ_BYTES)

    def take(self) -> Iterator[int | None]:
        """Those that came, to be sent on; None: kill it. One that could not be sent comes again."""
        while self.received:
            number = self.received[0]
            interrupts = self.interrupts + (number == signal.SIGINT)
            yield None if interrupts > 1 else number
            self.received.popleft()
            self.interrupts = interrupts
            self.killed = interrupts > 1

    def hand_over(self) -> None:
        """An event loop takes the signals from now on."""
        signal.set_wakeup_fd(-1)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)


class Connection:
    """It has said hello; a context manager."""

    def __init__(self, path: Path, client: str) -> None:
        """Connect.

        Raises:
            Undecided: no agent, or not as it should be.
        """
        self._path = path
        self._unpacker = msgpack.Unpacker(strict_map_key=False)
        self._ended: dict[str, Any] = {}
        self._answers: dict[int, tuple[Any, Any]] = {}
        self._last_id = -1
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_HELLO_S)
            self._socket.connect(str(path))
            check_server(self._socket, path)
            error, _ = self._call("hello", {"protocol": PROTOCOL, "client": client})
        except (OSError, Lost) as problem:
            self._socket.close()
            raise Undecided from problem
        if error is not None:
            self._socket.close()
            raise Undecided
        self._socket.settimeout(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def launch(
        self, spec: ContainerSpec, stdio: tuple[int, int, int] | None = None, signals: Signals | None = None
    ) -> Started:
        """Start the command; ``stdio`` are the descriptors that it shall use.

        Raises:
            KeyboardInterrupt: a signal came, and the agent does not answer.
            Undecided: the agent did not take the descriptors.
            CommandError: refused, it could not be started, or nobody knows whether it was.
        """
        if stdio is not None:
            spec = msgspec.structs.replace(spec, stdio=self._pass(stdio))
        try:
            error, result = self._call("launch", {"container": spec}, signals)
        except (OSError, Lost):
            # Asking again could start it twice.
            raise CommandError(
                "the agent went away while it was starting the command; `penstock status` tells whether it runs"
            ) from None
        if error is not None:
            raise _refusal(error)
        return Started(result["container"], result["not_enforced"])

    def wait(self, container: str, signals: Signals) -> Ended:
        """How it ended; meanwhile signals are sent on.

        Raises:
            Lost: the connection broke.
        """
        while container not in self._ended:
            try:
                for number in signals.take():
                    self._forward(container, number)
                self._read_or(signals, None)
            except OSError as error:
                raise Lost from error
        return msgspec.convert(self._ended[container], Ended)

    # ------------------------------------------------------------ inside

    def _forward(self, container: str, number: int | None) -> None:
        """What it answers (it may have ended) changes nothing."""
        if number is None:
            self._send("kill", {"container": container})
        else:
            self._send("signal", {"container": container, "signal": int(number)})

    def _call(self, method: str, params: dict[str, Any], signals: Signals | None = None) -> tuple[Any, Any]:
        """Error and result."""
        number = self._send(method, params)
        while number not in self._answers:
            if signals is None:
                self._read()
            elif not self._read_or(signals, _GRACE_S if signals.received else None):
                raise KeyboardInterrupt
        return self._answers.pop(number)

    def _read_or(self, signals: Signals, timeout_s: float | None) -> bool:
        """Read, or notice a signal; False: neither came in time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(signals, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1e3)}
        if signals.fileno() in ready:
            signals.noticed()
        if self._socket.fileno() in ready:
            self._read()
        return bool(ready)

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._last_id += 1
        frame = msgspec.msgpack.encode((_REQUEST, self._last_id, method, (params,)))
        if len(frame) > MAX_FRAME_BYTES:
            raise CommandError(f"message of {len(frame)} bytes exceeds the frame limit")
        self._socket.sendall(frame)
        return self._last_id

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise Lost
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                self._received(message)
        except (ValueError, TypeError, LookupError) as error:  # nothing that an agent says
            raise Lost from error

    def _received(self, message: Any) -> None:
        if message[0] == _RESPONSE:
            _, number, error, result = message
            self._answers[number] = (error, result)
        elif message[1] == "container_ended":
            said = message[2][0]
            self._ended[said["container"]] = said["ended"]

    def _pass(self, stdio: tuple[int, int, int]) -> str:
        """Give the agent a copy of the descriptors; the token names them."""
        token = os.urandom(16).hex()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(_HELLO_S)
            path = self._path.with_name("stdio.sock")
            try:
                sock.connect(str(path))
                check_server(sock, path)
                socket.send_fds(sock, [token.encode()], stdio)
                reply = sock.recv(1)
            except OSError as error:
                raise Undecided from error
        if reply != b"+":
            raise Undecided
        return token


def _refusal(error: Any) -> CommandError:
    from penstock.wire.errors import ErrorBody, ErrorCode, RpcError

    try:
        body = msgspec.convert(error, ErrorBody)
    except msgspec.ValidationError:  # other servers may send any error
        return CommandError(str(error))
    # As in cli.session, which imports asyncio.
    return CommandError(
        str(RpcError.of(body)), status=2 if body.code is ErrorCode.BAD_REQUEST else body.exit_status or 1
    )
