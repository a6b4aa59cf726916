"""A node that holds executors, the reports to its master, and the agent that comes after a restart."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from agent.core.snapshot import ContainerUse
from penstock.model import Executor, KindAmounts, Profile
from penstock.wire.master_api import Availability, Heartbeat
from tests.fakes.node_bed import GIB, MIB, NodeBed

JOB = "other-1"


class Bed(NodeBed):
    """A node of four cores and 4 GiB with a master; its slots last 3 s."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.now = 100.0
        self.open(operator=True)

    def assign(
        self, task: str, profile: Profile | None, *, executor: bool = True, opportunistic: bool = False, **promise: Any
    ) -> list[str]:
        spec: dict[str, Any] = {"cpu_cores": 1.0, "memory_bytes": GIB, **promise}
        return self.command(
            task, spec=spec, usage=KindAmounts(cpu=1e9), memory_bytes=spec["memory_bytes"], profile=profile,
            executor=Executor(application="sort", run="monday") if executor else None, opportunistic=opportunistic,
        )  # fmt: skip

    def started(self, *tasks: str) -> None:
        for task in tasks:
            self.begin(self.container(task))

    def sample(self, seconds: int = 1, cores: float = 1.0, **more: Any) -> None:
        for _ in range(seconds):
            self.now += 1.0
            use = ContainerUse(cpu_cores=cores, **{"memory_bytes": 100 * MIB, **more})
            self.sampled(dict.fromkeys(self.node.containers.live, use))

    def beat(self) -> Heartbeat:
        heartbeat = self.node.heartbeat(self.now)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(heartbeat), type=Heartbeat) == heartbeat
        return heartbeat

    def availability(self) -> Availability:
        told = self.beat().load.availability
        assert told is not None
        return told


def cores(*values: float, memory_bytes: int = 100 * MIB, **more: Any) -> Profile:
    return Profile(cpu_cores=values, memory_bytes=(memory_bytes,), **more)


def restarted(bed: Bed, *running: str, after_s: float = 2.0) -> Bed:
    """Return another agent on another clock, with the journal's records."""
    fresh = copy.copy(bed)
    fresh.journal = dict(bed.journal)
    fresh.restart(*running, after_s=after_s, now=50.0)
    fresh.open(operator=True)
    return fresh
