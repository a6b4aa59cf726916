"""The gain by reprovisioning for an executor with twice the predicted input, on a model of a host.

python -m bench.reprovisioning

The agent's own decisions (agent.core) with a clock, a monitor and a kernel that are made up: a stage is so many
core-seconds of work on so many threads, and its speed is the least of the CPU limit and the threads. Threads that have
used up a quota wait for the rest of its period, which the kernel reports (PSI); where it does not, only the paper's
rule applies.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, field, replace

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Capacity, ContainerSpec, Executor, KindAmounts, Profile, TaskRequest
from penstock.wire.master_api import Assign, TellStages

SLOT_S = 3.0
_GIB = 1 << 30
_NEVER = 1e9  # ρ: no executor is ever late
_APPLICATIONS = 20


@dataclass(frozen=True, slots=True)
class Stage:
    """``work`` in core-seconds, done by at most ``threads`` cores."""

    work: float
    threads: float


def profile_of(stages: list[Stage]) -> Profile:
    """Return the use of a run with enough of everything: in whole slots, and the last slot of a stage is its tail."""
    cores: list[float] = []
    ends: list[int] = []
    for stage in stages:
        slots = max(1, math.ceil(stage.work / stage.threads / SLOT_S - 1e-9))
        cores += [stage.threads] * slots
        ends.append(len(cores))
    return Profile(slot_s=SLOT_S, cpu_cores=tuple(cores), stages=tuple(ends))


@dataclass(slots=True)
class Running:
    """An executor as it really is."""

    job: str
    stages: list[Stage]
    container: str = ""
    limit: float = math.inf
    stage: int = 0
    done: float = 0.0  # core-seconds of the stage
    ended_at: float = math.inf

    def speed(self) -> float:
        """Cores in use."""
        return min(self.limit, self.stages[self.stage].threads) if self.stage < len(self.stages) else 0.0

    def waits(self) -> float:
        """The part of each period of ``cpu.max`` in which its threads have used up their quota, which PSI sees."""
        return 1 - self.speed() / self.stages[self.stage].threads if self.stage < len(self.stages) else 0.0

    def left_s(self) -> float:
        """Until its stage ends at this speed."""
        return (self.stages[self.stage].work - self.done) / self.speed() if self.stage < len(self.stages) else math.inf


@dataclass(slots=True)
class Host:
    """A host whose time passes from one event to the next. News of a stage's end takes ``news_s``."""

    cores: float = 8.0
    rho: float = 1.1
    sample_s: float = 1.0
    pressure: bool = True  # whether the kernel reports waiting for a processor (PSI)
    news_s: float = 1.0
    now: float = 0.0
    node: Node = field(init=False)
    running: list[Running] = field(default_factory=list)
    explained: list[i.Explain] = field(default_factory=list)
    writes: int = 0
    _wake: float = math.inf
    _sample: float = 0.0
    _news: list[tuple[float, TellStages]] = field(default_factory=list)
    _used: dict[str, float] = field(default_factory=dict)
    _waited_s: dict[str, float] = field(default_factory=dict)
    _decisions: int = 0

    def __post_init__(self) -> None:
        capacity = Capacity(cores=self.cores, memory_bytes=64 * _GIB)
        self.node = Node(
            NodeSettings(node="host", instance="x", capacity=capacity, has_master=True, reprovision_rho=self.rho)
        )
        self._sample = self.now + self.sample_s

    def start(self, stages: list[Stage], predicted: Profile, asked_cores: float = 0.0) -> Running:
        """Start an executor whose run is ``stages``, with limits by ``predicted``.

        ``asked_cores`` 0: it requested none.
        """
        running = Running(f"job-{len(self.running)}", stages)
        self.running.append(running)
        request = TaskRequest(
            task="executor",
            usage=KindAmounts(),
            command=ContainerSpec(argv=("executor",), cpu_cores=asked_cores),
            executor=Executor(application="model", run=running.job),
        )
        decision = Assign(
            job=running.job, stage="s", user="u", origin="o", priority=0.0, request=request, profile=predicted
        )
        self._decide(decision)
        self._send(e.ContainerStarted(running.container, 1, {}, self.now))
        return running

    def until_ended(self) -> None:
        """Until every executor has done its work."""
        while any(one.ended_at == math.inf for one in self.running):
            self.step()

    def _decide(self, decision: Assign | TellStages) -> None:
        self._decisions += 1
        self._send(e.Decided(self._decisions, [decision], 0.0))

    def _send(self, event: e.Event) -> None:
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Wake(at):
                    self._wake = at
                case i.StartContainer(container):
                    self.running[-1].container = container
                case i.Confine(container, confinement):
                    self.writes += 1
                    one = next(one for one in self.running if one.container == container)
                    one.limit = math.inf if confinement.cpu_cores is None else confinement.cpu_cores
                case i.Explain():
                    self.explained.append(instruction)

    def step(self) -> None:
        """To the next thing that happens."""
        ends = [self.now + one.left_s() for one in self.running]
        until = max(self.now, min([self._wake, self._sample, *(at for at, _ in self._news), *ends]))
        for one in self.running:
            worked = one.speed() * (until - self.now)
            one.done += worked
            self._used[one.container] = self._used.get(one.container, 0.0) + worked
            waited_s = one.waits() * (until - self.now)
            self._waited_s[one.container] = self._waited_s.get(one.container, 0.0) + waited_s
        self.now = until
        for one, end in zip(self.running, ends, strict=True):
            if end <= until + 1e-9 and one.ended_at == math.inf:
                self._stage_ended(one)
        while self._news and self._news[0][0] <= self.now + 1e-9:
            self._decide(self._news.pop(0)[1])
        if self._sample <= self.now + 1e-9:
            self._look()
        if self._wake <= self.now + 1e-9:
            self._wake = math.inf
            self._send(e.Woken(self.now))

    def _stage_ended(self, one: Running) -> None:
        one.stage, one.done = one.stage + 1, 0.0
        if one.stage == len(one.stages):
            one.ended_at = self.now
            self._send(e.ContainerExited(one.container, 0, None, 0.0, 0, 0, self.now))
        else:
            self._news.append((self.now + self.news_s, TellStages(job=one.job, ended=one.stage)))

    def _look(self) -> None:
        """Take a sample: a mean over the time since the last one, and memory that is never short."""
        seen = {
            one.container: ContainerUse(
                cpu_cores=self._used.get(one.container, 0.0) / self.sample_s,
                cpu_stalled=self._waited_s.get(one.container, 0.0) / self.sample_s if self.pressure else 0.0,
            )
            for one in self.running
            if one.ended_at == math.inf
        }
        self._used.clear()
        self._waited_s.clear()
        self._sample = self.now + self.sample_s
        self._send(e.Sampled(Snapshot(at=self.now, interval_s=self.sample_s, containers=seen), self.now))


