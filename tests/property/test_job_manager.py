"""Random graphs, random ends, random cancellations: every task is settled once, and nothing runs before its time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.container import Ended, EndedBy
from penstock.opgraph import (
    CancelRequested,
    CancelTasks,
    Event,
    JobManager,
    JobOver,
    PlaceStage,
    Started,
    TaskEnded,
    TaskGraph,
    TaskNode,
    TaskPlaced,
    TaskSettled,
    TaskState,
)

OK = Ended(by=EndedBy.EXIT, exit_status=0)
ENDS = [OK, OK, OK, Ended(by=EndedBy.EXIT, exit_status=1), Ended(by=EndedBy.LOST), Ended(by=EndedBy.PREEMPTED)]


@st.composite
def graphs(draw: st.DrawFn) -> TaskGraph:
    count = draw(st.integers(1, 9))
    tasks = []
    for index in range(count):
        earlier = [f"t{n}" for n in range(index)]
        after = draw(st.lists(st.sampled_from(earlier), max_size=3)) if earlier else []
        stage = draw(st.sampled_from("abc"))
        tasks.append(TaskNode(f"t{index}", stage, tuple(after), 1, draw(st.booleans())))
    return TaskGraph(draw(st.permutations(tasks)))


class Drive:
    """Plays the placement: obeys, in a random order, and checks every instruction."""

    def __init__(self, graph: TaskGraph, *, fail_fast: bool) -> None:
        self.graph = graph
        self.manager = JobManager(graph, fail_fast=fail_fast)
        self.asked: set[str] = set()
        self.running: list[str] = []
        self.settled: dict[str, TaskState] = {}
        self.over = 0
        self.cancelled = False

    def say(self, event: Event) -> None:
        for instruction in self.manager.handle(event):
            assert not self.over, "nothing follows the end of the job"
            match instruction:
                case PlaceStage(stage, tasks, opportunistic):
                    assert tasks
                    for name in tasks:
                        task = self.graph.tasks[name]
                        assert (task.stage, task.opportunistic) == (stage, opportunistic)
                        assert name not in self.asked
                        assert all(self.settled.get(before) is TaskState.DONE for before in task.after)
                    assert not self.cancelled
                    self.asked |= set(tasks)
                    self.running += tasks
                case CancelTasks(tasks):
                    assert set(tasks) == set(self.running)
                    assert not self.cancelled, "said once"
                    self.cancelled = True
                case TaskSettled(task, state):
                    assert task not in self.settled
                    assert state.over
                    assert (state is TaskState.SKIPPED) == (task not in self.asked)
                    self.settled[task] = state
                case JobOver(succeeded):
                    self.over += 1
                    assert set(self.settled) == set(self.graph.tasks)
                    assert succeeded == (set(self.settled.values()) == {TaskState.DONE})
        assert self.manager.over == bool(self.over)

    def end(self, name: str, ended: Ended) -> None:
        self.running.remove(name)
        self.say(TaskEnded(name, ended))


@given(graphs(), st.booleans(), st.data())
def test_every_task_is_settled_once_and_never_before_its_time(
    graph: TaskGraph, fail_fast: bool, data: st.DataObject
) -> None:
    drive = Drive(graph, fail_fast=fail_fast)
    drive.say(Started())
    cancel_after = data.draw(st.none() | st.integers(0, 5))
    steps = 0
    while not drive.over:
        if steps == cancel_after:
            drive.say(CancelRequested())
            assert drive.over or drive.running
        steps += 1
        if drive.over:
            break
        assert drive.running, "the job hangs"
        name = data.draw(st.sampled_from(drive.running))
        if data.draw(st.booleans()):
            drive.say(TaskPlaced(name, "n1"))
        ended = data.draw(st.sampled_from(ENDS))
        drive.end(name, Ended(by=EndedBy.CANCELLED) if drive.cancelled and not ended.ok else ended)
        drive.say(TaskEnded(name, ended))  # a repetition: no news
    assert drive.over == 1


@given(graphs(), st.data())
def test_a_failure_costs_its_descendants_and_no_others(graph: TaskGraph, data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(sorted(graph.tasks)))
    drive = Drive(graph, fail_fast=False)
    drive.say(Started())
    while drive.running:
        name = drive.running[0]
        drive.end(name, Ended(by=EndedBy.OOM, exit_status=137) if name == victim else OK)
    lost = set(graph.descendants(victim))
    assert {name for name, state in drive.settled.items() if state is TaskState.SKIPPED} == lost
    assert drive.settled[victim] is TaskState.FAILED
    done = {name for name, state in drive.settled.items() if state is TaskState.DONE}
    assert done == set(graph.tasks) - lost - {victim}


@given(graphs())
def test_tasks_that_are_ready_together_come_in_one_request_for_each_stage(graph: TaskGraph) -> None:
    manager = JobManager(graph)
    asked = [(i.stage, i.opportunistic) for i in manager.handle(Started()) if isinstance(i, PlaceStage)]
    assert len(asked) == len(set(asked))


@given(graphs())
def test_depth_is_one_more_than_that_of_the_predecessors(graph: TaskGraph) -> None:
    for name, task in graph.tasks.items():
        assert graph.depth[name] == max((graph.depth[before] + 1 for before in task.after), default=0)
