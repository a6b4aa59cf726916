"""``penstock submit --detach``: the job goes on without this terminal.

What runs a job, its job manager, becomes a container of this host's agent: a child of the launcher, in a session and
a cgroup of its own. So neither a hang-up nor the end of the login session reaches it, and it lives through restarts of
the agent. It joins the job that was registered here, so that there is no moment in which nobody holds it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.cli.errors import CommandError
from penstock.cli.report import accepted
from penstock.cli.submission import Work, registration
from penstock.client import AgentClient, Container
from penstock.model.container import ContainerSpec

#: The first and longest pause between two looks at what the job manager says, seconds: it says one line and goes on.
_LOOK_S = (0.02, 0.25)
#: What of this process's environment concerns the job manager; its tasks get theirs from the job file.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "PENSTOCK_RUNTIME_DIR")


def manager_name(job: str) -> str:
    """What the container of a job's manager is called: by this it is found again."""
    return f"submit {job}"[:128]


async def detach(work: Work, reservation: str, argv: Sequence[str], *, as_json: bool) -> int:
    """Returns as soon as the job's manager has it; ``argv`` is what it is to be given.

    Raises:
        CommandError: it could not be started, or ended before it had the job.
        RpcError: refused.
        AgentUnavailable: there is no agent.
    """
    async with await AgentClient.connect(client="penstock submit") as agent:
        job = await agent.register_job(**msgspec.structs.asdict(registration(work, agent.welcome, reservation)))
        spec = ContainerSpec(
            argv=(sys.executable, *_isolated(), "-m", "penstock.cli.main", "submit", "--manages", job.id, *argv),
            name=manager_name(job.id),
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"PENSTOCK_SOCKET": str(agent.socket.absolute())},
            cwd=str(Path.cwd()),
            detach=True,
        )
        manager = await agent.launch(spec)
        await _until_it_has_it(manager, accepted(work.name, job.id))
    if as_json:
        print(json.dumps({"job": job.id, "container": manager.id}))
    else:
        print(job.id)
        print(f"penstock submit: `penstock jobs {job.id}` and `penstock logs {job.id}` tell of it", file=sys.stderr)
    return 0


def _isolated() -> list[str]:
    """As this interpreter was started."""
    return ["-I"] if sys.flags.isolated else []


async def _until_it_has_it(manager: Container, line: str) -> None:
    ended = asyncio.ensure_future(manager.wait())
    pause, longest = _LOOK_S
    try:
        while True:
            over = ended.done()
            said = (await manager.output("stderr")).decode("utf-8", "replace")
            if line in said:
                return
            if over:
                why = said.strip().splitlines()[-1:] or [ended.result().reason or "it said nothing"]
                raise CommandError(f"the job's manager ended at once: {why[0].removeprefix('penstock submit: ')}")
            await asyncio.wait([ended], timeout=pause)
            pause = min(2 * pause, longest)
    finally:
        ended.cancel()
