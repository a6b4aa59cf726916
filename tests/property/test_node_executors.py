"""Random executors on one node: at no time from now on is more held than there is, also if some are late, end or
come.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.commitments import steps, total
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Capacity, ContainerSpec, Executor, KindAmounts, Profile, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch
from penstock.wire.errors import RpcError
from penstock.wire.master_api import Assign, Availability, Decided, ExecutorUse, TellStages, Withdraw

MIB = 2**20
CAPACITY = np.array([4.0, 100.0 * MIB, 50.0 * MIB, 4096.0 * MIB])
UNITS = np.array([1e-3, 1024.0, 1024.0, MIB])
SETTINGS = NodeSettings(
    node="n",
    instance="x",
    capacity=Capacity(cores=4, memory_bytes=4096 * MIB),
    disk_bytes_per_s=100 * MIB,
    link_bytes_per_s=50 * MIB,
    has_master=True,
)

CORES = st.lists(st.integers(1, 16).map(lambda quarters: quarters / 4), min_size=1, max_size=6).map(tuple)


def series(most_mib: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Of as many values as there are slots, or one for all; or nothing."""
    return st.lists(st.integers(1, most_mib).map(lambda mib: mib * MIB), max_size=6).map(tuple)


PROFILES = st.builds(
    lambda slot_s, cores, memory, disk, network, stages: Profile(
        slot_s=slot_s,
        cpu_cores=cores,
        memory_bytes=memory,
        disk_bytes_per_s=disk,
        network_bytes_per_s=network,
        stages=tuple(sorted(end for end in stages if end <= len(cores))),
    ),
    st.sampled_from([1.0, 3.0, 4.5]),
    CORES,
    series(3000),
    series(80),
    series(40),
    st.sets(st.integers(1, 6), max_size=3),
)


