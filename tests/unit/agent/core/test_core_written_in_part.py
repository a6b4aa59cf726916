"""An agent dies between any two steps of a placed command: the command runs once, and its one end is reported."""

from __future__ import annotations

import copy

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerState
from penstock.model import Ended, Executor
from penstock.wire import master_api as api
from tests.fakes.node_bed import MIB, NodeBed

STATUS = 3
_NOT_BEGUN = {ContainerState.STARTING, ContainerState.STOPPING}


class Bed(NodeBed):
    """A node and its launcher; ``deaths`` are copies, each of a moment in which the agent may die.

    The journal and the launcher outlive the agent: the running processes, and the ends that it keeps. ``starts`` and
    ``told`` are for the test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running: set[str] = set()
        self.exited: set[str] = set()
        self.starts = 0
        self.told: list[Ended] = []
        self.asked: list[str] = []
        self.deaths: list[Bed] = []

    def may_die(self) -> None:
        dead = copy.copy(self)
        dead.journal, dead.running, dead.exited = dict(self.journal), set(self.running), set(self.exited)
        dead.told, dead.asked, dead.deaths = list(self.told), [], []
        self.deaths.append(dead)

    def hear(self, one: i.Instruction) -> None:
        match one:
            case i.StartContainer(container=container):
                self.asked.append(container)
            case i.SendToMaster(api.CommandEnded() as params):
                self.told.append(params.ended)
            case i.RemoveContainer(container):
                self.may_die()  # the launcher has not received it yet
                self.exited.discard(container)
        self.may_die()

    def start(self) -> None:
        """Start the processes that the launcher was asked for."""
        asked, self.asked = self.asked, []
        for container in asked:
            self.starts += 1
            self.running.add(container)
            self.may_die()
            self.begin(container)

    def end(self) -> None:
        """End all that runs, and report each end that the launcher keeps."""
        self.exited |= self.running
        self.running.clear()
        self.may_die()
        for container in sorted(self.exited):
            self.exit(container, STATUS)

    def succeed(self) -> None:
        """Start the next agent."""
        idle = frozenset(r.container for r in self.of("containers") if r.state in _NOT_BEGUN and not r.pid)
        never_began = idle - self.running - self.exited
        self.restart(*self.running, exits_to_come=frozenset(self.exited), never_began=never_began)


def life(*, opportunistic: bool, executor: bool, promoted: bool, withdrawn: bool) -> Bed:
    """Run a command from its placement to its end, which the master has received."""
    bed = Bed()
    of = Executor(application="a") if executor else None
    bed.command("t", spec={"memory_bytes": MIB}, memory_bytes=MIB, executor=of, opportunistic=opportunistic)
    bed.start()
    if promoted:
        bed.decide(api.Promote(job=bed.JOB, task="t"))
    if withdrawn:
        bed.decide(api.Withdraw(job=bed.JOB, task="t", why="test"))
    bed.end()
    bed.send(e.EndAcknowledged(bed.JOB, "t"))
    return bed


LIVES = [
    {"opportunistic": False, "executor": False, "promoted": False, "withdrawn": False},
    {"opportunistic": False, "executor": False, "promoted": False, "withdrawn": True},
    {"opportunistic": True, "executor": False, "promoted": False, "withdrawn": False},
    {"opportunistic": True, "executor": False, "promoted": True, "withdrawn": False},
    {"opportunistic": False, "executor": True, "promoted": False, "withdrawn": False},
]


@pytest.mark.parametrize(
    "course", LIVES, ids=lambda course: " ".join(key for key, on in course.items() if on) or "regular"
)
def test_it_runs_once_and_its_end_is_reported(course: dict[str, bool]) -> None:
    deaths = life(**course).deaths
    assert len(deaths) > 10
    for bed in deaths:
        _goes_on(bed)


def _goes_on(bed: Bed) -> None:
    placed, told = bool(bed.of("tasks")), len(bed.told)
    bed.succeed()
    bed.send(e.Reconfigured(bed.node.settings, 1.0))  # slack is looked for at the next occasion
    bed.start()
    bed.end()
    assert bed.starts == (1 if placed or told else 0)
    assert len(bed.told) - told == placed, "until the master has heard of it"
    assert {ended.exit_status for ended in bed.told} <= {STATUS}
    assert len({ended.by for ended in bed.told}) <= 1
    node = bed.node
    assert not node.containers.live and not node.held.by_key and not bed.exited
    assert node.queues.idle().cpu == bed.settings.capacity.cores
    kept = [record.ended for record in node.containers.ended.by_id.values()]
    assert len(kept) == bed.starts and {ended.exit_status for ended in kept if ended} <= {STATUS}
