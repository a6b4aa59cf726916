"""``penstock submit --detach``: run the job independently of this terminal.

The job manager, which runs the job, becomes a container of this host's agent: a child of the launcher, in a session and
a cgroup of its own. A hang-up or the end of the login session does not reach it, and it survives restarts of the agent.
It joins the job while this process still holds it, so that the job always has a connection.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import paths
from penstock.cli.errors import CommandError, note
from penstock.cli.limits import in_utf8
from penstock.cli.report import accepted
from penstock.cli.submission import registration
from penstock.cli.work import Work
from penstock.client.errors import LOST_WHILE_STARTING, AgentUnavailable, lost_at_restart
from penstock.client.session import Session
from penstock.client.task_job import TaskJob
from penstock.model.container import ContainerSpec, Ended
from penstock.wire import container_methods as m
from penstock.wire.connection import read_params
from penstock.wire.container_api import Attach, ContainerEnded, Launch, Output, ReadOutput
from penstock.wire.errors import RpcError

#: The first and longest pause between two reads of the job manager's output (seconds).
_LOOK_S = (0.02, 0.25)
#: The longest wait for an agent that went away (seconds).
_PATIENCE_S = 30.0
#: The environment variables that the job manager needs; tasks get theirs from the job file.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "PENSTOCK_RUNTIME_DIR")


def manager_name(job: str) -> str:
    """Return the name of the container of a job's manager, by which other commands find it."""
    return f"submit {job}"[:128]


def detach(work: Work, reservation: str, argv: Sequence[str], *, as_json: bool) -> int:
    """Start the job's manager with arguments ``argv``; return as soon as it has joined the job.

    Raises:
        CommandError: the manager could not be started, or ended before it joined the job.
        RpcError: the agent refused the job.
        AgentUnavailable: there is no agent, or it was away for too long.
    """
    with Session.connect(paths.agent_socket(), "penstock submit", patience_s=_PATIENCE_S) as session:
        job = _HeldJob(session, registration(work, session.welcome, reservation), lambda linked: None)
        isolated = ["-I"] if sys.flags.isolated else []
        spec = ContainerSpec(
            argv=(sys.executable, *isolated, "-m", "penstock.cli.main", "submit", "--manages", job.id, *argv),
            name=manager_name(job.id),
            env={name: os.environ[name] for name in _KEPT if name in os.environ}
            | {"PENSTOCK_SOCKET": str(session.socket_path.absolute())},
            cwd=str(Path.cwd()),
            detach=True,
        )
        manager = job.launch_manager(in_utf8("submit", spec))
        job.wait_until_joined(accepted("", job.id))
    if as_json:
        import json  # most jobs are detached without it

        print(json.dumps({"job": job.id, "container": manager}))
    else:
        print(job.id)
        note("submit", f"see `penstock jobs {job.id}` and `penstock logs {job.id}`")
    return 0


class _HeldJob(TaskJob):
    """The job, held until its manager has joined it, and the manager's container."""

    _manager = ""
    _manager_ended: Ended | None = None

    def launch_manager(self, spec: ContainerSpec) -> str:
        """Start the job's manager; return its container.

        Raises:
            RpcError: the agent refused, or the command could not be started.
            AgentUnavailable: the connection was lost during the call.
        """
        try:
            self._manager = self._session.call_once(m.LAUNCH, lambda: Launch(container=spec)).container
        except ConnectionResetError:
            raise AgentUnavailable(LOST_WHILE_STARTING) from None
        return self._manager

    def wait_until_joined(self, announced: str) -> None:
        """Wait until the manager has written this text, which tells that it has joined the job.

        The text is without the job's name, which the manager prints without control characters.

        Raises:
            CommandError: the manager ended before.
            AgentUnavailable: the agent was away for too long.
        """
        written, offset = b"", 0
        pause_s, longest_s = _LOOK_S
        while True:
            ended = self._manager_ended  # before the read: its output is complete then
            part = self._read(offset)
            written += part.data
            offset = part.offset + len(part.data)
            text = written.decode("utf-8", "replace")
            if announced in text:
                return
            if part.data and offset < part.size:
                continue
            if ended is not None:
                why = text.strip().splitlines()[-1:] or [ended.reason or "it wrote nothing"]
                raise CommandError(f"the job's manager ended at once: {why[0].removeprefix('penstock submit: ')}")
            self._session.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _read(self, offset: int) -> Output:
        """Return the manager's output from ``offset`` on: none if the manager ended and the agent does not know it."""
        wanted = ReadOutput(container=self._manager, stream="stderr", offset=offset)
        try:
            return self._session.call(m.OUTPUT, lambda: wanted)
        except RpcError:
            if self._manager_ended is None:
                raise
            return Output(data=b"", offset=offset, size=offset)

    def notified(self, method: str, params: Any) -> None:
        """Called by the session: record the manager's end; all else is of the job."""
        if method == ContainerEnded.METHOD:
            self._manager_ended = read_params(params, ContainerEnded).ended
        else:
            super().notified(method, params)

    def relink(self) -> None:
        """Called by the session: join the job at a restarted agent, and ask for the manager's end."""
        super().relink()
        if self._manager and self._manager_ended is None:
            try:
                self._session.call_once(m.ATTACH, lambda: Attach(container=self._manager))
            except RpcError as error:
                self._manager_ended = lost_at_restart(error)
