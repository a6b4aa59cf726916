"""The node's one door under random events: what was accepted ends once, promises are kept, nothing is left over."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core import Node, starvation, tasks
from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import WEIGHT_PER_CORE, Confinement, confine
from agent.core.records import ContainerRecord, ContainerState, HeldTask, JobRecord, Waits
from agent.core.settings import NodeSettings, PreemptionSettings
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import (
    Capacity,
    Choice,
    ContainerSpec,
    EndedBy,
    Executor,
    KindAmounts,
    MonotaskSpec,
    Notice,
    Profile,
    ResourceKind,
    TaskRequest,
)
from penstock.wire import agent_methods as m
from penstock.wire import master_api
from penstock.wire.agent_api import (
    Complete,
    Completion,
    ContainerEnded,
    ContainerRef,
    Launch,
    Place,
    RegisterJob,
    Resize,
    Submit,
    TaskEnded,
)
from penstock.wire.cluster_api import Draining
from penstock.wire.errors import RpcError

MEMORY_BYTES = 1000
NOTICE = Notice(signal=15, grace_s=2.0)
SETTINGS = NodeSettings(
    node="n",
    instance="x",
    capacity=Capacity(cores=2, memory_bytes=MEMORY_BYTES),
    has_master=True,
    preemption=PreemptionSettings(after=1, cooldown_s=1.0, starved_after_s=5.0),
    rejoin_s=5.0,
    keep_ended=1000,
)

#: Of what is assigned: no executor, one of which nothing is known, those whose profiles are.
EXECUTORS = (
    None,
    "unknown",
    Profile(slot_s=1.0, cpu_cores=(0.5, 1.5, 0.25), memory_bytes=(400, 100)),
    Profile(slot_s=0.5, cpu_cores=(1.0,), stages=(1,)),
)


class NodeMachine(RuleBasedStateMachine):
    """Plays kernel, launcher, frameworks and master around one node, and keeps the books."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(SETTINGS)
        self.journal: dict[tuple[str, str], object] = {}
        self.now = 0.0
        self.number = 0
        self.sessions: set[int] = set()
        self.jobs: dict[str, int] = {}  # job → the session that registered it
        self.starting: set[str] = set()
        self.processes: set[str] = set()  # what the launcher runs
        self.doomed: set[str] = set()  # what cgroup.kill was asked for
        self.launched: set[str] = set()
        self.begun: dict[tuple[str, str], str] = {}  # placed command → the container that may have run it
        self.ended: dict[str, EndedBy] = {}
        self.granted: set[tuple[int, str, object]] = set()
        self.submitted: dict[tuple[int, str, object], MonotaskSpec] = {}
        self.assigned: set[tuple[str, str]] = set()
        self.unheard: set[tuple[str, str]] = set()  # ends that the master has not answered
        self.reported: set[tuple[str, str]] = set()
        self.task_ends: set[tuple[int, str, str]] = set()
        self.decision = 0
        self.frozen: set[str] = set()
        self.warned: set[str] = set()
        self.confined: dict[str, Confinement] = {}
        self.orphans: set[str] = set()  # containers whose launcher died
        self.lent: set[str] = set()
        self.giving: set[str] = set()  # what is to be given back
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
                    assert container in self.processes and container in self.lent, "gives back what was not lent"
                    self.giving.add(container)
                case i.KillContainer(container, reason):
                    assert container in self.processes, "kills what does not run"
                    assert reason, "a kill without a reason"
                    self.doomed.add(container)
                case i.Freeze(container, frozen):
                    assert container in self.processes, "freezes what does not run"
                    (self.frozen.add if frozen else self.frozen.discard)(container)
                case i.WatchOrphan(container):
                    assert container in self.processes and container not in self.orphans, "watched twice"
                    self.orphans.add(container)
                case i.Signal(container, signum):
                    assert container in self.processes and container not in self.frozen, "notice to who cannot hear it"
                    assert signum == NOTICE.signal
                    self.warned.add(container)
                case i.Confine(container, confinement):
                    assert container in self.processes, "confines what does not run"
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
                case i.Notify(session, _, ContainerEnded()):
                    assert session in self.sessions
                case i.Notify(session, _, TaskEnded(job=job, task=task)):
                    self.task_ends.add((session, job, task))
                case i.TellMaster("command_ended", params):
                    assert isinstance(params, master_api.CommandEnded)
                    key = (params.job, params.task)
                    assert key in self.assigned and key not in self.reported, "a command ended twice"
                    self.reported.add(key)
                    self.unheard.add(key)
                case _:
                    pass
        return reply

    def fresh(self) -> int:
        self.number += 1
        return self.number

    @initialize(notice=st.booleans(), choices=st.lists(st.sampled_from(list(Choice)), max_size=3))
    def begin_with_some(self, notice: bool, choices: list[Choice]) -> None:
        """A node on which something runs already: preemption has somebody to choose from."""
        self.connect()
        promised = ContainerSpec(argv=("x",), memory_bytes=700, cpu_cores=2.0, detach=True)
        for spec in [
            ContainerSpec(argv=("x",), opportunistic=True, preempt=choice, notice=NOTICE if notice else None)
            for choice in choices
        ] + [promised] * bool(choices):
            self.send(e.Asked(m.LAUNCH, 1, Launch(container=spec)))
        for container in sorted(self.starting):
            self.starting.discard(container)
            self.processes.add(container)
            self.send(e.ContainerStarted(container, 42, {}, self.now))

    # ------------------------------------------------------------ frameworks

    @rule()
    def connect(self) -> None:
        session = self.fresh()
        self.sessions.add(session)
        self.send(e.SessionOpened(session, "u", 1000, "test"))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        self.sessions.discard(session)
        self.jobs = {job: owner for job, owner in self.jobs.items() if owner != session}
        self.forget(session)
        self.send(e.SessionClosed(session))

    def forget(self, session: int | None) -> None:
        self.submitted = {k: v for k, v in self.submitted.items() if session is not None and k[0] != session}
        self.granted = {k for k in self.granted if k in self.submitted}

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        reply = self.send(e.JobRegistered(session, RegisterJob(name="job"), 0.0))
        self.jobs[reply.job] = session  # type: ignore[attr-defined]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(list(ResourceKind)), min_size=1, max_size=4))
    def submit(self, data: st.DataObject, kinds: list[ResourceKind]) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        session = self.jobs[job]
        specs = [MonotaskSpec(id=self.fresh(), kind=kind, input_bytes=20000) for kind in kinds]
        self.submitted.update({(session, job, spec.id): spec for spec in specs})
        self.send(e.Asked(m.SUBMIT, session, Submit(job=job, monotasks=specs)))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.granted, key=repr)))
        self.granted.discard(key)
        del self.submitted[key]
        self.send(e.Asked(m.COMPLETE, key[0], Complete(job=key[1], monotasks=[Completion(id=key[2])])))  # type: ignore[arg-type]

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(), memory=st.integers(0, 600), opportunistic=st.booleans(), detach=st.booleans(),
        notice=st.booleans(), adopt=st.booleans(), choice=st.sampled_from(list(Choice)),
    )  # fmt: skip
    def launch(
        self, data: st.DataObject, memory: int, opportunistic: bool, detach: bool, notice: bool, adopt: bool,
        choice: Choice,
    ) -> None:  # fmt: skip
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        spec = ContainerSpec(
            argv=("x",), memory_bytes=memory, opportunistic=opportunistic, detach=detach, preempt=choice,
            notice=NOTICE if notice else None,
        )  # fmt: skip
        before = self.node.ledger()
        try:
            if adopt:
                self.send(e.AdoptRequested(session, spec, 4711, False))
            else:
                self.send(e.Asked(m.LAUNCH, session, Launch(container=spec)))
        except RpcError:
            if not opportunistic:
                assert before.promised_memory_bytes + memory > MEMORY_BYTES, "refused what fits"

    @precondition(lambda self: self.sessions and self.jobs)
    @rule(data=st.data(), pid=st.integers(1, 3))
    def lend(self, data: st.DataObject, pid: int) -> None:
        """A process that is in no container, or in one."""
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        inside = data.draw(st.sampled_from(["", *sorted(self.processes)]))
        with contextlib.suppress(RpcError):  # the job is over
            self.send(e.LendRequested(session, job, pid, ("x",), own=True, inside=inside))

    @precondition(lambda self: self.giving - self.doomed)
    @rule(data=st.data(), why_not=st.sampled_from(["", "", "the launcher is another"]))
    def give_back(self, data: st.DataObject, why_not: str) -> None:
        container = data.draw(st.sampled_from(sorted(self.giving - self.doomed)))
        self.giving.discard(container)
        if not why_not:
            self.processes.discard(container)
            self.orphans.discard(container)
        self.send(e.GivenBack(container, 0.1, 5, self.now, why_not))
        assert self.ended.get(container) is (None if why_not else EndedBy.EXIT)

    @precondition(lambda self: self.sessions and self.launched)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        self.send(e.Asked(m.KILL, session, ContainerRef(container=data.draw(st.sampled_from(sorted(self.launched))))))

    @precondition(lambda self: self.sessions and self.launched)
    @rule(data=st.data(), cores=st.sampled_from([None, 0.5, 1.0]))
    def resize(self, data: st.DataObject, cores: float | None) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        container = data.draw(st.sampled_from(sorted(self.launched)))
        try:
            self.send(e.Asked(m.RESIZE, session, Resize(container=container, limits={"cpu_cores": cores})))
        except RpcError:
            record = self.node.containers.find(container)
            assert record is not None
            assert record.ended or record.profile or record.state is ContainerState.STOPPING, "refused for no reason"

    @precondition(lambda self: self.sessions and self.launched)
    @rule(data=st.data(), cores=st.lists(st.sampled_from([0.5, 1.0, 2.0]), max_size=4))
    def follow(self, data: st.DataObject, cores: list[float]) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        container = data.draw(st.sampled_from(sorted(self.launched)))
        profile = Profile(slot_s=1.0, cpu_cores=tuple(cores)) if cores else None
        try:
            self.send(e.FollowRequested(session, container, profile, self.now))
        except RpcError:
            record = self.node.containers.find(container)
            assert record is not None
            assert record.ended or record.executor or record.state is ContainerState.STOPPING, "refused for no reason"

    @precondition(lambda self: self.alarm is not None)
    @rule()
    def alarm_rings(self) -> None:
        assert self.alarm is not None
        self.now, self.alarm = max(self.now, self.alarm), None
        self.send(e.Woken(self.now))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def ask_for_a_place(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        request = TaskRequest(task=f"t{self.fresh()}", usage=KindAmounts(cpu=5.0))
        self.send(e.Asked(m.PLACE, self.jobs[job], Place(job=job, stage="s", tasks=[request], opportunistic=False)))
        self.send(
            e.Asked(m.PLACE, self.jobs[job], Place(job=job, stage="s", tasks=[request], opportunistic=False))
        )  # said again: answered, not doubled

    # ------------------------------------------------------------ master

    @rule(
        data=st.data(), memory=st.integers(0, 700), command=st.booleans(), opportunistic=st.booleans(),
        foreign=st.booleans(), kind=st.sampled_from(list(ResourceKind)), profile=st.sampled_from(EXECUTORS),
    )  # fmt: skip
    def assign(
        self, data: st.DataObject, memory: int, command: bool, opportunistic: bool, foreign: bool, kind: ResourceKind,
        profile: Profile | str | None,
    ) -> None:  # fmt: skip
        if foreign or not self.jobs:
            job, origin = f"foreign-{data.draw(st.integers(1, 2))}", "elsewhere"
        else:
            job, origin = data.draw(st.sampled_from(sorted(self.jobs))), "n"
        spec = ContainerSpec(argv=("x",), memory_bytes=memory, detach=True) if command else None
        task = f"t{self.fresh()}"
        executor = Executor(application="a") if command and profile is not None else None
        request = TaskRequest(
            task=task, usage=KindAmounts(cpu=5.0), memory_bytes=memory, command=spec, command_kind=kind,
            executor=executor,
        )  # fmt: skip
        decision = master_api.Assign(
            job=job, stage="s", user="u", origin=origin, priority=0.0, request=request, opportunistic=opportunistic,
            profile=profile if isinstance(profile, Profile) else None,
        )  # fmt: skip
        self.assigned.add((job, task))
        reply = self.decide(decision)
        assert reply.refused or self.node.drain.draining is None, "who is drained takes no work"
        if reply.refused:
            self.reported.add((job, task))

    def decide(self, decision: master_api.AnyDecision) -> master_api.Decided:
        self.decision += 1
        reply = self.send(e.Decided(self.decision, [decision]))
        assert isinstance(reply, master_api.Decided)
        assert self.node.decided == self.decision
        return reply

    @precondition(lambda self: self.assigned)
    @rule(data=st.data(), promote=st.booleans())
    def withdraw_or_promote(self, data: st.DataObject, promote: bool) -> None:
        job, task = data.draw(st.sampled_from(sorted(self.assigned)))
        if promote:
            self.decide(master_api.Promote(job=job, task=task))
        else:
            self.decide(master_api.Withdraw(job=job, task=task, why="test"))

    @rule(on=st.sampled_from([True, False, False]))
    def drain(self, on: bool) -> None:
        self.decide(master_api.Drain(draining=Draining("root", 1.0) if on else None))

    # ------------------------------------------------------------ kernel and launcher

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), works=st.booleans(), orphaned=st.booleans())
    def start(self, data: st.DataObject, works: bool, orphaned: bool) -> None:
        container = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.discard(container)
        if works:
            self.processes.add(container)
            self.send(e.ContainerStarted(container, 42, {}, self.now, orphaned=orphaned))
            assert (container in self.orphans) == orphaned
        else:
            self.send(e.ContainerNotStarted(container, "no such command"))

    @rule()
    def launcher_dies(self) -> None:
        """What it had started runs on; what it starts is answered for as any start."""
        promised = self.node.ledger()
        self.send(e.LauncherLost(self.now))
        assert self.orphans == self.processes
        ledger = self.node.ledger()
        assert ledger.promised_cores == promised.promised_cores
        assert ledger.promised_memory_bytes == promised.promised_memory_bytes

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), status=st.sampled_from([0, 1, 137]), oom=st.booleans())
    def exit(self, data: st.DataObject, status: int, oom: bool) -> None:
        container = data.draw(st.sampled_from(sorted(self.doomed or self.processes)))
        asked = container in self.doomed
        self.processes.discard(container)
        self.doomed.discard(container)
        self.giving.discard(container)
        self.frozen.discard(container)
        if container in self.orphans:  # nobody saw how
            self.orphans.discard(container)
            self.send(e.ContainerExited(container, None, None, 0.1, 5, int(oom), self.now))
            assert (self.ended[container] is EndedBy.LOST) == (not asked)
        else:
            signal = 9 if status == 137 else None
            self.send(e.ContainerExited(container, status, signal, 0.1, 5, int(oom), self.now))
            assert self.ended[container] is not EndedBy.LOST
        by = self.ended[container]
        ours = {EndedBy.CANCELLED, EndedBy.PREEMPTED, EndedBy.DISCONNECTED}
        assert (by in ours) == asked, f"{by}, though a kill was {'' if asked else 'not '}asked for"

    @rule(data=st.data(), seconds=st.floats(0.1, 9))
    def sample(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        uses = self.uses(data)
        live = self.node.containers.live
        before = {c for c, r in live.items() if r.opportunistic or r.stopping_by is not None}
        self.send(e.Sampled(Snapshot(self.now, seconds, HostUse(), uses), self.now))
        # Those of a job whose framework did not come back after a restart are cancelled.
        preempted = {c for c, r in live.items() if r.stopping_by is EndedBy.PREEMPTED}
        assert preempted <= before, "a regular container was preempted"

    def uses(self, data: st.DataObject) -> dict[str, ContainerUse]:
        if data.draw(st.booleans()):  # nobody does much: what was paused may go on
            return {container: ContainerUse(memory_bytes=1) for container in sorted(self.processes)}
        return {
            container: ContainerUse(
                memory_bytes=data.draw(st.integers(0, 900)),
                memory_cache_bytes=data.draw(st.integers(0, 300)),
                memory_unreclaimable_bytes=data.draw(st.integers(0, 900)),
                cpu_cores=0.0 if container in self.frozen else data.draw(st.floats(0, 2)),
                disk_bytes_per_s=0.0 if container in self.frozen else data.draw(st.floats(0, 2)),
                cpu_stalled=data.draw(st.sampled_from([0.0, 1.0])),
            )
            for container in sorted(self.processes)
        }

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), pressed=st.booleans())
    def look_at_memory(self, data: st.DataObject, pressed: bool) -> None:
        stalled = tuple(sorted(self.processes)) if pressed else ()
        self.send(e.MemoryChecked(Snapshot(self.now, 1.0, HostUse(), self.uses(data)), stalled, self.now))
        for container in sorted(self.processes):
            self.send(e.Reclaimed(container, 0))

    @rule(data=st.data(), lost=st.booleans(), same_launcher=st.booleans())
    def restart(self, data: st.DataObject, lost: bool, same_launcher: bool) -> None:
        """The agent is killed and comes back; the launcher went on, or died, and with it some of what it ran.

        Starts have never reached the launcher, which only the launcher that was to get them can say.
        """
        node = Node(replace(SETTINGS, instance=f"x{self.fresh()}"))
        records: defaultdict[str, list[Any]] = defaultdict(list)
        for (room, _), record in self.journal.items():
            records[room].append(record)
        never_began = frozenset(self.starting) if same_launcher and not lost else frozenset()
        self.starting.clear()
        placed = {record.container for record in records["tasks"] if record.ended is None}
        wanted = {r.container for r in records["containers"] if r.stopping_by is None}
        anew = never_began & placed & wanted
        self.launched -= anew
        self.begun = {key: container for key, container in self.begun.items() if container not in anew}
        orphans = frozenset(self.orphans)
        if lost:
            orphans = data.draw(st.frozensets(st.sampled_from(sorted(self.processes)))) if self.processes else orphans
            self.processes &= orphans
            self.frozen &= orphans
            self.doomed &= orphans
        self.orphans.clear()
        self.sessions.clear()
        self.jobs.clear()
        self.forget(None)
        kept = self.node.containers.ended.by_id
        self.node = node
        self.alarm, self.watched = None, False
        running = dict.fromkeys(self.processes, 7)
        self.decision = 0
        before, self.unheard = self.unheard, set()
        self.reported -= before
        self.send(
            e.Recovered(
                jobs=[r for r in records["jobs"] if isinstance(r, JobRecord)],
                tasks=[r for r in records["tasks"] if isinstance(r, HeldTask)],
                containers=[r for r in records["containers"] if isinstance(r, ContainerRecord)],
                running=running,
                exits_to_come=frozenset(),
                at=self.now,
                draining=next((r for r in records["node"] if isinstance(r, Draining)), None),
                waits=next((r for r in records[starvation.ROOM] if isinstance(r, Waits)), None),
                never_began=never_began,
                orphans=orphans,
            )
        )
        assert self.orphans == orphans
        assert never_began <= anew | self.ended.keys()
        assert EndedBy.LOST not in {self.ended[container] for container in never_began - anew}
        assert before <= self.unheard, "an end is lost"
        assert kept.keys() <= self.node.containers.ended.by_id.keys(), "how a container ended is lost"

    @precondition(lambda self: self.unheard)
    @rule(data=st.data())
    def hear_of_an_end(self, data: st.DataObject) -> None:
        """The master answers."""
        self.hear(data.draw(st.sampled_from(sorted(self.unheard))))

    def hear(self, key: tuple[str, str]) -> None:
        self.unheard.discard(key)
        self.send(e.EndAcknowledged(*key))

    # ------------------------------------------------------------ what always holds

    @invariant()
    def promises_fit_the_node(self) -> None:
        ledger = self.node.ledger()
        assert ledger.promised_memory_bytes <= MEMORY_BYTES, "memory is over-committed"
        assert ledger.promised_cores <= 2 + 1e-6

    @invariant()
    def every_container_is_live_or_ended(self) -> None:
        live = set(self.node.containers.live)
        assert live == self.starting | self.processes
        assert live | set(self.ended) == self.launched
        assert not live & set(self.ended)
        kept = set(self.node.containers.ended.by_id)
        assert {key for room, key in self.journal if room == "containers"} == live | kept

    @invariant()
    def what_is_lent_belongs_to_a_job_or_is_given_back(self) -> None:
        for container, record in self.node.containers.live.items():
            if record.borrowed and record.state is ContainerState.RUNNING:
                assert record.job in self.node.jobs or container in self.giving

    @invariant()
    def only_who_is_paused_stands_still(self) -> None:
        live = self.node.containers.live
        paused = {c for c, record in live.items() if record.state is ContainerState.PAUSED}
        assert paused == self.frozen - self.doomed
        assert all(live[container].opportunistic for container in paused), "a regular container was paused"

    @invariant()
    def the_kernel_was_told_of_every_limit(self) -> None:
        for container, record in self.node.containers.live.items():
            if record.state in (ContainerState.RUNNING, ContainerState.PAUSED):
                assert self.confined[container] == record.confine().confinement

    @invariant()
    def ranked_jobs_weigh_no_more_than_the_cores(self) -> None:
        ranked = [standing.weight for standing in self.node.ranks.standings.values()]
        several = len(self.node.containers.live)  # each weighs 1 at least
        assert sum(ranked) <= WEIGHT_PER_CORE * 2 + several

    @invariant()
    def memory_is_watched_while_somebody_could_give_it_back(self) -> None:
        assert self.watched == any(record.opportunistic for record in self.node.containers.live.values())

    @invariant()
    def the_alarm_is_set_for_who_waits(self) -> None:
        times = [at for at in (self.node.preemption.due(), self.node.elasticity.due(self.now)) if at is not None]
        assert not times or (self.alarm is not None and self.alarm <= min(times) + 1e-9)

    @invariant()
    def every_assigned_command_is_held_or_reported(self) -> None:
        held = {key for key, task in self.node.held.by_key.items() if task.request.command is not None}
        assert not held & self.reported
        kept = {tasks.journal_key(*key) for key in self.unheard | self.node.held.by_key.keys()}
        assert {key for room, key in self.journal if room == "tasks"} == kept

    @invariant()
    def who_is_drained_keeps_nothing_that_others_could_do(self) -> None:
        for held in self.node.held if self.node.drain.draining is not None else ():
            if held.request.command is not None:
                going = self.node.containers.live[held.container].state is ContainerState.STOPPING
                assert going or not held.opportunistic

    @invariant()
    def nobody_waits_beside_an_idle_slot(self) -> None:
        for kind in ResourceKind:
            counts = self.node.queues.counts(kind, self.now)
            assert not counts["queued"] or counts["running"] >= counts["slots"] - counts["withheld"]

    @invariant()
    def grants_are_only_to_the_living(self) -> None:
        assert {session for session, _, _ in self.granted} <= self.sessions

    def teardown(self) -> None:
        """When everybody leaves and everything ends, nothing is left."""
        self.drain(False)
        for session in sorted(self.sessions):
            self.send(e.SessionClosed(session))
        self.now += 100
        self.send(e.Sampled(Snapshot(self.now, 1.0), self.now))
        for job in sorted({job for job, _ in self.assigned}):
            for held in self.node.held.of_job(job):
                self.decide(master_api.Withdraw(job=job, task=held.task, why="the end"))
        while self.starting or self.processes:
            for container in sorted(self.starting):
                self.starting.discard(container)
                self.send(e.ContainerNotStarted(container, "too late"))
            for container in sorted(self.processes):
                self.processes.discard(container)
                self.frozen.discard(container)
                self.orphans.discard(container)
                self.send(e.ContainerExited(container, 0, None, 0.0, 0, 0, self.now))
        for key in sorted(self.unheard):
            self.hear(key)
        self.now += 100
        self.send(e.Sampled(Snapshot(self.now, 1.0), self.now))  # nothing waits any longer
        assert not self.node.held.by_key and not self.node.jobs and not self.node.containers.live
        gone = [key for key in self.journal if key[0] != "containers"]
        assert not gone, "the journal remembers what is gone"
        idle = self.node.queues.idle()
        assert (idle.cpu, idle.disk, idle.network) == (2, 1, 2), "a slot leaked"


TestNode = NodeMachine.TestCase
TestNode.settings = settings(
    max_examples=50, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
