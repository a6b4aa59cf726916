"""A job under plain Linux: a process in a session of its own. No agent starts it, ranks it or counts its use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.model.container import Ended, EndedBy


class PlainProcess:
    """The counterpart of :class:`penstock.client.Container` for a job without a container."""

    not_enforced: Mapping[str, str] = {}

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: tuple[int, int, int]) -> None:
        self._process = subprocess.Popen(
            argv, env=dict(env), cwd=Path(cwd), stdin=stdio[0], stdout=stdio[1], stderr=stdio[2], start_new_session=True
        )

    async def kill(self) -> None:
        """End its session, workers and all."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> Ended:
        """How it ended."""
        status = await asyncio.to_thread(self._process.wait)
        if status < 0:
            return Ended(by=EndedBy.SIGNAL, exit_status=128 - status)
        return Ended(by=EndedBy.EXIT, exit_status=status)
