"""Executors among other work, over connections that delay, break and reorder: a node's work fits into its capacity at
every moment, no executor runs twice, none is lost, and a run is kept once and whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Predict, StoreRun
from master.ordering import NAMES
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, Profile, TaskRequest
from penstock.model.executor import Executor
from penstock.wire import master_api as api
from tests.property.scheduling_agents import EXIT, MIB, NODES, TIMEOUT_S, Agent, Wanted
from tests.property.scheduling_master import pick
from tests.property.test_scheduling_cluster import World

Key = tuple[str, str]
#: Everything happens at multiples of it.
TICK_S = 0.05
SLOT_S = 1.0
PROFILES = {
    "rises": ((1.0, 50), (3.0, 300)),
    "falls": ((3.0, 300), (1.0, 50), (1.0, 50)),
    "waves": ((1.0, 10), (2.0, 100), (1.0, 10), (2.0, 100)),
    "bounds": ((2.0, 200),),
    "huge": ((9.0, 9000), (1.0, 10)),
}

#: No less than the largest node has.
EXECUTOR_LIMITS: tuple[dict[str, float], ...] = (
    {},
    {"user_max_cores": 4.0},
    {"user_max_cores": 6.0, "user_max_memory_bytes": 1024 * MIB},
)


def profile_of(application: str) -> Profile:
    slots = PROFILES[application.partition("/")[2]]
    return Profile(
        slot_s=SLOT_S,
        cpu_cores=tuple(cores for cores, _ in slots),
        memory_bytes=tuple(memory * MIB for _, memory in slots),
    )


@dataclass
class Recorded:
    """An agent's recording of an executor: slot n used n thousandths of a core."""

    began: float
    whole: bool = True
    told: int = 0
    ended_at: float | None = None

    def part(self, key: Key, now: float) -> api.ExecutorUse | None:
        slots = int(((self.ended_at if self.ended_at is not None else now) - self.began) / SLOT_S + 1e-6)
        first = self.told if self.whole else max(1, slots)
        new = [(slot, 0, 0, 1) for slot in range(self.told, slots)] if self.whole else []
        self.told = slots
        if not new and self.ended_at is None:
            return None
        return api.ExecutorUse(
            job=key[0], task=key[1], slot_s=SLOT_S, first=first, mean=new, peak=new, ended=self.ended_at is not None
        )


