"""`penstock top` in a terminal of 80 by 24, with keys, against an agent that the test steers."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.errors import unavailable
from tests import warm_commands
from tests.fakes.agent import FakeAgent

COMMAND = (warm_commands.penstock(),)
ROWS, COLUMNS = 24, 80
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`penstock top` in a terminal; :meth:`sees` waits until a text is on the screen."""

    def __init__(self, parent: int, child: int, process: asyncio.subprocess.Process, before: list[Any]) -> None:
        self.parent = parent
        self.child = child
        self.process = process
        self.before = before
        self._read = b""
        self._fresh = asyncio.Event()
        asyncio.get_running_loop().add_reader(parent, self._more)

    def _more(self) -> None:
        try:
            self._read += os.read(self.parent, 65536)
        except OSError:  # no process has the other end open any more
            asyncio.get_running_loop().remove_reader(self.parent)
        self._fresh.set()

    def press(self, keys: bytes) -> None:
        """Press a key; the text on the screen so far does not count any more."""
        self._read = b""
        os.write(self.parent, keys)

    async def sees(self, text: str) -> list[str]:
        """Return the lines of the newest screen that has been read to its end and contains the text."""
        async with asyncio.timeout(60):
            while True:
                for drawn in reversed(self._read.decode("utf-8", "replace").split("\x1b[H")):
                    lines = _CONTROL.sub("", drawn).split("\r\n")
                    # Rich fills each line up to the width: a last line that is shorter has not been read to its end.
                    if text in drawn and len(lines) >= ROWS and len(lines[-1]) >= COLUMNS:
                        return [line.rstrip() for line in lines]
                self._fresh.clear()
                await self._fresh.wait()

    async def reads(self, sequence: bytes) -> None:
        """Wait for a control sequence."""
        async with asyncio.timeout(60):
            while sequence not in self._read:
                self._fresh.clear()
                await self._fresh.wait()

    def settings(self) -> list[Any]:
        """Return the terminal's settings as they are now."""
        return termios.tcgetattr(self.child)

    async def ends(self) -> int:
        """Its exit status."""
        return await asyncio.wait_for(self.process.wait(), 60)


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent(tmp_path)
    agent.document = {
        "node": "alpha",
        "resources": {"cpu": {"unit": "cores", "capacity": 2.0, "promised": 1.0, "used": 0.5, "slack": 1.3}},
        "containers": [{"container": f"c-{n:03}", "name": "job", "state": "running"} for n in range(60)],
    }
    agent.cluster = {"nodes": {"beta": {"state": "connected", "capacity": {"cores": 4.0}}}}
    await agent.start()
    yield agent
    await agent.stop()


@pytest.fixture
async def top(fake: FakeAgent) -> AsyncIterator[Terminal]:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    before = termios.tcgetattr(child)
    around = {**os.environ, "PENSTOCK_SOCKET": str(fake.socket), "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
    process = await asyncio.create_subprocess_exec(*COMMAND, "top", stdin=child, stdout=child, stderr=child, env=around)
    terminal = Terminal(parent, child, process, before)
    yield terminal
    if process.returncode is None:  # the test failed; SIGKILL would leave the settings changed, and hide that failure
        process.terminate()
        await terminal.ends()
    asyncio.get_running_loop().remove_reader(parent)
    assert terminal.settings() == before
    os.close(child)
    os.close(parent)


async def test_it_fits_scrolls_changes_its_tab_and_quits(top: Terminal, fake: FakeAgent) -> None:
    lines = await top.sees("c-010")
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0].startswith("alpha")
    assert "cores" in "".join(lines)
    assert "q quit" in lines[ROWS - 1]
    top.press(b"\x1b[F")
    assert "… 40 more" in "\n".join(await top.sees("c-019"))
    top.press(b"\t")
    assert "beta" in "\n".join(await top.sees("1 of 1 node connected"))
    fake.document["node"] = "gamma"
    top.press(b"h")
    await top.sees("gamma")  # asked again
    top.press(b"q")
    assert await top.ends() == 0


async def test_a_cluster_that_does_not_answer_is_reported_and_the_host_still_shown(
    top: Terminal, fake: FakeAgent
) -> None:
    await top.sees("alpha")
    fake.refuse["cluster_status"] = unavailable("the master at head:7420 is away")
    top.press(b"c")
    await top.sees("the master at head:7420 is away")
    top.press(b"h")
    await top.sees("alpha")
    top.press(b"q")
    assert await top.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
async def test_a_signal_that_asks_it_to_end_leaves_the_terminal_as_it_was(
    top: Terminal, number: signal.Signals
) -> None:
    await top.sees("alpha")
    assert top.settings() != top.before
    top.process.send_signal(number)
    assert await top.ends() == 0
    assert top.settings() == top.before
    await top.reads(b"\x1b[?25h\x1b[?1049l")  # the cursor is shown, and the shell's screen


async def test_an_agent_that_is_restarted_is_waited_for(top: Terminal, fake: FakeAgent) -> None:
    await top.sees("alpha")
    await fake.stop()
    assert "alpha" in "\n".join(await top.sees("the agent has not answered for"))
    fake.document["node"] = "returned"
    await fake.start()
    await top.sees("returned")
    top.press(b"q")
    assert await top.ends() == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["top", "--once"], "alpha"),
        (["top", "--cluster"], "beta"),
        (["status", "--cluster"], "beta"),
        (["status", "--cluster", "--json"], '"beta"'),
    ],
)
async def test_in_a_pipe_it_is_printed_once_and_without_colours(fake: FakeAgent, argv: list[str], says: str) -> None:
    around = {**os.environ, "PENSTOCK_SOCKET": str(fake.socket), "FORCE_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(*COMMAND, *argv, stdout=asyncio.subprocess.PIPE, env=around)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, says in out.decode(), b"\x1b" in out) == (0, True, False)


async def test_without_a_master_the_cluster_is_one_line(fake: FakeAgent) -> None:
    fake.refuse["cluster_status"] = unavailable("this host has no master", remedy="set `master`")
    around = {**os.environ, "PENSTOCK_SOCKET": str(fake.socket)}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "status", "--cluster", stderr=asyncio.subprocess.PIPE, env=around
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert err.decode().startswith("penstock status: this host has no master")
    assert err.count(b"\n") == 1
