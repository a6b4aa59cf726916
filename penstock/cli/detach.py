"""``penstock submit --detach``: run the job independently of this terminal.

The job manager, which runs the job, becomes a container of this host's agent: a child of the launcher, in a session and
a cgroup of its own. A hang-up or the end of the login session does not reach it, and it survives restarts of the agent.
It joins the job while this process still holds it, so that the job always has a connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.cli.errors import CommandError, note
from penstock.cli.limits import in_utf8
from penstock.cli.report import accepted
from penstock.cli.submission import registration
from penstock.cli.work import Work
from penstock.client import AgentClient, Container
from penstock.model.container import ContainerSpec

#: The first and longest pause between two reads of the job manager's output (seconds).
_LOOK_S = (0.02, 0.25)
#: The environment variables that the job manager needs; tasks get theirs from the job file.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "PENSTOCK_RUNTIME_DIR")


def manager_name(job: str) -> str:
    """Return the name of the container of a job's manager, by which other commands find it."""
    return f"submit {job}"[:128]


async def detach(work: Work, reservation: str, argv: Sequence[str], *, as_json: bool) -> int:
    """Start the job's manager with arguments ``argv``; return as soon as it has joined the job.

    Raises:
        CommandError: the manager could not be started, or ended before it joined the job.
        RpcError: the agent refused the job.
        AgentUnavailable: there is no agent.
    """
    async with await AgentClient.connect(client="penstock submit") as agent:
        job = await agent.register_job(**msgspec.structs.asdict(registration(work, agent.welcome, reservation)))
        isolated = ["-I"] if sys.flags.isolated else []
        spec = ContainerSpec(
            argv=(sys.executable, *isolated, "-m", "penstock.cli.main", "submit", "--manages", job.id, *argv),
            name=manager_name(job.id),
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"PENSTOCK_SOCKET": str(agent.socket.absolute())},
            cwd=str(Path.cwd()),
            detach=True,
        )
        manager = await agent.launch(in_utf8("submit", spec))
        await _until_joined(manager, accepted(work.name, job.id))
    if as_json:
        print(json.dumps({"job": job.id, "container": manager.id}))
    else:
        print(job.id)
        note("submit", f"see `penstock jobs {job.id}` and `penstock logs {job.id}`")
    return 0


async def _until_joined(manager: Container, line: str) -> None:
    ended = asyncio.ensure_future(manager.wait())
    pause, longest = _LOOK_S
    try:
        while True:
            over = ended.done()
            written = (await manager.output("stderr")).decode("utf-8", "replace")
            if line in written:
                return
            if over:
                why = written.strip().splitlines()[-1:] or [ended.result().reason or "it wrote nothing"]
                raise CommandError(f"the job's manager ended at once: {why[0].removeprefix('penstock submit: ')}")
            await asyncio.wait([ended], timeout=pause)
            pause = min(2 * pause, longest)
    finally:
        ended.cancel()
