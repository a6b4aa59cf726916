"""R of jobs, a vector (Ursa §4.2.2): reported by frameworks to an agent's core, passed on to the master's, ordered
by.
"""

from __future__ import annotations

import msgspec
import pytest

from agent.core import Node
from agent.core import events as agent_events
from agent.core.instructions import Reply, SendToMaster
from agent.core.settings import NodeSettings
from master.core import events as e
from master.core.history import History
from master.core.job import Job
from master.core.order import Totals, job_views, totals
from master.core.settings import MasterSettings
from penstock.model import Capacity, KindAmounts, TaskRequest
from penstock.model.resource_vector import SlotVector
from penstock.opgraph.dataflow import DataflowManager, FlowStarted, Made, PlaceTasks
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import EndJob, JobRegistered, Place, Progress, RegisterJob, StageProgress, TaskRefs
from penstock.wire.master_api import JobUse
from tests.unit.master.cluster_bed import MB, Bed, bed
from tests.unit.penstock.opgraph.test_flow_progress import complete, word_count


class Host:
    """An agent's core whose messages reach the master's core at once: 4 cores of 50 MB/s each, a disk and a network of
    100 MB/s."""

    def __init__(self, ordering: str = "srjf") -> None:
        self.master: Bed = bed("a", ordering=ordering)
        capacity = Capacity(cores=4.0, memory_bytes=1000 * MB)
        self.node = Node(NodeSettings(node="a", instance="x", capacity=capacity, has_master=True))
        self.node.handle(agent_events.SessionOpened(1, "u", "c"), 0.0)

    def serve(self, event: agent_events.Event) -> object:
        answer = None
        for one in self.node.handle(event, self.master.now):
            if isinstance(one, SendToMaster):
                self.master.serve(e.Received("a", one.params))
            elif isinstance(one, Reply):
                answer = one.result
        return answer

    def job(self, name: str) -> str:
        registered = self.serve(agent_events.JobRegistered(1, RegisterJob(name=name), float(len(self.node.jobs))))
        assert isinstance(registered, JobRegistered)
        return registered.job

    def tell(self, job: str, *stages: StageProgress) -> None:
        self.serve(agent_events.Requested(m.PROGRESS, 1, Progress(job=job, stages=list(stages))))

    def remaining_s(self, job: str) -> tuple[float, ...]:
        cluster = self.master.cluster
        total = totals(cluster.table)
        [view] = job_views([cluster.jobs[job]], cluster.nodes, cluster.settings, cluster.history, total)
        return tuple(view.remaining)

    def order(self) -> list[str]:
        return self.master.cluster.order.rank(self.master.now).order()


def stage(**megabytes: float) -> StageProgress:
    usage = KindAmounts(**{kind: amount * MB for kind, amount in megabytes.items()})
    return StageProgress(stage="s", tasks=10, usage=usage)


def test_a_resource_in_high_demand_weighs_more() -> None:
    host = Host()
    network, cpu, load = host.job("network"), host.job("cpu"), host.job("load")
    host.tell(network, stage(network=100.0))
    host.tell(cpu, stage(cpu=200.0))
    assert host.remaining_s(network) == (0.0, 0.0, 1.0)
    assert host.remaining_s(cpu) == (1.0, 0.0, 0.0)
    host.tell(load, stage(cpu=400.0, network=1000.0))
    assert host.order() == [cpu, network, load]
    host.tell(load, stage(cpu=2000.0, network=200.0))
    assert host.order() == [network, cpu, load]


def test_a_dataflow_s_later_stages_count_before_they_are_ready() -> None:
    host = Host()
    job = host.job("words")
    manager = DataflowManager(word_count(MB))
    host.tell(job, *manager.progress())
    assert host.remaining_s(job) == (1600 / 200, 0.0 + 400 / 100, 0.0)
    [asked] = manager.handle(FlowStarted())
    assert isinstance(asked, PlaceTasks)
    tasks = [TaskRequest(task=demand.name, usage=demand.usage) for demand in asked.demands]
    host.serve(agent_events.Requested(m.PLACE, 1, Place(job=job, stage=asked.stage, tasks=tasks, opportunistic=False)))
    assert host.remaining_s(job) == (8.0, 4.0, 0.0), "announced work is not counted twice"
    complete(manager, 0, (0, Made(400 * MB)), (2, Made(30 * MB, (10 * MB, 20 * MB))))
    host.tell(job, *manager.progress())
    assert host.remaining_s(job) == pytest.approx((8.0 + 60 / 200, 4.0, 60 / 100))


