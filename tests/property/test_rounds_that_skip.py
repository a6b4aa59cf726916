"""A round skips jobs for which no node has room, and decides as if it examined all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import SendDecisions
from master.core.job import Job
from master.core.node import Held
from master.core.rounds import Rounds
from master.core.waiting import WaitingStages
from master.ordering import NAMES
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import master_api as api
from tests.property.scheduling_agents import MIB
from tests.property.test_scheduling_reconfigured import ReconfiguredWorld


def everything(_: WaitingStages, jobs: list[Job]) -> set[tuple[str, str]]:
    return {(job.job, stage) for job in jobs for stage in job.ready_for_regular()}


@contextmanager
def looking_at_everything(cluster: Cluster) -> Iterator[None]:
    """Rank the jobs in each round, score all stages, and remember nothing of the tasks from the round before."""
    for job in cluster.jobs.values():
        job.fits_in, job.waiting = -1, None
        job.summed_up.clear()
        for task in job.tasks.values():
            task.need = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WaitingStages, "possible", everything)
        patch.setattr(Rounds, "_order_matters", lambda _: True)
        yield


class Pair:
    """Two masters of nodes that are mostly full, and agents that follow their decisions."""

    def __init__(self, rng: Random, ordering: str) -> None:
        self.rng = rng
        changes: dict[str, Any] = {
            "stage_aware": rng.random() < 0.8,
            "user_max_cores": rng.choice([0.0, 0.0, 0.0, 5.0]),
        }
        chosen = MasterSettings(gather_s=0.0, ordering=ordering, **changes)
        self.quick, self.thorough = Cluster(chosen), Cluster(chosen)
        self.now, self.serial = 0.0, 0
        self.promised = dict.fromkeys("abcd", 3900)  # MiB, to containers of others
        for name in self.promised:
            capacity = Capacity(cores=8.0, memory_bytes=4096 * MIB)
            said = api.Register(
                protocol=1, node=name, version="0", capacity=capacity, load=self.load(name), complete=True
            )
            self.serve(e.Received(name, said))

    def load(self, name: str) -> api.Load:
        """Of a node that now and then has a little of something to spare."""
        busy, rng = KindAmounts(1e12, 1e12, 1e12), self.rng
        some = KindAmounts(*(rng.choice([0.0, 0.0, amount]) for amount in (busy.cpu, busy.disk, busy.network)))
        held = sum(held.memory_bytes for held in self.held(name))
        jobs = list(self.quick.jobs)[-3:]
        uses = [api.JobUse(job=job, service_s=self.now * rng.choice([1, 9]), running=rng.randint(0, 3)) for job in jobs]
        return api.Load(
            rates=KindAmounts(), pending=rng.choice([busy, some]), idle=KindAmounts(float(rng.randint(0, 1)), 1, 1),
            promised_memory_bytes=self.promised[name] * MIB + held, promised_cores=rng.choice([8.0, 7.5, 6.0]),
            jobs=uses if name in self.quick.nodes else [],
        )  # fmt: skip

    def held(self, name: str) -> list[Held]:
        node = self.quick.nodes.get(name)
        return [held for held in node.held.values() if held.regular] if node is not None else []

    def serve(self, event: e.Event) -> None:
        """Have both masters decide, the same; decisions are answered at once, and now and then refused."""
        todo: list[e.Event] = [event]
        while todo:
            one = todo.pop(0)
            decided = self.quick.handle(one, self.now)
            with looking_at_everything(self.thorough):
                assert self.thorough.handle(one, self.now) == decided
            assert waits(self.thorough) == waits(self.quick)
            todo += [self.answer(each) for each in decided if isinstance(each, SendDecisions)]

    def answer(self, sent: SendDecisions) -> e.Answered:
        refusals = [
            api.Refusal(index=index, reason="no")
            for index, decision in enumerate(sent.decisions)
            if isinstance(decision, api.Assign) and self.rng.random() < 0.1
        ]
        return e.Answered(sent.node, sent.number, refusals)

    def step(self) -> None:
        """Something happens; then a round."""
        rng, self.now = self.rng, self.now + 0.1
        name = rng.choice("abcd")
        match rng.choice(["heartbeat", "heartbeat", "heartbeat", "nothing", "room", "job", "tasks", "tasks", "end"]):
            case "heartbeat":
                number = self.quick.nodes[name].requests.number
                self.serve(e.Received(name, api.Heartbeat(load=self.load(name), decided=number)))
            case "room":
                self.promised[name] = rng.choice([4096, 4000, 3900, 3000])
            case "job":
                self.serial += 1
                state = api.JobState(
                    job=f"j{self.serial}", name="job", user=rng.choice("uv"), memory_bytes=0, priority=0.0,
                    submitted_at=1000.0 + self.now,
                )  # fmt: skip
                self.serve(e.Received(name, state))
            case "tasks" if self.quick.jobs:
                self.tasks(rng.choice(list(self.quick.jobs.values())))
            case "end" if held := list(self.quick.nodes[name].held.values()):
                one = rng.choice(held)
                ended = Ended(by=rng.choice([EndedBy.EXIT, EndedBy.PREEMPTED]))
                self.serve(e.Received(name, api.CommandEnded(job=one.job, task=one.task, origin=name, ended=ended)))
        self.serve(e.RoundDue(1000.0 + self.now))

    def tasks(self, job: Job) -> None:
        """Commands of one stage that ask for unlike things."""
        rng, requests = self.rng, []
        for _ in range(rng.choice([1, 1, 3])):
            self.serial += 1
            usage = KindAmounts(*(rng.choice([0.0, 0.0, 1e6]) for _ in range(3)))
            command = ContainerSpec(argv=("true",), cpu_cores=rng.choice([0.0, 0.0, 0.5, 2.0]))
            requests.append(
                TaskRequest(
                    task=f"t{self.serial}", usage=usage, memory_bytes=rng.choice([0, 90, 96, 190, 196]) * MIB,
                    nodes=rng.choice([(), (), (), ("a",), ("b", "c"), ("away",)]), command=command,
                )
            )  # fmt: skip
        stage, opportunistic = f"s{rng.randint(0, 2)}", rng.choice([False, False, False, False, True])
        self.serve(
            e.Received(
                job.origin, api.ReadyTasks(job=job.job, stage=stage, tasks=requests, opportunistic=opportunistic)
            )
        )


def waits(cluster: Cluster) -> dict[str, str]:
    return {job.job: job.waits for job in cluster.jobs.values()}


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), ordering=st.sampled_from(NAMES))
def test_on_full_nodes_both_decide_the_same(seed: int, ordering: str) -> None:
    pair = Pair(Random(seed), ordering)
    for _ in range(60):
        pair.step()


class TwoMasters(ReconfiguredWorld):
    """Agents that obey one master; the other gets the same messages and leaves nothing out."""

    def start_master(self) -> None:
        self.thorough = Cluster(self.settings)
        super().start_master()

    def serve(self, event: e.Event) -> None:
        super().serve(event)
        with looking_at_everything(self.thorough):
            assert self.thorough.handle(event, self.now) == self.said[-1]
        assert waits(self.thorough) == waits(self.cluster)
        assert self.thorough.counts == self.cluster.counts

    def teardown(self) -> None:
        if not hasattr(self, "cluster") or sys.exc_info()[0] is not None:
            return
        for agent in self.agents.values():
            agent.external = 0
        for _ in range(10):
            self.calm_down()


TestTwoMasters = TwoMasters.TestCase
TestTwoMasters.settings = settings(max_examples=12, stateful_step_count=50, suppress_health_check=list(HealthCheck))
