"""A job's regular work is placed no later because of opportunistic work, and slack is the remainder (UBIS §IV)."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from master.ordering import NAMES
from penstock.model.work import Opportunistic
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import MB, Bed, command, load, task

NODES = ("a", "b", "c")
MEMORY = 1000 * MB
T_ALLOC = 0.9
#: Megabytes of memory and of work, and whether it is a command.
sizes = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.booleans()), max_size=8)
Sizes = list[tuple[int, int, bool]]


class World(Bed):
    """A cluster of three nodes that accept everything.

    Opportunistic work shows in the use; promises and queues are those of regular work.
    """

    def __init__(self, ordering: str, *, promotion: bool = False) -> None:
        super().__init__(ordering=ordering, promotion=promotion)
        for name in NODES:
            self.node(name, load=load(promised_memory_bytes=0))

    def work(self, job: str, tasks: Sizes, *, opportunistic: Opportunistic) -> None:
        self.job("a", job, at=self.now, user=job)
        requests = [
            command(f"t{index}", memory, 0.5, cpu=work) if is_command else task(f"t{index}", memory, cpu=work)
            for index, (memory, work, is_command) in enumerate(tasks)
        ]
        if requests:
            self.ready("a", *requests, job=job, opportunistic=opportunistic)

    def step(self, used_bytes: int = 0, used_cores: float = 0.0) -> None:
        """Run a round a scheduling latency later: placed work has reached the queues, which are empty again."""
        self.now += 2.0
        for name in NODES:
            self.heartbeat(name, used_memory_bytes=used_bytes, used_cores=used_cores, promised_memory_bytes=0)
        self.round(0.0)

    def placed(self, *, on_slack: bool) -> list[tuple[str, str, str]]:
        """(job, task, node), in order."""
        return [
            (decision.job, decision.request.task, node)
            for node, decision in self.decisions_of(api.Assign)
            if decision.opportunistic is on_slack
        ]


@given(st.sampled_from(NAMES), sizes, st.lists(st.tuples(sizes, sizes), min_size=1, max_size=4))
@example(
    ordering="fifo",  # the lengths of tasks on slack moved EPT
    early=[(0, 55, False)],
    steps=[([(memory, work, False) for memory, work in [(0, 1), (0, 1), (0, 1), (0, 2), (2, 1), (2, 1), (52, 1)]], [])],
)
@settings(max_examples=40)
def test_regular_work_is_placed_as_if_it_were_alone(
    ordering: str, early: Sizes, steps: list[tuple[Sizes, Sizes]]
) -> None:
    """Work that wants only slack, waiting or running, keeps no regular task from its place."""
    shared, alone = World(ordering), World(ordering)
    shared.work("early", early, opportunistic="only")
    shared.step()
    alone.step()
    for number, (regular, opportunistic) in enumerate(steps):
        for world in (shared, alone):
            world.work(f"r{number}", regular, opportunistic=False)
        shared.work(f"o{number}", opportunistic, opportunistic="only")
        shared.step(300 * MB, 3.0)
        alone.step()
    assert shared.placed(on_slack=False) == alone.placed(on_slack=False)


@given(
    st.sampled_from(NAMES), st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=4),
    st.integers(0, 1000), st.integers(0, 4),
)  # fmt: skip
@settings(max_examples=45)
def test_slack_takes_only_the_room_that_regular_work_leaves(
    ordering: str, jobs: list[tuple[Sizes, bool]], used: int, cores: int
) -> None:
    """Allowing it changes nothing of the regular placement, and takes T_alloc × capacity − utilization at most."""
    base, ubis = World(ordering), World(ordering)
    for number, (tasks, allows) in enumerate(jobs):
        base.work(f"j{number}", tasks, opportunistic=False)
        ubis.work(f"j{number}", tasks, opportunistic=allows)
    for world in (base, ubis):
        world.step(used * MB, float(cores))
    assert ubis.placed(on_slack=False) == base.placed(on_slack=False)
    allowed = {f"j{number}" for number, (_, allows) in enumerate(jobs) if allows}
    assert {job for job, _, _ in ubis.placed(on_slack=True)} <= allowed
    for node in NODES:
        here = [decision for name, decision in ubis.decisions_of(api.Assign) if name == node]
        if any(decision.opportunistic for decision in here):
            assert used * MB + sum(decision.request.memory_bytes for decision in here) <= T_ALLOC * MEMORY


@given(st.sampled_from(NAMES), sizes, st.integers(0, 1000))
@settings(max_examples=50)
def test_promotion_promises_nothing_twice(ordering: str, tasks: Sizes, used: int) -> None:
    """Work on slack becomes regular where memory, cores and slots are free, and only there."""
    world = World(ordering, promotion=True)
    world.work("j", tasks, opportunistic=True)
    for _ in range(3):
        world.step(used * MB)
        for node in world.cluster.nodes.values():
            assert node.memory_free_bytes() >= 0
            assert node.cores_free() >= -1e-9
            promoted = [held for held in node.held.values() if held.promoted_in is not None and held.command]
            assert len(promoted) <= 4 * 3, "as many slots as each report said were free"