def test_history_and_announcements_are_not_added_up() -> None:
    host = Host()
    first = host.job("daily")
    host.tell(first, stage(cpu=0.0))
    request = TaskRequest(task="t", usage=KindAmounts(cpu=400.0 * MB, network=100.0 * MB))
    host.serve(agent_events.Requested(m.PLACE, 1, Place(job=first, stage="s", tasks=[request], opportunistic=False)))
    host.master.round()
    host.serve(agent_events.Requested(m.TASKS_DONE, 1, TaskRefs(job=first, tasks=["t"])))
    host.tell(first, StageProgress(stage="s", tasks=1, done=1))
    host.serve(agent_events.Requested(m.END_JOB, 1, EndJob(job=first)))
    again = host.job("daily")
    assert host.remaining_s(again) == (2.0, 0.0, 1.0), "R is initialized based on historical information"
    host.tell(again, stage(cpu=100.0, network=300.0))
    assert host.remaining_s(again) == (2.0, 0.0, 3.0)


class Crowd:
    """Jobs of commands that came without bytes, on 10 cores."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def add(self, name: str, tasks: int, *, done: int = 0, running: int = 0, service_s: float = 0.0) -> None:
        job = self._jobs[name] = Job(name, "a", len(self._jobs), name=name, user="u")
        for _ in range(tasks):
            job.work.task_announced("s", KindAmounts())
        job.work.attained("a", JobUse(job=name, service_s=service_s, running=running))
        for _ in range(done):
            job.work.task_ended("s", KindAmounts())

    def attain(self, name: str, service_s: float) -> None:
        self._jobs[name].work.attained("a", JobUse(job=name, service_s=service_s))

    def tell(self, name: str, stage: StageProgress) -> None:
        self._jobs[name].work.report([stage])

    def remaining_s(self) -> dict[str, float]:
        """Return the remaining time of each, in seconds of one core."""
        total = Totals(SlotVector(10.0, 1.0, 1.0, 1e9), (1.0, 1.0, 1.0))
        views = job_views(self._jobs.values(), {}, MasterSettings(), History(), total)
        assert all(view.remaining[1:] == (0.0, 0.0) for view in views), "it counts as CPU"
        return {view.job: pytest.approx(10 * view.remaining[0]) for view in views}


def test_commands_without_bytes_take_as_long_as_those_of_the_job_that_have_ended() -> None:
    crowd = Crowd()
    crowd.add("two ended", 8, done=2, service_s=20.0)
    crowd.add("four run, half done", 8, done=2, running=4, service_s=40.0)
    crowd.add("all ended", 2, done=2, service_s=20.0)
    assert crowd.remaining_s() == {"two ended": 60.0, "four run, half done": 40.0, "all ended": 0.0}


def test_the_use_of_a_program_before_it_had_tasks_is_not_subtracted_from_theirs() -> None:
    crowd = Crowd()
    crowd.add("starts", 0, service_s=30.0)
    crowd.tell("starts", StageProgress(stage="s", tasks=8))
    assert crowd.remaining_s() == {"starts": 0.0}
    crowd.attain("starts", 50.0)
    crowd.tell("starts", StageProgress(stage="s", tasks=8, done=2))
    assert crowd.remaining_s() == {"starts": 60.0}, "20 s for two tasks"


def test_before_that_as_long_as_those_of_other_jobs() -> None:
    crowd = Crowd()
    crowd.add("waits", 8)
    crowd.add("few", 3)
    crowd.add("its own run for longer", 8, running=2, service_s=50.0)
    assert crowd.remaining_s() == {"waits": 0.0, "few": 0.0, "its own run for longer": 0.0}, "no length is known"
    crowd.add("ended", 4, done=4, service_s=40.0)
    of_its_own = (8 - 1) * 50.0
    assert crowd.remaining_s() == {"waits": 80.0, "few": 0.0, "its own run for longer": of_its_own, "ended": 0.0}


def test_bytes_that_are_known_are_believed_before_the_lengths_of_other_jobs() -> None:
    crowd = Crowd()
    crowd.add("ended", 4, done=4, service_s=4000.0)
    crowd.add("many small ones", 0)
    crowd.tell("many small ones", StageProgress(stage="later", tasks=100, usage=KindAmounts(cpu=20.0)))
    assert crowd.remaining_s() == {"ended": 0.0, "many small ones": 200.0}


def test_as_installed_a_job_of_fewer_commands_is_first_and_one_that_is_nearly_done() -> None:
    host = Host(ordering="gittins")
    long, short, known = (host.job(name) for name in ("long", "short", "known"))
    for job, count in ((long, 40), (short, 8), (known, 4)):
        requests = [TaskRequest(task=f"{job}-{i}", usage=KindAmounts()) for i in range(count)]
        host.serve(agent_events.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=requests, opportunistic=False)))
    jobs = host.master.cluster.jobs
    jobs[known].work.attained("a", JobUse(job=known, service_s=10.0, running=0))
    jobs[known].work.task_ended("s", KindAmounts())
    assert host.order() == [known, short, long]


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf")])
def test_work_that_is_no_number_is_no_message(amount: float) -> None:
    packed = msgspec.msgpack.encode({"stage": "s", "tasks": 1, "usage": {"cpu": amount}})
    with pytest.raises(msgspec.ValidationError, match="usage: expected non-negative numbers"):
        msgspec.msgpack.decode(packed, type=StageProgress)
