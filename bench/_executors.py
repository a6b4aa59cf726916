"""Executors to measure with, and a master's core with nodes that hold some."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec
import numpy as np

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Predict, SendDecisions
from penstock.model import Capacity, ContainerSpec, Executor, KindAmounts, Profile, TaskRequest
from penstock.wire import agent_api, master_api

MIB, GIB = 2**20, 2**30


def varying(slots: int, number: int = 0, cores: float = 0.2) -> Profile:
    """A demand that is another one in every slot, of one stage, from so many cores on."""
    at = (np.arange(slots) * 7 + number * 3) % 10
    return Profile(
        cpu_cores=tuple((cores + 0.05 * at).round(3).tolist()),
        memory_bytes=tuple(int(each) * MIB for each in 64 + 4 * at),
    )


def request(name: str, *, executor: bool = True, argv: tuple[str, ...] = ("sleep", "3600")) -> TaskRequest:
    """Of half a core and 128 MiB."""
    command = ContainerSpec(argv=argv, cwd="/", cpu_cores=0.5, memory_bytes=128 * MIB)
    return TaskRequest(
        task=name, usage=KindAmounts(cpu=1e6), memory_bytes=128 * MIB, command=command,
        executor=Executor(application="bench", run="run") if executor else None,
    )  # fmt: skip


def assign(asked: TaskRequest, profile: Profile | None) -> master_api.Assign:
    """Of one job."""
    user = os.environ.get("USER") or "root"
    return master_api.Assign(
        job="job", stage="s", user=user, origin="elsewhere", priority=0.0, request=asked, profile=profile
    )


class Master:
    """A cluster of so many nodes with so many executors each; its nodes follow its decisions."""

    def __init__(self, nodes: int, executors: int) -> None:
        self.nodes = nodes
        self.cluster = Cluster(MasterSettings())
        self.now = 0.0
        self._numbers: dict[str, int] = {}
        capacity = Capacity(cores=16, memory_bytes=64 * GIB)
        for name in (f"n{number}" for number in range(nodes)):
            self.serve(
                e.Received(
                    name,
                    master_api.Register(
                        protocol=1, node=name, version="0", capacity=capacity, load=self._load(), complete=True
                    ),
                )
            )
        self.held: dict[str, list[str]] = {}
        for number in range(nodes):
            job, origin = f"j{number}", f"n{number}"
            state = master_api.JobState(
                job=job, name=job, user="u", memory_bytes=0, priority=0.0, submitted_at=float(number)
            )
            self.serve(e.Received(origin, state))
            tasks = [request(f"e{each}") for each in range(executors)]
            if tasks:
                self.serve(e.Received(origin, master_api.ReadyTasks(job=job, stage="s", tasks=tasks)))
        self.round_s = self._timed_round()

    def _timed_round(self) -> float:
        self.now += 0.1
        start = time.thread_time()
        self.serve(e.RoundDue(self.now))
        return time.thread_time() - start

    def serve(self, event: Any) -> None:
        """Everything is answered at once."""
        todo: list[Any] = [event]
        while todo:
            for instruction in self.cluster.handle(todo.pop(0), self.now):
                if isinstance(instruction, SendDecisions):
                    self._numbers[instruction.node] = instruction.number
                    for decision in instruction.decisions:
                        if isinstance(decision, master_api.Assign):
                            self.held.setdefault(instruction.node, []).append(f"{decision.job}/{decision.request.task}")
                    todo.append(e.Answered(instruction.node, instruction.number, []))
                elif isinstance(instruction, Predict):
                    application, settings, sizing = instruction.application, instruction.settings, instruction.sizing
                    todo.append(e.Forecasted(application, settings, varying(100), "mean of 3 runs", 0.1, sizing))

    def _load(self) -> master_api.Load:
        return master_api.Load(
            rates=KindAmounts(1.6e9, 1.5e8, 1.2e8), pending=KindAmounts(), idle=KindAmounts(16, 1, 2), used_cores=9.0
        )

    def heartbeats(self, count: int) -> list[float]:
        """Seconds for each: every third has a slot of each executor of its node, as they come."""
        took_s = []
        for number in range(count):
            node = f"n{number % self.nodes}"
            first, rest = divmod(number // self.nodes, 3)
            uses = [self._use(each, first) for each in self.held.get(node, [])] if rest == 0 else []
            heartbeat = master_api.Heartbeat(load=self._load(), decided=self._numbers.get(node, 0), executors=uses)
            took_s.append(self._timed(node, msgspec.msgpack.encode(heartbeat), master_api.Heartbeat))
        return took_s

    def drivers(self, count: int) -> list[float]:
        """The same for the reports of a framework on its job; each time another stage has ended."""
        took_s = []
        for number in range(count):
            job = number % self.nodes
            stages = [
                agent_api.StageProgress(stage=f"s{each}", tasks=8, done=8) for each in range(number // self.nodes + 1)
            ]
            progress = agent_api.Progress(job=f"j{job}", stages=stages)
            took_s.append(self._timed(f"n{job}", msgspec.msgpack.encode(progress), agent_api.Progress))
        return took_s

    def _timed(self, node: str, said: bytes, kind: type[Any]) -> float:
        self.now += 1.0 / self.nodes
        start = time.thread_time()
        instructions = self.cluster.handle(e.Received(node, msgspec.msgpack.decode(said, type=kind)), self.now)
        took_s = time.thread_time() - start
        for instruction in instructions:
            if isinstance(instruction, SendDecisions):
                self._numbers[node] = instruction.number
                self.serve(e.Answered(instruction.node, instruction.number, []))
        return took_s

    @staticmethod
    def _use(held: str, first: int) -> master_api.ExecutorUse:
        job, _, task = held.partition("/")
        amounts: list[master_api.SlotAmounts | None] = [(1500, 30_000, 2_000, 900)]
        return master_api.ExecutorUse(job=job, task=task, slot_s=3.0, first=first, mean=amounts, peak=amounts)
