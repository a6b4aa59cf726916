"""Executors for the tests of the master's core: a bed whose shell keeps the requests for forecasts."""

from __future__ import annotations

from typing import Any

from master.core import events as e
from master.core.instructions import Predict, StoreRun
from penstock.model import Capacity, ContainerSpec, KindAmounts, Profile, TaskRequest
from penstock.model.executor import Executor
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import Bed

MIB = 2**20
CAPACITY = (4000, 0, 0, 1000)  # as on the wire: 4 cores, nothing known of disk and network, 1000 MiB


class ExecutorBed(Bed):
    """Nodes ``a``, ``b``, …, a job ``j`` at the first. ``forecasts`` answer at once; without one there is no answer."""

    def __init__(self, *names: str, forecasts: dict[str, Profile] | None = None, **settings: Any) -> None:
        super().__init__(executor_slot_s=1.0, **settings)
        self.forecasts = forecasts or {}
        self.predicted: list[Predict] = []
        self.stored: list[StoreRun] = []
        for name in names:
            self.node(name, capacity=Capacity(cores=4, memory_bytes=1000 * MIB))
        self.job(names[0])

    def serve(self, event: e.Event) -> list[tuple[str, api.AnyDecision]]:
        decided = super().serve(event)
        fresh, self.other = self.other, []
        for instruction in fresh:
            match instruction:
                case Predict(application, settings, sizing):
                    self.predicted.append(instruction)
                    profile = self.forecasts.get(application)
                    if profile is not None:
                        decided += self.serve(e.Forecasted(application, settings, profile, "a test", 0.1, sizing))
                case StoreRun():
                    self.stored.append(instruction)
                case _:
                    self.other.append(instruction)
        return decided

    def executors(self, *requests: TaskRequest, job: str = "j", origin: str = "a", **more: Any) -> None:
        self.ready(origin, *requests, job=job, **more)

    def beats(self, name: str, slots: list[tuple[float, int]] | None = None, **more: Any) -> None:
        """A heartbeat; ``slots`` of a second are available, as (cores, MiB)."""
        if slots is not None:
            wire = [(round(cores * 1000), 0, 0, memory) for cores, memory in slots]
            more["availability"] = api.Availability(slot_s=1.0, capacity=CAPACITY, slots=wire)
        self.heartbeat(name, **more)

    def uses(self, name: str, *uses: api.ExecutorUse) -> None:
        from tests.unit.master.cluster_bed import load

        known = self.numbers.get(name, 0)
        self.serve(e.Received(name, api.Heartbeat(load=load(), decided=known, executors=list(uses))))

    def waits(self, job: str = "j") -> str:
        return self.cluster.jobs[job].waits


def executor(name: str, application: str = "app", *, cores: float = 1.0, mib: int = 100, **more: Any) -> TaskRequest:
    fields = {key: more.pop(key) for key in ("input_bytes", "run", "sizing") if key in more}
    return TaskRequest(
        task=name,
        usage=KindAmounts(),
        memory_bytes=mib * MIB,
        command=ContainerSpec(argv=("true",), cpu_cores=cores),
        executor=Executor(application=application, **fields),
        **more,
    )


def profile(*slots: tuple[float, int], slot_s: float = 1.0) -> Profile:
    """(cores, MiB) in each slot."""
    return Profile(
        slot_s=slot_s,
        cpu_cores=tuple(cores for cores, _ in slots),
        memory_bytes=tuple(memory * MIB for _, memory in slots),
    )
