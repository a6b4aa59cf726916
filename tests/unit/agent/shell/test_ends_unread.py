"""A framework that is connected and does not read: ends that are otherwise only in the agent's memory are in the
journal.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from agent.core import events as e
from agent.core import origin_journal
from agent.core.records import TaskEnd
from agent.journal import Journal
from penstock.model import ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.transport import RpcPeer
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, Place, RegisterJob
from tests.unit.agent.shell.shell_bed import Silent, make_shell

#: The longest reason that the agent makes; the kernel keeps a few dozen of these for a client that does not read.
ENDED = Ended(by=EndedBy.EXIT, exit_status=1, reason="x" * 4000)
MANY = 1000


class Bed:
    """A shell, and a framework behind a socket of its own that has asked for places."""

    def __init__(self, directory: Path, peer: RpcPeer) -> None:
        self.journal = Journal(directory)
        self.shell = make_shell(self.journal, has_master=True)
        self.peer = self.shell.peers[1] = peer
        self.shell.dispatch(e.JobRegistered(1, RegisterJob(name="j"), 0.0))
        self.job = next(iter(self.shell.node.jobs))
        command = ContainerSpec(argv=("x",))
        wanted = [TaskRequest(task=f"t{n}", usage=KindAmounts(cpu=1.0), command=command) for n in range(MANY)]
        self.shell.dispatch(e.Requested(m.PLACE, 1, Place(job=self.job, stage="s", tasks=wanted, opportunistic=False)))

    def ends(self, number: int) -> bool:
        """Let the master report that a task has ended; return whether the kernel took all that was sent so far."""
        ended = api.TellEnded(job=self.job, task=f"t{number}", node="other", ended=ENDED)
        self.shell.dispatch(e.Decided(1, [ended], 0.0))
        return not self.peer.unread_bytes()

    def kept(self) -> set[str]:
        return {end.task for end in self.journal.read(origin_journal.ENDS, TaskEnd)}


async def test_ends_that_the_kernel_did_not_take_are_kept(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        _, peer = await asyncio.get_running_loop().connect_accepted_socket(lambda: RpcPeer(Silent()), ours)
        bed = Bed(tmp_path, peer)
        taken = next(number for number in range(MANY) if not bed.ends(number))
        assert taken > 1
        assert bed.kept() == {f"t{taken}"}, "those before are in the kernel's hands, whatever becomes of the agent"
        assert not bed.ends(taken + 1)
        assert bed.kept() == {f"t{taken}", f"t{taken + 1}"}
        bed.shell.dispatch(e.Requested(m.END_JOB, 1, EndJob(job=bed.job)))
        assert bed.kept() == set()
        peer.close()
