"""A node that ranks its jobs, and what its kernel was told of their containers."""

from __future__ import annotations

from typing import Any

from agent.core import events as e
from agent.core.instructions import AdoptProcess, Confine, Instruction, Renice, StartContainer
from agent.core.rank_order import ContainerRank
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import EndJob
from penstock.wire.master_api import Decided, SetPriority
from tests.fakes.node_bed import NodeBed

EVE = 1


class Bed(NodeBed):
    """A node of two cores; ``weights`` and ``nice`` are what the kernel was told of each container."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(memory_bytes=10**9, **{"cores": 2, "has_master": False, **settings})
        self.now = 100.0
        self.used_s: dict[str, float] = {}
        self.weights: dict[str, int] = {}
        self.nice: dict[str, int] = {}
        self.pids = iter(range(1000, 2000))
        self.sessions = iter(range(EVE, 1000))
        self.eve = self.connect()

    def hear(self, one: Instruction) -> None:
        match one:
            case StartContainer(container=container, rank_weight=weight):
                self.weights[container] = weight
            case AdoptProcess(container=container, rank_weight=weight):
                self.weights[container] = weight
            case Confine(container=container, confinement=confinement):
                self.weights[container] = confinement.cpu_weight
            case Renice(container=container, nice=nice):
                self.nice[container] = nice

    def connect(self, container: str = "") -> int:
        session = next(self.sessions)
        self.open(session, container=container)
        return session

    def launch(self, **spec: Any) -> str:
        container = super().launch(self.eve, **spec)
        self.now += 0.01
        self.begin(container, next(self.pids))
        self.used_s[container] = 0.0
        return container

    def sample(self, seconds: float = 1.0, **used_s: float) -> None:
        for container, each in used_s.items():
            self.used_s[container.replace("_", "-")] += each
        self.now += seconds
        uses = {container: ContainerUse(cpu_seconds=each) for container, each in self.used_s.items()}
        self.send(e.Sampled(Snapshot(self.now, seconds, containers=uses), self.now))

    def end(self, container: str) -> None:
        self.exit(container, cpu_s=self.used_s.pop(container))

    def order(self) -> list[str]:
        """The containers from the first to the last."""
        live = self.node.containers.live
        return sorted(live, key=lambda each: -self.weights[each])

    def said(self, container: str) -> ContainerRank:
        said = self.node.ranks.described(self.node.containers.live[container])
        assert said is not None
        return said


class TenantsBed(Bed):
    """A node whose jobs belong to users; ``job_of`` is by container."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(has_master=True, **settings)
        self.job_of: dict[str, str] = {}

    def session_of(self, user: str, container: str = "") -> int:
        session = next(self.sessions)
        self.send(e.SessionOpened(session, user, "c", container=container))
        return session

    def run(self, user: str, **spec: Any) -> str:
        """A container of a user's job."""
        container = self.alone(user, **spec)
        self.job_of[container] = self.register(self.session_of(user, container))
        return container

    def alone(self, user: str, **spec: Any) -> str:
        """A container of no job."""
        eve, self.eve = self.eve, self.session_of(user)
        container = self.launch(**spec)
        self.eve = eve
        return container

    def told(self, *containers: str, tenant: str, weight: float = 1.0, **more: float) -> None:
        """The master's order of the jobs of a tenant."""
        decisions = [
            SetPriority(job=self.job_of[each], priority=-float(place), tenant=tenant, tenant_weight=weight, **more)
            for place, each in enumerate(containers)
        ]
        assert self.send(e.Decided(1, [*decisions], 0.0)) == Decided(refused=[])

    def weight(self, container: str) -> int:
        return self.node.containers.live[container].confine().confinement.cpu_weight


def told_order(bed: Bed, jobs: list[str], *, highest: float = 0.0) -> None:
    """The master's order; its numbers say nothing but that."""
    decisions = [SetPriority(job=job, priority=highest - place) for place, job in enumerate(jobs)]
    assert bed.send(e.Decided(1, decisions, 0.0)) == Decided(refused=[])


def end_job(bed: Bed, session: int, job: str) -> None:
    bed.send(e.Requested(m.END_JOB, session, EndJob(job=job)))
