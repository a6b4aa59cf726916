"""Limits never kill (Elasecutor §III): random profiles and random real use by executors on random hosts.

The kernel is a model: at ``memory.high`` it holds back growth and reclaims page cache, never pinned memory, and no
process gets more than the host has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.plans import ahead
from agent.core.profile_follower import HYSTERESIS, LEAST, least_of
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Capacity, ContainerSpec, Executor, KindAmounts, Profile, Sizing, TaskRequest
from penstock.model.resource_vector import RESOURCES
from penstock.wire.master_api import Assign, TellStages

MIB = 1 << 20
FREE_FOR_NOTHING = 1e-6


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    slots = draw(st.integers(1, 6))
    cores = st.floats(0.1, 3.0).map(lambda value: round(value, 2))
    size = st.integers(1, 1500).map(lambda value: value * MIB)
    rate = st.integers(1, 60).map(lambda value: value * MIB)

    def series(one: st.SearchStrategy) -> tuple:  # type: ignore[type-arg]
        return tuple(draw(st.lists(one, min_size=slots, max_size=slots))) if draw(st.booleans()) else ()

    ends = draw(st.sets(st.integers(1, slots), max_size=3))
    memory = tuple(draw(st.lists(size, min_size=slots, max_size=slots)))
    return Profile(
        slot_s=draw(st.sampled_from([1.0, 3.0])),
        cpu_cores=series(cores),
        memory_bytes=memory,
        disk_bytes_per_s=series(rate),
        network_bytes_per_s=series(rate),
        stages=tuple(sorted(ends)),
    )


@dataclass
class Process:
    """The real use: ``pinned`` and ``cache`` bytes; the demand comes from the test."""

    confinement: object = None
    high_bytes: float = math.inf
    cores: float = math.inf
    pinned: int = 0
    cache: int = 0


@dataclass
class World:
    node: Node
    now: float = 50.0
    wake: float = math.inf
    decisions: int = 0
    live: dict[str, Process] = field(default_factory=dict)
    seen_pinned: dict[str, int] = field(default_factory=dict)  # by the last sample

    def send(self, event: e.Event) -> None:
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Wake(at):
                    self.wake = at
                case i.StartContainer(container):
                    self.live[container] = Process()
                case i.Confine(container, told) if container in self.live:
                    self.confined(container, told)

    def confined(self, container: str, told: object) -> None:
        capacity, high = self.node.settings.capacity, told.memory_high_bytes  # type: ignore[attr-defined]
        cores, one = told.cpu_cores, self.live[container]  # type: ignore[attr-defined]
        assert told.memory_max_bytes is None  # type: ignore[attr-defined]
        if high is not None:
            assert high >= self.seen_pinned.get(container, 0), "less than the part that cannot be reclaimed"
            assert 0 < high <= capacity.memory_bytes
        if cores is not None:
            assert LEAST[0] <= cores <= capacity.cores
        least, most = least_of(self.node.settings), self.node.settings.amounts
        rates = {1: (told.disk_read_bytes_per_s, told.disk_write_bytes_per_s), 2: (told.network_egress_bytes_per_s,)}  # type: ignore[attr-defined]
        for index, each in [(index, each) for index, several in rates.items() for each in several if each is not None]:
            assert int(least[index]) <= each <= (most[index] or math.inf), RESOURCES[index]
        one.high_bytes = math.inf if high is None else high
        one.cores = math.inf if cores is None else cores

    def decide(self, decision: Assign | TellStages) -> None:
        self.decisions += 1
        self.send(e.Decided(self.decisions, [decision], 0.0))

    def start(self, number: int, profile: Profile, sizing: Sizing) -> None:
        request = TaskRequest(
            task=f"t{number}", usage=KindAmounts(), command=ContainerSpec(argv=("x",), memory_bytes=0),
            executor=Executor(application="a", sizing=sizing),
        )  # fmt: skip
        before = set(self.live)
        self.decide(
            Assign(job=f"j{number}", stage="s", user="u", origin="o", priority=0.0, request=request, profile=profile)
        )
        for container in set(self.live) - before:
            self.send(e.ContainerStarted(container, 1, {}, self.now))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.wake <= until:
            self.now, self.wake = max(self.now, self.wake), math.inf
            self.send(e.Woken(self.now))
            self.check()
        self.now = until

    def use(self, wants: list[tuple[int, int, float]]) -> None:
        """Let each process use its demand within its limits and the host's capacity; then take a sample."""
        seen: dict[str, ContainerUse] = {}
        capacity = self.node.settings.capacity
        for (container, one), (pinned_mib, cache_mib, cores) in zip(self.live.items(), wants, strict=False):
            others = sum(each.pinned for each in self.live.values()) - one.pinned
            most = min(max(one.high_bytes, one.pinned), capacity.memory_bytes - others)
            wanted = pinned_mib * MIB
            one.pinned = int(min(wanted, most))
            one.cache = int(max(0, min(cache_mib * MIB, most - one.pinned)))
            seen[container] = ContainerUse(
                cpu_cores=min(cores, one.cores),
                memory_bytes=one.pinned + one.cache,
                memory_cache_bytes=one.cache,
                memory_unreclaimable_bytes=one.pinned,
                memory_stalled=0.5 if wanted > most else 0.0,
            )
        self.seen_pinned = {container: one.pinned for container, one in self.live.items() if container in seen}
        self.send(e.Sampled(Snapshot(at=self.now, interval_s=1.0, containers=seen), self.now))
        self.check()

    def check(self) -> None:
        """Check that no more is promised than there is, now and at any later time, and that nothing is lent without
        need.
        """
        elasticity, known = self.node.elasticity, self.node.settings
        capacity = [amount or math.inf for amount in known.amounts]
        plans = elasticity.plans(self.now)
        times = {0.0} | {step_s + 1e-5 for plan in plans.values() for step_s in plan.steps_s() if step_s > 0}
        for after_s in times:
            for index, name in enumerate(RESOURCES):
                promised = sum(plan.advanced(after_s).amounts[0][index] for plan in plans.values())
                assert promised <= capacity[index] * (1 + FREE_FOR_NOTHING), f"{name} {after_s} s from now"
        observed = elasticity._observation
        for container, plan in plans.items():
            if observed is not None and observed.container == container:
                continue
            record = self.node.containers.live[container]
            assert record.profile is not None and record.course is not None
            one = elasticity._following[container]
            wanted = ahead(record.profile, record.course, one.made_at - one.started).advanced(self.now - one.made_at)
            for has, wants in zip(plan.amounts, wanted.amounts, strict=True):
                assert all(a <= b * (1 + FREE_FOR_NOTHING) for a, b in zip(has, wants, strict=True)), (
                    "it was not returned"
                )
        levels = [one.high_bytes for one in self.live.values()]
        if levels and max(levels) < math.inf:
            pinned = sum(self.seen_pinned.values())
            assert sum(levels) * (1 - HYSTERESIS) <= max(known.capacity.memory_bytes, pinned) + len(levels)


