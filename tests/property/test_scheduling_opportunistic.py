"""A job's regular work is placed no later because opportunistic work is there, and slack is what is left (UBIS §IV)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import SendDecisions
from master.ordering import NAMES
from penstock.model import Capacity, ContainerSpec, KindAmounts, TaskRequest
from penstock.model.work import Opportunistic
from penstock.wire import master_api as api

MB = 10**6
NODES = ("a", "b", "c")
MEMORY = 1000 * MB
T_ALLOC = 0.9
#: Megabytes of memory and of work, and whether it is a command.
sizes = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.booleans()), max_size=8)
Sizes = list[tuple[int, int, bool]]


def load(used_memory_bytes: int = 0, used_cores: float = 0.0) -> api.Load:
    """Opportunistic work shows in what is used; promises and queues are those of regular work."""
    return api.Load(
        rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(4, 1, 2), used_cores=used_cores,
        used_memory_bytes=used_memory_bytes, promised_memory_bytes=0,
    )  # fmt: skip


class World:
    """A cluster of three nodes that accept everything."""

    def __init__(self, ordering: str, *, promotion: bool = False) -> None:
        self.cluster = Cluster(MasterSettings(ordering=ordering, promotion=promotion))
        self.assigned: list[tuple[str, api.Assign]] = []
        self.now = 0.0
        for name in NODES:
            capacity = Capacity(cores=4.0, memory_bytes=MEMORY)
            self.say(name, api.Register(protocol=1, node=name, version="0", capacity=capacity, load=load()))

    def handle(self, event: e.Event) -> None:
        todo = [event]
        while todo:
            for sent in self.cluster.handle(todo.pop(0), self.now):
                if isinstance(sent, SendDecisions):
                    todo.append(e.Answered(sent.node, sent.number, []))
                    assigned = [decision for decision in sent.decisions if isinstance(decision, api.Assign)]
                    self.assigned += [(sent.node, decision) for decision in assigned]

    def say(self, node: str, message: e.Message) -> None:
        self.handle(e.Said(node, message))

    def job(self, job: str, tasks: Sizes, *, opportunistic: Opportunistic) -> None:
        at = self.now
        self.say("a", api.JobState(job=job, name=job, user=job, memory_bytes=0, priority=0.0, submitted_at=at))
        requests = [
            TaskRequest(
                task=f"t{index}", usage=KindAmounts(cpu=float(work * MB)), memory_bytes=memory * MB,
                command=ContainerSpec(argv=("x",), cpu_cores=0.5) if command else None,
            )
            for index, (memory, work, command) in enumerate(tasks)
        ]  # fmt: skip
        if requests:
            self.say("a", api.ReadyTasks(job=job, stage="s", tasks=requests, opportunistic=opportunistic))

    def round(self, used_bytes: int = 0, used_cores: float = 0.0) -> None:
        """A scheduling latency later: what was placed has come to the queues, which are empty again."""
        self.now += 2.0
        for name in NODES:
            number = self.cluster.nodes[name].requests.number
            self.say(name, api.Heartbeat(load=load(used_bytes, used_cores), decided=number))
        self.handle(e.RoundDue(self.now))

    def placed(self, *, on_slack: bool) -> list[tuple[str, str, str]]:
        """(job, task, node), in order."""
        return [
            (decision.job, decision.request.task, node)
            for node, decision in self.assigned
            if decision.opportunistic is on_slack
        ]


@given(st.sampled_from(NAMES), sizes, st.lists(st.tuples(sizes, sizes), min_size=1, max_size=4))
@settings(max_examples=40)
def test_regular_work_is_placed_as_if_it_were_alone(
    ordering: str, early: Sizes, steps: list[tuple[Sizes, Sizes]]
) -> None:
    """Whatever wants nothing but slack, and what of it runs, keeps no regular task from its place."""
    shared, alone = World(ordering), World(ordering)
    shared.job("early", early, opportunistic="only")
    shared.round()
    alone.round()
    for number, (regular, opportunistic) in enumerate(steps):
        for world in (shared, alone):
            world.job(f"r{number}", regular, opportunistic=False)
        shared.job(f"o{number}", opportunistic, opportunistic="only")
        shared.round(300 * MB, 3.0)
        alone.round()
    assert shared.placed(on_slack=False) == alone.placed(on_slack=False)


@given(
    st.sampled_from(NAMES), st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=4),
    st.integers(0, 1000), st.integers(0, 4),
)  # fmt: skip
@settings(max_examples=45)
def test_slack_takes_only_what_regular_room_leaves(
    ordering: str, jobs: list[tuple[Sizes, bool]], used: int, cores: int
) -> None:
    """Allowing it changes nothing of the regular placement, and takes T_alloc × capacity − utilization at most."""
    base, ubis = World(ordering), World(ordering)
    for number, (tasks, allows) in enumerate(jobs):
        base.job(f"j{number}", tasks, opportunistic=False)
        ubis.job(f"j{number}", tasks, opportunistic=allows)
    for world in (base, ubis):
        world.round(used * MB, float(cores))
    assert ubis.placed(on_slack=False) == base.placed(on_slack=False)
    allowed = {f"j{number}" for number, (_, allows) in enumerate(jobs) if allows}
    assert {job for job, _, _ in ubis.placed(on_slack=True)} <= allowed
    for node in NODES:
        here = [decision for name, decision in ubis.assigned if name == node]
        if any(decision.opportunistic for decision in here):
            assert used * MB + sum(decision.request.memory_bytes for decision in here) <= T_ALLOC * MEMORY


@given(st.sampled_from(NAMES), sizes, st.integers(0, 1000))
@settings(max_examples=50)
def test_promotion_promises_nothing_twice(ordering: str, tasks: Sizes, used: int) -> None:
    """What runs on slack becomes regular where memory, cores and slots are free, and only there."""
    world = World(ordering, promotion=True)
    world.job("j", tasks, opportunistic=True)
    for _ in range(3):
        world.round(used * MB)
        for node in world.cluster.nodes.values():
            assert node.memory_free_bytes() >= 0
            assert node.cores_free() >= -1e-9
            promoted = [held for held in node.held.values() if held.promoted_in is not None and held.command]
            assert len(promoted) <= 4 * 3, "as many slots as each report said were free"