@dataclass
class ExecutorAgent(Agent):
    """One that holds executors by their profiles. ``skewed``: the master knows something older than it believes."""

    now: float = 0.0
    plans: dict[Key, tuple[Profile, float]] = field(default_factory=dict)
    recorded: dict[Key, Recorded] = field(default_factory=dict)
    over: list[tuple[Key, Recorded]] = field(default_factory=list)
    said_at: dict[int, float] = field(default_factory=dict)
    well: Counter[str] = field(default_factory=Counter)  # how often one ended by itself here
    skewed: bool = False

    def peaks(self) -> int:
        return sum(max(profile.memory_bytes) for profile, _ in self.plans.values())

    def others(self) -> int:
        """Return the promises to work other than executors."""
        regular = {**self.held, **self.stopping}
        plain = [held for key, held in regular.items() if key not in self.plans and not held.opportunistic]
        return self.external + sum(held.request.memory_bytes for held in plain)

    def promised(self) -> int:
        return self.others() + self.peaks()

    def used(self, at: float) -> tuple[float, int]:
        """Cores and bytes that executors are promised at a time."""
        cores, memory = 0.0, 0
        for profile, began in self.plans.values():
            slot = profile.slot(at - began)
            if slot < profile.slots or profile.slots == 1:
                demand = profile.demand(slot)
                cores, memory = cores + demand["cpu_cores"], memory + demand["memory_bytes"]
        return cores, memory

    def moments(self) -> list[float]:
        """Now, and whenever from now on the demand of an executor here changes."""
        ends = [began + slot * SLOT_S for profile, began in self.plans.values() for slot in range(profile.slots + 1)]
        return [self.now, *(at for at in ends if at > self.now + 1e-6)]

    def load(self) -> api.Load:
        slots = []
        for slot in range(8):
            begins = self.now + slot * SLOT_S
            within = [begins, *(at for at in self.moments() if begins < at < begins + SLOT_S - 1e-6)]
            cores, memory = (max(each) for each in zip(*map(self.used, within), strict=True))
            free = self.capacity.memory_bytes - self.others() - memory
            slots.append((round(1000 * max(0.0, self.capacity.cores - cores)), 0, 0, max(0, free) // MIB))
        whole = (round(1000 * self.capacity.cores), 0, 0, self.capacity.memory_bytes // MIB)
        said = msgspec.structs.replace(
            super().load(), availability=api.Availability(slot_s=SLOT_S, capacity=whole, slots=slots)
        )
        self.said_at[id(said)] = self.now
        return said

    def register(self) -> api.Register:
        said = super().register()
        placed = [
            msgspec.structs.replace(each, memory_bytes=max(self.plans[each.job, each.task][0].memory_bytes))
            if (each.job, each.task) in self.plans
            else each
            for each in said.placed
        ]
        for recorded in (*self.recorded.values(), *(each for _, each in self.over)):
            recorded.told = 0
        return msgspec.structs.replace(said, placed=placed)

    def parts(self) -> list[api.ExecutorUse]:
        """Return the new parts of the executors' recordings, ended executors first."""
        over, self.over = self.over, []
        told = [each.part(key, self.now) for key, each in [*over, *self.recorded.items()]]
        return [each for each in told if each is not None]

    def assign(self, decision: api.Assign, known_version: int, grumpy: bool) -> str:
        if decision.profile is None:
            return super().assign(decision, known_version, grumpy)
        key = (decision.job, decision.request.task)
        assert key not in self.held
        assert key not in self.stopping
        assert decision.request.executor is not None
        if grumpy:
            return "I will not"
        if decision.origin == self.name and decision.job not in self.jobs:
            return "its job has ended"
        self.plans[key] = (decision.profile, self.now)
        short = [at for at in self.moments() if self.short(at)]
        if short:
            del self.plans[key]
            assert self.skewed or known_version < self.external_version, f"{key} over-commits {self.name} at {short}"
            return "no room"
        self.held[key] = decision
        self.recorded[key] = Recorded(self.now)
        job = self.jobs.get(decision.job)
        if self.tells_places and job is not None:
            self.placed(job, decision.request.task, self.name)
        return ""

    def short(self, at: float) -> bool:
        cores, memory = self.used(at)
        return cores > self.capacity.cores + 1e-6 or memory + self.others() > self.capacity.memory_bytes

    def command_over(self, key: Key, ended: Ended) -> None:
        if self.plans.pop(key, None) is not None:
            recorded = self.recorded.pop(key)
            recorded.ended_at = self.now
            self.over.append((key, recorded))
            self.well["/".join(key)] += ended is EXIT
        super().command_over(key, ended)

    def time_passes(self, now: float) -> None:
        """Executors end when they were predicted to, or before."""
        self.now = now
        for key, (profile, began) in list(self.plans.items()):
            if profile.slots > 1 and now >= began + profile.slots * SLOT_S - 1e-6:
                self.command_over(key, EXIT if key in self.held else Ended(by=EndedBy.CANCELLED))


class ExecutorWorld(World):
    """See the module's docstring. Decisions arrive at once; reports of agents may be late."""

    agents: dict[str, ExecutorAgent]  # type: ignore[assignment]

    @initialize(
        ordering=st.sampled_from(NAMES),
        sizes=st.lists(st.integers(1, 8), min_size=3, max_size=3),
        limits=st.sampled_from(EXECUTOR_LIMITS),
    )
    def begin(self, ordering: str, sizes: list[int], limits: dict[str, Any]) -> None:
        self.settings = MasterSettings(node_timeout_s=TIMEOUT_S, ordering=ordering, executor_slot_s=SLOT_S, **limits)
        self.now = 100.0
        self.serial = 0
        self.stored: Counter[str] = Counter()
        self.asked: list[Predict] = []
        self.agents = {
            name: ExecutorAgent(name, Capacity(cores=4.0, memory_bytes=size * 128 * MIB), now=self.now)
            for name, size in zip(NODES, sizes, strict=True)
        }
        self.start_master()
        for name in NODES:
            self.link(name)
            self.submit_job(name, 0)

    def start_master(self) -> None:
        super().start_master()
        self.asked = []

    def serve(self, event: e.Event) -> None:
        super().serve(event)
        for instruction in self.said[-1]:
            match instruction:
                case Predict():
                    assert instruction not in self.asked, "asked twice"
                    self.asked.append(instruction)
                case StoreRun(_, run, slot_s, usage):
                    self.stored[run] += 1
                    ran = sum(agent.well[run] for agent in self.agents.values())
                    assert self.stored[run] <= ran, f"{run} was kept twice"  # it may run anew where its node was lost
                    assert slot_s == SLOT_S
                    assert np.allclose(usage.mean[0] * 1000, np.arange(usage.mean.shape[1]))

    def memory_free_bytes(self, node: str) -> int:
        """Executors of the same decisions may come after the tasks, and share memory over time with those before."""
        held, free_bytes = self.cluster.nodes[node].held, super().memory_free_bytes(node)
        executors = [each for each in self.decisions if isinstance(each, api.Assign) and each.request.executor]
        return free_bytes + sum(held[each.job, each.request.task].memory_bytes for each in executors)

    def check(self, node: str, decision: api.AnyDecision, admitted: set[str]) -> None:
        if not isinstance(decision, api.Assign) or decision.request.executor is None:
            super().check(node, decision, admitted)
            return
        assert decision.profile is not None
        assert decision.job in admitted
        self.within_limits(node, decision)
        assert not decision.request.nodes or node in decision.request.nodes

    @rule()
    def foretell(self) -> None:
        asked, self.asked = self.asked, []
        for each in asked:
            profile = profile_of(each.application)
            self.serve(e.Forecasted(each.application, each.settings, profile, "a test", 0.1, each.sizing))

    @rule(application=st.sampled_from(list(PROFILES)))
    def learn(self, application: str) -> None:
        self.serve(e.ForecastsOutdated(f"u/{application}"))

    @rule(node=st.sampled_from(NODES))
    def heartbeat(self, node: str) -> None:
        agent = self.agents[node]
        parts = agent.parts() if agent.linked else []
        agent.say(api.Heartbeat(load=agent.load(), decided=agent.decided, executors=parts))

    @rule(node=st.sampled_from(NODES), many=st.integers(1, 8))
    def to_master(self, node: str, many: int) -> None:
        agent = self.agents[node]
        for _ in range(min(many, len(agent.to_master))):
            kind, what, *_ = agent.to_master[0] if agent.to_master else ("", None)
            if isinstance(what, api.Heartbeat):
                agent.skewed = agent.said_at.pop(id(what.load)) != self.now
            super().to_master(node, 1)
            assert kind

    @rule(node=st.sampled_from(NODES))
    def link(self, node: str) -> None:
        agent = self.agents[node]
        agent.skewed &= agent.linked
        super().link(node)

    @rule(node=st.sampled_from(NODES))
    def agent_restarts(self, node: str) -> None:
        super().agent_restarts(node)
        agent = self.agents[node]
        for recorded in agent.recorded.values():
            recorded.whole = False
        agent.over.clear()

    @rule(seconds=st.sampled_from([0.0, TICK_S, 0.1, 0.1, 1.0, TIMEOUT_S + 1]))
    def round(self, seconds: float) -> None:
        if seconds:
            for name, agent in self.agents.items():
                while agent.inbox:
                    self.to_agent(name, False)
        for agent in self.agents.values():
            agent.time_passes(self.now + seconds)
        super().round(seconds)

    @precondition(lambda self: any(agent.jobs for agent in self.agents.values()))
    @rule(
        at=pick,
        application=st.sampled_from(list(PROFILES)),
        count=st.integers(1, 3),
        where=st.sampled_from([(), (), (), ("a",), ("b", "c")]),
    )
    def place_executors(self, at: int, application: str, count: int, where: tuple[str, ...]) -> None:
        agent, job = self.some_job(at)
        requests = []
        for _ in range(count):
            self.serial += 1
            task = f"e{self.serial}"
            requests.append(
                TaskRequest(
                    task=task, usage=KindAmounts(), memory_bytes=10 * MIB, nodes=where,
                    command=ContainerSpec(argv=("true",), cpu_cores=1.0),
                    executor=Executor(application=application, run=f"{job}/{task}"),
                )
            )  # fmt: skip
        for request in requests:
            agent.jobs[job].tasks[request.task] = Wanted("executors", request, False)
        agent.say(api.ReadyTasks(job=job, stage="executors", tasks=requests))

    def replay(self) -> None:
        """The same events give the same decisions."""
        again = Cluster(self.settings)
        for (event, now), said in zip(self.log, self.said, strict=True):
            assert [repr(each) for each in again.handle(event, now)] == [repr(each) for each in said]

    def finish(self) -> None:
        """Executors take their time, so that there is something to record; those without an end as well."""
        for name, agent in self.agents.items():
            while agent.inbox:
                self.to_agent(name, False)
            for key in [key for key in agent.held if key not in agent.plans]:
                if agent.held[key].request.command is not None:
                    agent.command_over(key, EXIT)
                else:
                    self.framework_done(agent, key, elsewhere=True)
            for key, (_, began) in list(agent.plans.items()):
                if key in agent.held and self.now > began + 2 * SLOT_S:
                    agent.command_over(key, EXIT)
            for key in list(agent.stopping):
                agent.kill_over(key)
            self.heartbeat(name)
            self.to_master(name, 10**6)

    def calm_down(self) -> None:
        self.foretell()
        super().calm_down()
        self.foretell()


TestExecutors = ExecutorWorld.TestCase
TestExecutors.settings = settings(
    max_examples=30, stateful_step_count=40, report_multiple_bugs=False, suppress_health_check=list(HealthCheck)
)


def test_an_agent_gets_a_round_s_tasks_before_an_executor_that_shares_memory_over_time() -> None:
    """Among examples that were found at random: t7 and e11 are placed on node a in one round, beside e8."""
    world = ExecutorWorld()
    world.begin(ordering="fifo", sizes=[3, 3, 3], limits={})
    world.place(at=0, command=True, count=4, memory=0, opportunistic=False, usage=(0, 0, 0), where=())
    world.master_restarts()
    world.place_executors(application="rises", at=0, count=3, where=())
    world.place_executors(application="rises", at=1, count=1, where=())
    world.teardown()