class ExecutorsMachine(RuleBasedStateMachine):
    """Plays master, launcher, kernel and clock; keeps the reports as a master does."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(SETTINGS)
        self.now = 1000.0
        self.number = 0
        self.alarm: float | None = None
        self.starting: list[str] = []
        self.running: list[str] = []
        self.told: tuple[Availability, float] | None = None
        self.heard: dict[str, int] = {}
        self.over: set[str] = set()
        self.sampled_s: dict[str, float] = {}
        self.node.handle(e.SessionOpened(1, "u", "test", operator=True), self.now)
        self.node.link_opens()
        self.beat()

    # ------------------------------------------------------------ the surroundings

    def send(self, event: e.Event) -> Any:
        reply = None
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Reply(result):
                    reply = result
                case i.StartContainer(container=container):
                    self.starting.append(container)
                case i.Wake(at):
                    self.alarm = at
                case _:
                    pass
        return reply

    def decide(self, decision: Any) -> bool:
        """Whether it was carried out."""
        self.number += 1
        answer = self.send(e.Decided(self.number, [decision], 0.0))
        assert isinstance(answer, Decided)
        return not answer.refused

    def beat(self) -> None:
        heartbeat = self.node.heartbeat(self.now)
        if heartbeat.load.availability is not None:
            self.told = (heartbeat.load.availability, self.now)
        for use in heartbeat.executors:
            self.take_report(use)

    def take_report(self, use: ExecutorUse) -> None:
        assert use.task not in self.over, "something came after the end"
        assert use.first == self.heard.get(use.task, 0), "a slot is missing or came twice"
        self.heard[use.task] = use.first + len(use.mean)
        if use.ended:
            self.over.add(use.task)

    # ------------------------------------------------------------ events

    @rule(profile=PROFILES, cores=st.integers(0, 2), memory_mib=st.integers(0, 500), known=st.booleans())
    def assign(self, profile: Profile, cores: int, memory_mib: int, known: bool) -> None:
        self.number += 1
        command = ContainerSpec(argv=("x",), cpu_cores=float(cores), memory_bytes=memory_mib * MIB)
        request = TaskRequest(
            task=f"t{self.number}",
            usage=KindAmounts(),
            memory_bytes=memory_mib * MIB,
            command=command,
            executor=Executor(application="a"),
        )
        self.decide(
            Assign(
                job="elsewhere-1", stage="s", user="u", origin="o", priority=0.0, request=request,
                profile=profile if known else None,
            )
        )  # fmt: skip

    @rule(cores=st.integers(0, 3), memory_mib=st.integers(0, 2000), network_mib=st.integers(0, 30))
    def launch(self, cores: int, memory_mib: int, network_mib: int) -> None:
        spec = ContainerSpec(
            argv=("y",), cpu_cores=float(cores), memory_bytes=memory_mib * MIB, network_bytes_per_s=network_mib * MIB
        )
        try:
            self.send(e.Requested(m.LAUNCH, 1, Launch(container=spec)))
        except RpcError as error:
            assert "cannot promise" in str(error)

    @precondition(lambda self: self.starting)
    @rule(works=st.booleans(), data=st.data())
    def start(self, works: bool, data: st.DataObject) -> None:
        container = data.draw(st.sampled_from(self.starting))
        self.starting.remove(container)
        if works:
            self.running.append(container)
            self.sampled_s[container] = 0.0
            self.send(e.ContainerStarted(container, 7, {}, self.now))
        else:
            self.send(e.ContainerNotStarted(container, "no such command"))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), asked=st.booleans())
    def end(self, data: st.DataObject, asked: bool) -> None:
        container = data.draw(st.sampled_from(self.running))
        record = self.node.containers.live[container]
        if asked and record.task:
            self.decide(Withdraw(job=record.job, task=record.task, why="test"))
        self.running.remove(container)
        self.send(e.ContainerExited(container, 0, None, 1.0, 0, 0, self.now))

    @rule(ended=st.integers(0, 4))
    def stages_end(self, ended: int) -> None:
        self.decide(TellStages(job="elsewhere-1", ended=ended))
        self.wake()

    @rule(seconds=st.integers(1, 8), of_plan=st.sampled_from([0.3, 0.97, 1.0]))
    def time_passes(self, seconds: int, of_plan: float) -> None:
        """Let each executor use a part of the kernel's limit; the alarm rings at its time."""
        for _ in range(seconds):
            until = self.now + 1.0
            while self.alarm is not None and self.alarm < until:
                self.now = max(self.now, self.alarm)
                self.wake()
                self.never_more_than_there_is()
            self.now = until
            uses = {}
            for container in self.running:
                record = self.node.containers.live[container]
                self.sampled_s[container] += 1.0
                memory_bytes = (record.limits.memory_high_bytes or 64 * MIB) * of_plan
                uses[container] = ContainerUse(
                    cpu_cores=(record.limits.cpu_cores or 0.5) * of_plan,
                    memory_bytes=int(memory_bytes),
                    memory_cache_bytes=int(memory_bytes / 2),
                    memory_unreclaimable_bytes=int(memory_bytes / 2),
                )
            self.send(e.Sampled(Snapshot(self.now, 1.0, containers=uses), self.now))

    def wake(self) -> None:
        for _ in range(100):
            if self.alarm is None or self.alarm > self.now + 1e-9:
                return
            self.alarm = None
            self.send(e.Woken(self.now))
        raise AssertionError("the alarm rings for ever")

    @rule()
    def the_link_is_lost(self) -> None:
        self.node.link_opens()
        self.told = None
        self.heard.clear()
        self.over.clear()
        self.beat()
        assert self.told is not None, "a new connection did not get the availability"

    @rule()
    def heartbeat(self) -> None:
        self.beat()

    # ------------------------------------------------------------ invariants

    @invariant()
    def never_more_than_there_is(self) -> None:
        ledger = self.node.ledger()
        assert ledger.promised_cores <= 4 + 1e-4
        assert ledger.promised_memory_bytes <= CAPACITY[3] + 1
        assert ledger.promised_network_bytes_per_s <= CAPACITY[2] + 1
        held = self.node.executors.held(self.now)
        if held is not None:
            most = held.slots(self.now, 1.0, 600)
            assert (most + np.array(ledger.promised_without_profile) <= CAPACITY * (1 + 1e-6)).all(), (
                "more is held in a slot than there is"
            )

    @invariant()
    def held_resources_are_those_of_the_plans(self) -> None:
        executors, plans = self.node.executors, self.node.elasticity.plans(self.now)
        held = executors.held(self.now)
        assert (held is None) == (not plans)
        if held is not None:
            anew = total(
                [steps(plans[name], one.unprofiled, self.now) for name, one in executors.planned.items()], self.now
            )
            times = np.array([self.now + 0.7 * number for number in range(60)])
            assert np.allclose(held.values(times), anew.values(times))

    @invariant()
    def no_report_exceeds_the_free_resources(self) -> None:
        """The last heartbeat, advanced by the time since, is right where nothing has changed."""
        self.beat()
        assert self.told is not None
        said, at = self.told
        ledger, held = self.node.ledger(), self.node.executors.held(self.now)
        for number, slot in enumerate(said.slots):
            begin = max(self.now, at + number * said.slot_s)
            end = at + (number + 1) * said.slot_s if number + 1 < len(said.slots) else math.inf
            if end <= self.now:
                continue
            taken = np.array(ledger.promised_without_profile)
            if held is not None:
                inside = held.times[(held.times > begin) & (held.times < min(end, 1e12) - 1e-3)]
                taken = taken + held.values(np.concatenate([[begin], inside])).max(axis=0)
            assert (np.array(slot) * UNITS <= np.maximum(CAPACITY - taken, 0) * (1 + 1e-6) + 1e-3).all()

    @invariant()
    def the_report_is_the_recording(self) -> None:
        for container, seconds in self.sampled_s.items():
            record = self.node.containers.live.get(container)
            if record is not None and record.executor is not None:
                assert self.heard.get(record.task, 0) in (int(seconds // 3.0), int(seconds // 3.0 + 1e-9))

    def teardown(self) -> None:
        for container in [*self.starting]:
            self.send(e.ContainerNotStarted(container, "too late"))
        for container in [*self.running]:
            self.send(e.ContainerExited(container, 0, None, 1.0, 0, 0, self.now))
        ledger = self.node.ledger()
        assert (ledger.promised_cores, ledger.promised_memory_bytes, ledger.promised_without_profile) == (
            0.0,
            0,
            (0.0, 0.0, 0.0, 0.0),
        )
        assert not self.node.executors.planned and not self.node.held.by_key
        self.beat()
        assert self.told is not None
        assert self.told[0].slots == [self.told[0].capacity]
        assert not self.node.executors.surrogate.owes


ExecutorsMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
TestExecutors = ExecutorsMachine.TestCase
