"""The command's own standard streams: closed ones, and a disk without room."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from penstock.model.container import Ended, EndedBy
from tests.fakes.agent import FakeAgent, FakeContainer

_PROCESS = (sys.executable, "-I", "-m", "penstock.cli.main")


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_closed_stream_is_dev_null_for_the_container(tmp_path: Path, number: int) -> None:
    """The next socket would have the stream's number: the container would read from the connection to the agent."""
    passed: list[str] = []

    def on_launch(made: FakeContainer) -> None:
        passed.extend(str(Path(f"/proc/self/fd/{descriptor}").readlink()) for descriptor in made.stdio)
        fake.end_container(made, Ended(by=EndedBy.EXIT, exit_status=0))

    fake = FakeAgent(tmp_path)
    fake.on_launch = on_launch
    await fake.start()
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" {number}>&-', "sh", *_PROCESS, "run", "--", "cat"),
        env={**os.environ, "PENSTOCK_SOCKET": str(fake.socket)},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    await fake.stop()
    assert (process.returncode, out, err) == (0, b"", b"")
    assert [name == os.devnull for name in passed] == [at == number for at in range(3)], passed


@pytest.mark.parametrize("command", ["--help", "completion"])
def test_output_without_room_is_one_line(command: str) -> None:
    argv = [*_PROCESS, command, *(["bash"] if command == "completion" else [])]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(argv, stdin=DEVNULL, stdout=full, stderr=PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == f"penstock {command}: what it prints cannot be written: No space left on device\n"