wants = st.tuples(st.integers(0, 2000), st.integers(0, 1500), st.floats(0.0, 6.0))
ticks = st.tuples(
    st.lists(wants, min_size=4, max_size=4),
    # containers whose stages end, and how many stages have ended
    st.one_of(st.none(), st.tuples(st.integers(0, 3), st.integers(1, 3))),
    st.sampled_from([None, None, None, 0, 1, 2, 3]),  # the container that ends
)


@settings(max_examples=30)
@given(
    cores=st.sampled_from([2.0, 4.0]),
    memory_mib=st.integers(500, 4000),
    disk_mib=st.sampled_from([0, 20, 100]),
    link_mib=st.sampled_from([0, 10, 100]),
    sizing=st.sampled_from(Sizing),
    asked=st.lists(st.tuples(profiles(), st.integers(0, 5)), min_size=1, max_size=4),
    course=st.lists(ticks, min_size=8, max_size=25),
)
def test_limits_never_kill(
    cores: float,
    memory_mib: int,
    disk_mib: int,
    link_mib: int,
    sizing: Sizing,
    asked: list,
    course: list,  # type: ignore[type-arg]
) -> None:
    capacity = Capacity(cores=cores, memory_bytes=memory_mib * MIB)
    known = NodeSettings(
        node="n", instance="x", capacity=capacity, has_master=True,
        disk_bytes_per_s=disk_mib * MIB, link_bytes_per_s=link_mib * MIB,
    )  # fmt: skip
    world = World(Node(known))
    for number, (uses, stage, ends) in enumerate(course):
        for which, (profile, begins) in enumerate(asked):
            if begins == number:
                world.start(which, profile, sizing)
        if stage is not None:
            world.decide(TellStages(job=f"j{stage[0]}", ended=stage[1]))
        if ends is not None and ends < len(world.live) and number % 5 == 4:
            container = list(world.live)[ends]
            del world.live[container]
            world.seen_pinned.pop(container, None)
            world.send(e.ContainerExited(container, 0, None, 0.0, 0, 0, world.now))
        world.advance(1.0)
        world.use(uses)
