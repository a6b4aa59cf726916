"""The account of a node's cores under random events: promised cores and CPU slots fit its capacity and its loans."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.core import Node, cores
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import (
    LEAST_PART_CORES,
    Capacity,
    ContainerSpec,
    KindAmounts,
    MonotaskSpec,
    ResourceKind,
    TaskRequest,
)
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Complete, Completion, JobRegistered, Launch, RegisterJob, Submit
from penstock.wire.errors import RpcError
from penstock.wire.master_api import Assign

CORES = 4
CPU = ResourceKind.CPU
FRAMEWORK, LAUNCHING = 1, 2  # sessions
_TINY = 1e-6


class CoreAccount(RuleBasedStateMachine):
    """Plays a framework, a user who launches commands, the master and the monitor; keeps an account of its own."""

    def __init__(self) -> None:
        super().__init__()
        settings = NodeSettings(
            node="n", instance="x", capacity=Capacity(cores=CORES, memory_bytes=1 << 40), has_master=True, ranked=True,
            job_wait_max_s=1e9,
        )  # fmt: skip
        self.node = Node(settings)
        self.now = 0.0
        self.number = 0
        self.promised: dict[str, float] = {}  # by live container
        self.seen: set[str] = set()  # by the last sample
        self.idle: dict[str, float] = {}  # by the last sample, of containers that the one before it has seen, too
        self.held: list[int] = []  # monotasks
        self.in_slots: set[str] = set()  # containers of commands without a promise
        self.send(e.SessionOpened(FRAMEWORK, "user", "framework"))
        self.send(e.SessionOpened(LAUNCHING, "user", "run"))
        registered = self.send(e.JobRegistered(FRAMEWORK, RegisterJob(name="j"), 0.0))
        assert isinstance(registered, JobRegistered)
        self.job = registered.job

    def send(self, event: e.Event) -> object:
        """Have the node decide; the account allows each grant that comes of it."""
        reply: object = None
        started: list[str] = []
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Reply(result):
                    reply = result
                case i.Grant(_, grants):
                    self.held += [number for number in grants.ids if isinstance(number, int)]
                    self.check_room()
                case i.StartContainer(container, _, spec):
                    started.append(container)
                    if spec.cpu_cores:
                        self.promised[container] = spec.cpu_cores
                    else:  # it may start beyond the slots, as the kernel orders those that share them
                        self.in_slots.add(container)
                case _:
                    pass
        for container in started:
            self.send(e.ContainerStarted(container, 1, {}, self.now))
        return reply

    def lent_cores(self) -> float:
        return sum(idle for container, idle in self.idle.items() if container in self.promised)

    def check_room(self) -> None:
        """A slot may share its core with a promise that leaves a part of it; no two monotasks do."""
        slots = len(self.held)
        room = CORES + self.lent_cores() - sum(self.promised.values())
        assert slots <= room + 1.0 - LEAST_PART_CORES + _TINY

    # ------------------------------------------------------------ events

    @rule(count=st.integers(1, 6))
    def submit(self, count: int) -> None:
        first = self.number + 1
        self.number += count
        specs = [MonotaskSpec(id=first + n, kind=CPU, input_bytes=100, stage="s") for n in range(count)]
        self.send(e.Requested(m.SUBMIT, FRAMEWORK, Submit(job=self.job, monotasks=specs)))

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 63))
    def complete(self, at: int) -> None:
        number = self.held.pop(at % len(self.held))
        self.send(e.Requested(m.COMPLETE, FRAMEWORK, Complete(job=self.job, monotasks=[Completion(id=number)])))

    @rule(cpu_cores=st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.5, 4.0)))
    def launch(self, cpu_cores: float) -> None:
        spec = ContainerSpec(argv=("x",), cpu_cores=cpu_cores)
        if sum(self.promised.values()) + cpu_cores <= CORES:
            self.send(e.Requested(m.LAUNCH, LAUNCHING, Launch(container=spec)))
            return
        try:
            self.send(e.Requested(m.LAUNCH, LAUNCHING, Launch(container=spec)))
        except RpcError:
            return
        raise AssertionError("more cores are promised than there are")

    @rule(wanted=st.lists(st.sampled_from((0.0, 0.0, 0.5, 1.0, 4.0)), min_size=1, max_size=4))
    def place(self, wanted: list[float]) -> None:
        """Commands of the master, with and without a promise, in one request."""
        decisions = []
        for cpu_cores in wanted:
            self.number += 1
            request = TaskRequest(
                task=f"t{self.number}", usage=KindAmounts(), command=ContainerSpec(argv=("x",), cpu_cores=cpu_cores)
            )
            decisions.append(Assign(job="placed", stage="s", user="user", origin="o", priority=0.0, request=request))
        self.send(e.Decided(self.number, decisions, 0.0))

    @precondition(lambda self: self.promised or self.in_slots)
    @rule(at=st.integers(0, 63))
    def end(self, at: int) -> None:
        live = sorted(self.promised) + sorted(self.in_slots)
        container = live[at % len(live)]
        self.promised.pop(container, None)
        self.in_slots.discard(container)
        self.send(e.ContainerExited(container, 0, None, 1.0, 0, 0, self.now))

    @rule(
        parts=st.lists(st.floats(0, 1.2), min_size=8, max_size=8),
        waits=st.lists(st.sampled_from((0.0, 0.0, 0.1, 0.5, 1.0)), min_size=8, max_size=8),
    )
    def sample(self, parts: list[float], waits: list[float]) -> None:
        """Each container uses a part of its promise; some of them wait for processors meanwhile."""
        self.now += 1.0
        uses: dict[str, ContainerUse] = {}
        self.idle = {}
        for number, (container, cpu_cores) in enumerate(sorted(self.promised.items())):
            part, stalled = parts[number % len(parts)], waits[number % len(waits)]
            uses[container] = ContainerUse(cpu_cores=part * cpu_cores, cpu_stalled=stalled)
            if container in self.seen:
                self.idle[container] = max(0.0, (1.0 - stalled) * cpu_cores - part * cpu_cores)
        self.seen = set(uses)
        self.send(e.Sampled(Snapshot(self.now, 1.0, containers=uses), self.now))

    # ------------------------------------------------------------ invariants

    @invariant()
    def no_more_is_lent_than_was_measured_idle(self) -> None:
        node = self.node
        account = cores.account(
            node.containers.live, node.sessions.values(), node.queues, node.slot_grants.uses.by_container
        )
        assert abs(account.promised_cores - sum(self.promised.values())) < _TINY
        assert account.lent_cores <= self.lent_cores() + _TINY

    @invariant()
    def no_slot_is_idle_while_a_monotask_waits_and_the_account_has_a_core(self) -> None:
        counts = self.node.queues.counts(CPU, self.now)
        kept_cores = sum(self.promised.values()) - self.lent_cores()
        if counts.queued and counts.running < CORES:
            assert CORES - kept_cores - counts.running < 1.0 - _TINY


CoreAccount.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestCoreAccount = CoreAccount.TestCase
