"""Frameworks and the master around a node: their requests, and the conditions under which the node may refuse one."""

from __future__ import annotations

import contextlib

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from agent.core import events as e
from agent.core.records import ContainerState
from penstock.model import (
    Choice,
    ContainerSpec,
    Ended,
    EndedBy,
    Executor,
    KindAmounts,
    MonotaskSpec,
    Profile,
    ResourceKind,
    TaskRequest,
)
from penstock.wire import agent_methods as m
from penstock.wire import master_api
from penstock.wire.agent_api import (
    Complete,
    Completion,
    ContainerRef,
    Launch,
    Place,
    RegisterJob,
    Resize,
    Submit,
    TaskRefs,
)
from penstock.wire.cluster_api import Draining
from penstock.wire.errors import RpcError
from tests.property.node_books import MEMORY_BYTES, NOTICE, NodeBooks

#: Assigned executors: none, one that is unknown, and those whose profiles are known.
EXECUTORS = (
    None,
    "unknown",
    Profile(slot_s=1.0, cpu_cores=(0.5, 1.5, 0.25), memory_bytes=(400, 100)),
    Profile(slot_s=0.5, cpu_cores=(1.0,), stages=(1,)),
)


class Callers(NodeBooks):
    """Sessions with jobs, monotasks and containers; tasks that are assigned, promoted, withdrawn."""

    @initialize(notice=st.booleans(), choices=st.lists(st.sampled_from(list(Choice)), max_size=3))
    def begin_with_some(self, notice: bool, choices: list[Choice]) -> None:
        """Begin with running containers: preemption has victims to choose from."""
        self.connect()
        promised = ContainerSpec(argv=("x",), memory_bytes=700, cpu_cores=2.0, detach=True)
        for spec in [
            ContainerSpec(argv=("x",), opportunistic=True, preempt=choice, notice=NOTICE if notice else None)
            for choice in choices
        ] + [promised] * bool(choices):
            self.send(e.Requested(m.LAUNCH, 1, Launch(container=spec)))
        self.start_all()

    def start_all(self) -> None:
        for container in sorted(self.starting):
            self.starting.discard(container)
            self.processes.add(container)
            self.send(e.ContainerStarted(container, 42, {}, self.now))

    # ------------------------------------------------------------ frameworks

    @rule()
    def connect(self) -> None:
        session = self.fresh()
        self.sessions.add(session)
        self.send(e.SessionOpened(session, "u", "test"))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        self.sessions.discard(session)
        self.jobs = {job: owner for job, owner in self.jobs.items() if owner != session}
        self.forget(session)
        self.send(e.SessionClosed(session))

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
        self.send(e.Requested(m.SUBMIT, session, Submit(job=job, monotasks=specs)))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.granted, key=repr)))
        self.granted.discard(key)
        del self.submitted[key]
        self.send(e.Requested(m.COMPLETE, key[0], Complete(job=key[1], monotasks=[Completion(id=key[2])])))  # type: ignore[arg-type]

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
                self.send(e.Requested(m.LAUNCH, session, Launch(container=spec)))
        except RpcError:
            if not opportunistic:
                assert before.promised_memory_bytes + memory > MEMORY_BYTES, "refused a task that fits"

    @precondition(lambda self: self.sessions and self.jobs)
    @rule(data=st.data(), pid=st.integers(1, 3))
    def lend(self, data: st.DataObject, pid: int) -> None:
        """A process that is in no container, or in one."""
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        inside = data.draw(st.sampled_from(["", *sorted(self.processes)]))
        with contextlib.suppress(RpcError):  # the job is over
            self.send(e.LendRequested(session, job, pid, ("x",), own=True, inside=inside))

    @precondition(lambda self: self.sessions and self.launched)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        self.send(
            e.Requested(m.KILL, session, ContainerRef(container=data.draw(st.sampled_from(sorted(self.launched)))))
        )

    @precondition(lambda self: self.sessions and self.launched)
    @rule(data=st.data(), cores=st.sampled_from([None, 0.5, 1.0]))
    def resize(self, data: st.DataObject, cores: float | None) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        container = data.draw(st.sampled_from(sorted(self.launched)))
        try:
            self.send(e.Requested(m.RESIZE, session, Resize(container=container, limits={"cpu_cores": cores})))
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

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def ask_for_a_place(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        request = TaskRequest(task=f"t{self.fresh()}", usage=KindAmounts(cpu=5.0))
        asked = e.Requested(m.PLACE, self.jobs[job], Place(job=job, stage="s", tasks=[request], opportunistic=False))
        self.send(asked)
        self.send(asked)  # a repetition: answered, not doubled

    @precondition(lambda self: self.tasks_here())
    @rule(data=st.data(), method=st.sampled_from([m.CANCEL_TASKS, m.TASKS_DONE]))
    def end_a_task(self, data: st.DataObject, method: object) -> None:
        job, task = data.draw(st.sampled_from(self.tasks_here()))
        if job in self.jobs:
            self.send(e.Requested(method, self.jobs[job], TaskRefs(job=job, tasks=[task])))  # type: ignore[arg-type]

    def tasks_here(self) -> list[tuple[str, str]]:
        """The tasks that frameworks of this node asked for."""
        return [(name, task) for name, job in self.node.jobs.items() if job.record.here for task in job.tasks]

    # ------------------------------------------------------------ master

    @precondition(lambda self: self.node.jobs)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.decide(master_api.AdmitJob(job=data.draw(st.sampled_from(sorted(self.node.jobs)))))

    @precondition(lambda self: self.node.jobs)
    @rule(data=st.data())
    def cancel_job(self, data: st.DataObject) -> None:
        self.cancel(data.draw(st.sampled_from(sorted(self.node.jobs))))

    def cancel(self, job: str) -> None:
        clients = self.node.jobs[job].sessions
        self.decide(master_api.CancelJob(job=job, by="ann"))
        assert {(session, job) for session in clients} <= self.cancellations
        self.cancelled.add(job)
        self.jobs.pop(job, None)
        self.submitted = {key: spec for key, spec in self.submitted.items() if key[1] != job}
        self.granted = {key for key in self.granted if key in self.submitted}

    @precondition(lambda self: self.sessions and self.cancelled - self.node.jobs.keys())
    @rule(data=st.data())
    def join_a_cancelled_job(self, data: st.DataObject) -> None:
        """A client that has not read the cancellation, often as the agent was restarted, joins its job again."""
        job = data.draw(st.sampled_from(sorted(self.cancelled - self.node.jobs.keys())))
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        before = set(self.node.jobs)
        self.cancellations.discard((session, job))
        self.send(e.JobRegistered(session, RegisterJob(name="job", job=job), 0.0))
        assert (session, job) in self.cancellations
        assert set(self.node.jobs) == before, "a cancelled job is back"

    @precondition(lambda self: self.tasks_here())
    @rule(data=st.data(), ended=st.booleans())
    def tell_the_origin(self, data: st.DataObject, ended: bool) -> None:
        """It may be told again, and of a task that its framework has ended."""
        job, task = data.draw(st.sampled_from(self.tasks_here()))
        if ended:
            end = Ended(by=EndedBy.EXIT, exit_status=0)
            self.decide(master_api.TellEnded(job=job, task=task, node="elsewhere", ended=end))
        else:
            self.decide(master_api.TellPlaced(job=job, task=task, node="elsewhere"))

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
        self.place(decision)

    def place(self, decision: master_api.Assign) -> None:
        key = decision.job, decision.request.task
        held = key in self.node.held.by_key
        reply = self.decide(decision)
        assert reply.refused or held or self.node.drain.draining is None, "a drained node takes no work"
        self.assigned[key] = decision
        if held:
            record = self.node.containers.live.get(self.node.held.by_key[key].container)
            assert bool(reply.refused) == (record is not None and record.state is ContainerState.STOPPING)
        elif reply.refused:
            self.reported.add(key)
        else:  # also a job that was cancelled here goes on, where its origin has not received the cancellation
            self.cancelled.discard(decision.job)
            self.reported.discard(key)
            self.begun.pop(key, None)

    @precondition(lambda self: self.assigned.keys() - self.unacknowledged)
    @rule(data=st.data())
    def assign_again(self, data: st.DataObject) -> None:
        """A task that was lost with the connection, or that is to run once more, may have a container here still."""
        again = sorted(self.assigned.keys() - self.unacknowledged)
        self.place(self.assigned[data.draw(st.sampled_from(again))])

    @precondition(lambda self: self.foreign_commands())
    @rule(data=st.data())
    def cancel_in_vain(self, data: st.DataObject) -> None:
        """The master dies before the job's origin has received the cancellation: the next one assigns more of it."""
        decision = data.draw(st.sampled_from(self.foreign_commands()))
        self.cancel(decision.job)
        request = msgspec.structs.replace(decision.request, task=f"t{self.fresh()}")
        self.place(msgspec.structs.replace(decision, request=request))

    def foreign_commands(self) -> list[master_api.Assign]:
        """The commands here of jobs of other origins."""
        here = [key for key, held in self.node.held.by_key.items() if held.container and held.origin != "n"]
        return [self.assigned[key] for key in here if key[0] in self.node.jobs]

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

    @precondition(lambda self: self.unacknowledged)
    @rule(data=st.data())
    def acknowledge_an_end(self, data: st.DataObject) -> None:
        """The master answers."""
        self.acknowledge(data.draw(st.sampled_from(sorted(self.unacknowledged))))
