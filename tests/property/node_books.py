"""A node's one door, and the books of all around it: each instruction is checked against them, and carried out."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Confinement, confine
from agent.core.records import ContainerRecord
from agent.core.settings import NodeSettings, PreemptionSettings, Thresholds
from penstock.model import Capacity, EndedBy, MonotaskSpec, Notice
from penstock.wire import master_api
from penstock.wire.agent_api import CancelledBy, ContainerEnded, TaskEnded

MEMORY_BYTES = 1000
NOTICE = Notice(signal=15, grace_s=2.0)
SETTINGS = NodeSettings(
    node="n",
    instance="x",
    capacity=Capacity(cores=2, memory_bytes=MEMORY_BYTES),
    has_master=True,
    preemption=PreemptionSettings(Thresholds(cpu=0.95), after=1, cooldown_s=1.0, starved_after_s=5.0),
    rejoin_s=5.0,
    keep_ended=1000,
)


class NodeBooks(RuleBasedStateMachine):
    """The test's own record of a node's sessions, jobs, containers and commands."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(SETTINGS)
        self.journal: dict[tuple[str, str], object] = {}
        self.now = 0.0
        self.number = 0
        self.sessions: set[int] = set()
        self.jobs: dict[str, int] = {}  # job → the session that registered it
        self.starting: set[str] = set()
        self.processes: set[str] = set()  # processes that the launcher runs
        self.doomed: set[str] = set()  # containers for which cgroup.kill was requested
        self.launched: set[str] = set()
        self.begun: dict[tuple[str, str], str] = {}  # placed command → the container that may have run it
        self.ended: dict[str, EndedBy] = {}
        self.granted: set[tuple[int, str, object]] = set()
        self.submitted: dict[tuple[int, str, object], MonotaskSpec] = {}
        self.assigned: dict[tuple[str, str], master_api.Assign] = {}
        self.unacknowledged: set[tuple[str, str]] = set()  # ends that the master has not answered
        self.reported: set[tuple[str, str]] = set()
        self.task_ends: set[tuple[int, str, str]] = set()
        self.cancelled: set[str] = set()  # jobs that the master had cancelled here
        self.cancellations: set[tuple[int, str]] = set()  # session, job of a notification
        self.decision = 0
        self.frozen: set[str] = set()
        self.warned: set[str] = set()
        self.confined: dict[str, Confinement] = {}
        self.orphans: set[str] = set()  # containers whose launcher died
        self.lent: set[str] = set()
        self.giving: set[str] = set()  # lent processes that are to be given back
        self.alarm: float | None = None
        self.watched = False

    def send(self, event: e.Event) -> object:  # noqa: C901 - one case per instruction
        reply: object = None
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Grant(session, grants):
                    job = grants.job
                    for monotask in grants.ids:
                        assert (session, job, monotask) not in self.granted, "granted twice"
                        assert (session, job, monotask) in self.submitted
                        self.granted.add((session, job, monotask))
                case i.Reply(result):
                    reply = result
                case (
                    i.StartContainer(container=container, spec=spec, rank_weight=weight)
                    | i.AdoptProcess(container=container, spec=spec, rank_weight=weight)
                ):
                    self.confined[container] = confine(
                        spec, spec.limits, opportunistic=spec.opportunistic, rank_weight=weight,
                        borrowed=isinstance(instruction, i.AdoptProcess) and instruction.borrow,
                    )  # fmt: skip
                    assert container not in self.launched, "started twice"
                    assert ("containers", container) in self.journal, "started before it was journaled"
                    record = self.node.containers.live[container]
                    if record.task:
                        assert (record.job, record.task) not in self.begun, "a command may run twice"
                        self.begun[record.job, record.task] = container
                    if record.borrowed:
                        self.lent.add(container)
                    self.launched.add(container)
                    self.starting.add(container)
                case i.GiveBack(container):
                    assert container in self.processes and container in self.lent, (
                        "gives back a process that was not lent"
                    )
                    self.giving.add(container)
                case i.KillContainer(container, reason):
                    assert container in self.processes, "kills a container that does not run"
                    assert reason, "a kill without a reason"
                    self.doomed.add(container)
                case i.Freeze(container, frozen):
                    assert container in self.processes, "freezes a container that does not run"
                    (self.frozen.add if frozen else self.frozen.discard)(container)
                case i.WatchOrphan(container):
                    assert container in self.processes and container not in self.orphans, "watched twice"
                    self.orphans.add(container)
                case i.Signal(container, signum):
                    assert container in self.processes and container not in self.frozen, (
                        "notice to a frozen container, which cannot receive it"
                    )
                    assert signum == NOTICE.signal
                    self.warned.add(container)
                case i.Confine(container, confinement):
                    assert container in self.processes, "confines a container that does not run"
                    assert confinement.opportunistic == self.node.containers.live[container].opportunistic
                    self.confined[container] = confinement
                case i.WatchMemory(on):
                    assert on != self.watched, "said twice"
                    self.watched = on
                case i.Wake(at):
                    self.alarm = at
                case i.RemoveContainer(container):
                    assert container not in self.ended
                    if container not in self.launched:  # it never began, and its task has another one
                        continue
                    record = self.journal["containers", container]
                    assert isinstance(record, ContainerRecord) and record.ended is not None, "removed, its end lost"
                    self.ended[container] = record.ended.by
                case i.Record(room, key, value):
                    if value is None:
                        self.journal.pop((room, key), None)
                    else:
                        self.journal[room, key] = value
                case i.Notify(session, ContainerEnded()):
                    assert session in self.sessions
                case i.Notify(session, TaskEnded(job=job, task=task)):
                    self.task_ends.add((session, job, task))
                case i.Notify(session, CancelledBy(job=job)):
                    self.cancellations.add((session, job))
                case i.SendToMaster(master_api.CommandEnded() as params):
                    key = (params.job, params.task)
                    assert key in self.assigned and key not in self.reported, "a command ended twice"
                    self.reported.add(key)
                    self.unacknowledged.add(key)
                case _:
                    pass
        return reply

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def forget(self, session: int | None) -> None:
        self.submitted = {k: v for k, v in self.submitted.items() if session is not None and k[0] != session}
        self.granted = {k for k in self.granted if k in self.submitted}

    def decide(self, decision: master_api.AnyDecision) -> master_api.Decided:
        self.decision += 1
        reply = self.send(e.Decided(self.decision, [decision], self.now))
        assert isinstance(reply, master_api.Decided)
        assert self.node.decided == self.decision
        return reply

    def acknowledge(self, key: tuple[str, str]) -> None:
        self.unacknowledged.discard(key)
        self.send(e.EndAcknowledged(*key))
