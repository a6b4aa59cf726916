"""A message that is only claimed to be one costs a daemon its bytes, and no more: before and after hello."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.integration.conftest import Daemon

MIB = 1024 * 1024
FRAME_BYTES = 8 * MIB
#: Parsed, the arrays of one frame take 64 times its bytes, half a gigabyte.
MOST_BYTES = 16 * FRAME_BYTES


def junk(method: str) -> bytes:
    """Return a request of the largest size whose parameters are empty arrays."""
    head = b"\x94\x00\x07" + msgpack.packb(method) + b"\x91\xdd"
    count = FRAME_BYTES - len(head) - 4
    return head + count.to_bytes(4, "big") + b"\x90" * count


def answer(connection: socket.socket) -> list[Any]:
    unpacker = msgpack.Unpacker()
    while True:
        unpacker.feed(connection.recv(65536))
        for message in unpacker:
            return list(message)


def peak_bytes(daemon: Daemon) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture(params=["agent", "master"])
def daemon(
    request: pytest.FixtureRequest, start_agent: Callable[..., Daemon], start_master: Callable[..., Daemon]
) -> tuple[Daemon, str, bytes]:
    """A daemon, its socket, and how a connection to it begins."""
    if request.param == "agent":
        running = start_agent()
        return running, str(running.socket), msgpack.packb([0, 1, "hello", [{"protocol": 1, "client": "test"}]])
    running = start_master()
    return running, running.addresses["listen"], b""


def test_junk_is_refused_unparsed(daemon: tuple[Daemon, str, bytes]) -> None:
    running, path, greeting = daemon
    before = peak_bytes(running)
    for beginning, methods in ((b"", ("hello", "register")), (greeting, ("submit",))):
        for method in methods:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(path)
                connection.sendall(beginning)
                if beginning:
                    assert answer(connection)[1] == 1
                connection.sendall(junk(method))
                kind, reply_to, error, _ = answer(connection)
                assert (kind, reply_to, error["code"]) == (1, 7, "bad_request")
    assert peak_bytes(running) - before < MOST_BYTES
