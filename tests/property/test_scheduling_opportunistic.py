"""A job's regular work is placed no later because opportunistic work is there (UBIS §IV)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import SendDecisions
from master.ordering import NAMES
from penstock.model import Capacity, KindAmounts, TaskRequest
from penstock.wire import master_api as api

MB = 10**6
NODES = ("a", "b", "c")
sizes = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200)), max_size=8)


def load(now: float, opportunistic: int) -> api.Load:
    """Opportunistic work shows in what is used; promises and queues are those of regular work."""
    return api.Load(
        rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(4, 1, 2), used_cores=float(opportunistic),
        used_memory_bytes=opportunistic * 100 * MB, promised_memory_bytes=0,
    )  # fmt: skip


class World:
    """A cluster of three nodes that accept everything."""

    def __init__(self, ordering: str, *, promotion: bool) -> None:
        self.cluster = Cluster(MasterSettings(ordering=ordering, promotion=promotion))
        self.assigned: list[tuple[str, str, str, bool]] = []
        self.now = 0.0
        for name in NODES:
            capacity = Capacity(cores=4.0, memory_bytes=1000 * MB)
            self.say(name, api.Register(protocol=1, node=name, version="0", capacity=capacity, load=load(0, 0)))

    def handle(self, event: e.Event) -> None:
        todo = [event]
        while todo:
            for sent in self.cluster.handle(todo.pop(0), self.now):
                if isinstance(sent, SendDecisions):
                    todo.append(e.Answered(sent.node, sent.number, []))
                    self.assigned += [
                        (decision.job, decision.request.task, sent.node, decision.opportunistic)
                        for decision in sent.decisions
                        if isinstance(decision, api.Assign)
                    ]

    def say(self, node: str, message: e.Message) -> None:
        self.handle(e.Said(node, message))

    def job(self, job: str, tasks: list[tuple[int, int]], *, opportunistic: bool) -> None:
        at = self.now
        self.say("a", api.JobState(job=job, name=job, user=job, memory_bytes=0, priority=0.0, submitted_at=at))
        requests = [
            TaskRequest(task=f"t{index}", usage=KindAmounts(cpu=float(work * MB)), memory_bytes=memory * MB)
            for index, (memory, work) in enumerate(tasks)
        ]
        if requests:
            self.say("a", api.ReadyTasks(job=job, stage="s", tasks=requests, opportunistic=opportunistic))

    def round(self, opportunistic: int) -> None:
        """A scheduling latency later: what was placed has come to the queues, which are empty again."""
        self.now += 2.0
        for name in NODES:
            number = self.cluster.nodes[name].number
            self.say(name, api.Heartbeat(load=load(self.now, opportunistic), decided=number))
        self.handle(e.RoundDue(self.now))


@given(st.sampled_from(NAMES), sizes, st.lists(st.tuples(sizes, sizes), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_regular_work_is_placed_as_if_it_were_alone(
    ordering: str, early: list[tuple[int, int]], steps: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]
) -> None:
    """Memory that opportunistic work uses, and its own queueing, keep no regular task from its place."""
    shared, alone = World(ordering, promotion=False), World(ordering, promotion=False)
    shared.job("early", early, opportunistic=True)
    shared.round(0)
    alone.round(0)
    for number, (regular, opportunistic) in enumerate(steps):
        for world in (shared, alone):
            world.job(f"r{number}", regular, opportunistic=False)
        shared.job(f"o{number}", opportunistic, opportunistic=True)
        shared.round(len(NODES))
        alone.round(0)
    regular_shared = [each[:3] for each in shared.assigned if not each[3]]
    assert regular_shared == [each[:3] for each in alone.assigned if not each[3]]