def takes_s(stages: list[Stage], predicted: Profile, rho: float = 1.1, *, pressure: bool = True) -> float:
    """How long a run takes alone on a host of 8 cores, with limits by a prediction."""
    host = Host(rho=rho, pressure=pressure)
    one = host.start(stages, predicted)
    host.until_ended()
    return one.ended_at


def wider(stages: list[Stage]) -> list[Stage]:
    """Twice the input, and twice as many tasks that run at the same time."""
    return [replace(stage, work=2 * stage.work, threads=2 * stage.threads) for stage in stages]


def longer(stages: list[Stage]) -> list[Stage]:
    """Twice the input, one after the other."""
    return [replace(stage, work=2 * stage.work) for stage in stages]


def application(rng: random.Random, count: int) -> list[Stage]:
    """Stages of 9 to 60 s on half a core to three."""
    stages = []
    for _ in range(count):
        threads = rng.choice([0.5, 1.0, 1.5, 2.0, 3.0])
        stages.append(Stage(threads * rng.uniform(9.0, 60.0), threads))
    return stages


def main() -> None:
    """Applications of each number of stages, as a ratio to the time with exact limits."""
    print(f"time ÷ time with exact limits: median, 90th percentile, worst of {_APPLICATIONS}; host of 8 cores, alone")
    for name, grown in (("twice the threads", wider), ("twice the time", longer)):
        for count in (1, 2, 3, 5, 10):
            rng = random.Random(count)
            without: list[float] = []
            late: list[float] = []
            corrected: list[float] = []
            for _ in range(_APPLICATIONS):
                stages = application(rng, count)
                truth, predicted = grown(stages), profile_of(stages)
                exact_s = takes_s(truth, profile_of(truth), _NEVER)
                without.append(takes_s(truth, predicted, _NEVER) / exact_s)
                late.append(takes_s(truth, predicted, pressure=False) / exact_s)
                corrected.append(takes_s(truth, predicted) / exact_s)
            said = (
                f"without {_three(without)}; by the paper's rule {_three(late)}; before it is late {_three(corrected)}"
            )
            print(f"{name}, {count:2} stages: {said}")


def _three(ratios: list[float]) -> str:
    tenths = statistics.quantiles(ratios, n=10)
    return f"{statistics.median(ratios):.3f}, {tenths[8]:.3f}, {max(ratios):.3f}"


if __name__ == "__main__":
    main()
