"""The job manager by example."""

from __future__ import annotations

import pytest

from penstock.model.container import Ended, EndedBy
from penstock.model.work import OpportunisticJob
from penstock.opgraph import (
    AdmissionAwaited,
    CancelRequested,
    CancelTasks,
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
from penstock.wire.agent_api import StageProgress

OK = Ended(by=EndedBy.EXIT, exit_status=0)
BAD = Ended(by=EndedBy.EXIT, exit_status=3, reason="exit status 3")


def map_reduce() -> TaskGraph:
    return TaskGraph(
        [
            TaskNode("m1", "map"),
            TaskNode("m2", "map"),
            TaskNode("m3", "map", opportunistic=True),
            TaskNode("r1", "reduce", ("m1", "m2")),
            TaskNode("r2", "reduce", ("m1", "m2")),
            TaskNode("side", "side", ("m3",)),
        ]
    )


def test_stages_become_ready_together() -> None:
    manager = JobManager(map_reduce())
    assert manager.handle(Started()) == [
        PlaceStage("map", ("m1", "m2"), opportunistic=False),
        PlaceStage("map", ("m3",), opportunistic=True),
    ]
    manager.handle(TaskPlaced("m1", "n1"))
    assert manager.states["m1"] is TaskState.PLACED
    assert manager.nodes == {"m1": "n1"}
    assert manager.handle(TaskEnded("m1", OK)) == [TaskSettled("m1", TaskState.DONE)]
    assert manager.handle(TaskEnded("m2", OK)) == [
        TaskSettled("m2", TaskState.DONE),
        PlaceStage("reduce", ("r1", "r2"), opportunistic=False),
    ]


def test_what_its_host_cannot_hold_is_asked_for_before_the_admission() -> None:
    """If no node can hold it, the wait for the job's memory would be in vain."""
    large = TaskNode("large", "s", memory_bytes=101)
    tasks = [large, TaskNode("fits", "s", memory_bytes=100), TaskNode("later", "t", ("fits",), memory_bytes=101)]
    manager = JobManager(TaskGraph([*tasks, TaskNode("after", "u", ("large",))]))
    assert manager.handle(AdmissionAwaited(100)) == [PlaceStage("s", ("large",), opportunistic=False)]
    refused = Ended(by=EndedBy.REFUSED, reason="no node has so much")
    assert manager.handle(TaskEnded("large", refused)) == [
        TaskSettled("large", TaskState.FAILED, "no node has so much"),
        TaskSettled("after", TaskState.SKIPPED, "large did not succeed"),
    ]
    assert manager.handle(Started()) == [PlaceStage("s", ("fits",), opportunistic=False)]
    assert manager.handle(AdmissionAwaited(100)) == [], "it was admitted, and waits again at a restarted agent"


@pytest.mark.parametrize(
    ("of_the_job", "asked"),
    [(None, ["regular"]), (False, ["regular", "slack"]), (["s"], ["slack"]), (True, []), ("only", [])],
)
def test_what_may_run_on_slack_is_not_asked_for_before_the_admission(
    of_the_job: OpportunisticJob, asked: list[str]
) -> None:
    """It would start at once."""
    regular = TaskNode("regular", "s", memory_bytes=101)
    manager = JobManager(TaskGraph([regular, TaskNode("slack", "t", memory_bytes=101, opportunistic=True)]))
    said = manager.handle(AdmissionAwaited(100, of_the_job))
    assert [task for one in said if isinstance(one, PlaceStage) for task in one.tasks] == asked


def test_a_failure_skips_its_dependents_and_the_rest_goes_on() -> None:
    manager = JobManager(map_reduce())
    manager.handle(Started())
    assert manager.handle(TaskEnded("m1", BAD)) == [
        TaskSettled("m1", TaskState.FAILED, "exit status 3"),
        TaskSettled("r2", TaskState.SKIPPED, "m1 did not succeed"),
        TaskSettled("r1", TaskState.SKIPPED, "m1 did not succeed"),
    ]
    manager.handle(TaskEnded("m2", OK))
    assert PlaceStage("side", ("side",), opportunistic=False) in manager.handle(TaskEnded("m3", OK))
    assert manager.handle(TaskEnded("side", OK))[-1] == JobOver(succeeded=False)


def test_fail_fast_cancels_the_rest() -> None:
    manager = JobManager(map_reduce(), fail_fast=True)
    manager.handle(Started())
    said = manager.handle(TaskEnded("m1", BAD))
    assert said[-1] == CancelTasks(("m2", "m3"))
    manager.handle(TaskEnded("m2", OK))
    assert manager.handle(TaskEnded("m3", Ended(by=EndedBy.CANCELLED))) == [
        TaskSettled("m3", TaskState.CANCELLED),
        JobOver(succeeded=False),
    ]
    assert manager.states["side"] is TaskState.SKIPPED


def test_cancelling_before_the_start_ends_the_job() -> None:
    manager = JobManager(map_reduce())
    assert manager.handle(CancelRequested("enough"))[-1] == JobOver(succeeded=False)
    assert set(manager.states.values()) == {TaskState.SKIPPED}
    assert manager.handle(Started()) == []


def test_another_user_s_cancellation_is_a_failure() -> None:
    manager = JobManager(TaskGraph([TaskNode("a", "a")]))
    manager.handle(Started())
    assert manager.handle(TaskEnded("a", Ended(by=EndedBy.CANCELLED)))[0] == TaskSettled("a", TaskState.FAILED)


def test_progress_names_all_stages_and_their_dependencies() -> None:
    manager = JobManager(map_reduce())
    manager.handle(Started())
    manager.handle(TaskEnded("m1", OK))
    manager.handle(TaskEnded("m3", BAD))  # and so `side` is skipped
    assert manager.progress() == [
        StageProgress(stage="map", tasks=3, done=2),
        StageProgress(stage="reduce", tasks=2, after=["map"]),
        StageProgress(stage="side", tasks=1, done=1, skipped=1, after=["map"]),
    ]


def test_of_more_stages_than_a_message_may_name_those_left_are_reported() -> None:
    manager = JobManager(TaskGraph([TaskNode(f"t{number}", f"s{number}") for number in range(5000)]))
    manager.handle(Started())
    manager.handle(TaskEnded("t0", OK))
    told = manager.progress()
    assert (len(told), told[0].stage) == (4096, "s1")
