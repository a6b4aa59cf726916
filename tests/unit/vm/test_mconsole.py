"""Messages of a machine's kernel that nothing else in the machine would report."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import mconsole

TRACE = "task:jbd2/ubda-8 state:D\n" + "blk_mq_get_tag\n" * 60


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A machine's directory; its kernel answers as arch/um/drivers/mconsole_user.c does."""
    (tmp_path / "uml").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as kernel:
        kernel.bind(str(tmp_path / "uml/mconsole"))
        answering = threading.Thread(target=_answer, args=(kernel,))
        answering.start()
        yield tmp_path
        answering.join()


def _answer(kernel: socket.socket) -> None:
    for answer in ("sysrq: Loglevel set to 9", TRACE):
        request, sender = kernel.recvfrom(1024)
        magic, version, length = struct.unpack_from("III", request)
        assert (magic, version, len(request)) == (0xCAFEBABE, 2, 524)
        assert request[12 : 12 + length] == (b"sysrq 9" if answer != TRACE else b"sysrq w")
        parts = [answer[at : at + 511].encode() for at in range(0, len(answer), 511)]
        for number, part in enumerate(parts, 1):
            kernel.sendto(struct.pack("III", 0, number < len(parts), len(part) + 1) + part + b"\0", sender)


def test_the_blocked_tasks_are_put_together_from_all_parts_of_the_answer(directory: Path) -> None:
    assert mconsole.blocked_tasks(directory) == TRACE


def test_a_kernel_that_is_gone_or_silent_costs_no_answer_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mconsole.blocked_tasks(tmp_path) == f"no kernel listens in {tmp_path}"
    (tmp_path / "uml").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as kernel:
        kernel.bind(str(tmp_path / "uml/mconsole"))
        monkeypatch.setattr(mconsole, "_TIMEOUT_S", 0.01)
        assert "TimeoutError" in mconsole.blocked_tasks(tmp_path)
    assert "ConnectionRefusedError" in mconsole.blocked_tasks(tmp_path)
