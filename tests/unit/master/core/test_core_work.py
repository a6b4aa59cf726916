"""The knowledge of a job's work, and its consequences for its memory and for recurring jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.core.history import History, Needed
from master.core.job import Job
from master.core.memory import MemoryEstimates
from master.core.work import Work
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.wire.agent_api import StageProgress
from penstock.wire.master_api import JobUse


def stage_progress(name: str, tasks: int, done: int, *after: str) -> StageProgress:
    return StageProgress(stage=name, tasks=tasks, done=done, after=list(after))


def test_service_counts_for_the_stages_that_are_under_way() -> None:
    work = Work()
    work.report([stage_progress("map", 4, 1), stage_progress("other", 2, 0), stage_progress("reduce", 2, 0, "map")])
    work.attained("a", JobUse(job="j", service_s=6.0, running=2))
    assert work.service == {"map": 3.0, "other": 3.0}
    work.report([stage_progress("map", 4, 4), stage_progress("reduce", 2, 0, "map")])
    work.attained("a", JobUse(job="j", service_s=10.0, running=1))
    work.attained("b", JobUse(job="j", service_s=1.0, running=3))
    assert work.service == {"map": 3.0, "reduce": 5.0}
    assert (work.service_s, work.slots, work.tasks_left) == (11.0, 4, 2)
    work.gone("b")
    assert (work.service_s, work.slots) == (11.0, 1)


def test_service_counts_for_a_stage_from_its_first_task_until_its_last_has_ended() -> None:
    work = Work()
    work.report([stage_progress("map", 4, 1)])
    work.attained("a", JobUse(job="j", service_s=2.0, running=1))
    work.task_announced("placed", KindAmounts(cpu=5.0))
    work.attained("a", JobUse(job="j", service_s=6.0, running=1))
    work.task_ended("placed", KindAmounts(cpu=5.0))
    work.attained("a", JobUse(job="j", service_s=7.0, running=1))
    assert work.service == {"map": 2.0 + 2.0 + 1.0, "placed": 2.0}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(["report", "last", "gone"]))))
def test_its_slots_are_those_of_the_last_reports_of_all_nodes(events: list[tuple[str, int, str]]) -> None:
    work, running, service_s = Work(), dict[str, int](), 0.0
    for node, slots, what in events:
        service_s += 1.0
        if what == "gone":
            work.gone(node)
        else:
            work.attained(node, JobUse(job="j", service_s=service_s, running=slots, last=what == "last"))
        running[node] = slots if what == "report" else 0
        assert work.slots == sum(running.values())


_STAGES = st.builds(
    lambda stage, skipped, run, left: StageProgress(
        stage=stage, tasks=skipped + run + left, done=skipped + run, skipped=skipped
    ),
    st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(["announced", "ended"]), st.lists(_STAGES, max_size=4)), max_size=8))
def test_the_skipped_tasks_are_among_the_finished_ones(events: list[str | list[StageProgress]]) -> None:
    """A report may name a stage twice."""
    work = Work()
    for event in events:
        if event == "announced":
            work.task_announced("a", KindAmounts())
        elif event == "ended":
            work.task_ended("a", KindAmounts())
        else:
            assert isinstance(event, list)
            work.report(event)
        assert 0 <= work.skipped <= work.done


def test_of_a_stage_that_is_reported_twice_the_last_counts() -> None:
    work = Work()
    work.report([stage_progress("map", 4, 0), stage_progress("reduce", 2, 0), stage_progress("map", 4, 4)])
    assert work.told == [stage_progress("map", 4, 4), stage_progress("reduce", 2, 0)]
    assert (work.done, work.tasks_left) == (4, 2)


def test_a_stage_that_is_reported_and_placed_counts_once() -> None:
    work = Work()
    for _ in range(2):
        work.task_announced("map", KindAmounts(cpu=5.0))
    work.report([stage_progress("map", 6, 0), stage_progress("reduce", 3, 0, "map")])
    assert work.tasks_left == 9
    assert [stage.stage for stage in work.own] == ["reduce"]
    work.report([stage_progress("map", 1, 0), stage_progress("reduce", 3, 0, "map")])
    assert work.tasks_left == 2 + 3, "of the sent tasks at least that is left"
    work.task_ended("map", KindAmounts(cpu=5.0))
    assert work.left() == (5.0, 0.0, 0.0)
    assert not work.complete


def test_future_work_is_the_reported_less_the_announced() -> None:
    work = Work()
    for _ in range(2):
        work.task_announced("map", KindAmounts(cpu=5.0, disk=1.0))
    some = StageProgress(stage="map", tasks=4, usage=KindAmounts(cpu=20.0, disk=4.0))
    later = StageProgress(stage="reduce", tasks=3, after=["map"], usage=KindAmounts(cpu=6.0, network=6.0))
    work.report([some, later, StageProgress(stage="end", tasks=1, after=["reduce"], input_bytes=7)])
    assert work.to_come() == ((10.0 + 6.0 + 7.0, 2.0, 6.0), 2 + 3 + 1)
    work.task_ended("map", KindAmounts(cpu=5.0, disk=1.0))
    assert work.to_come() == ((10.0 + 6.0 + 7.0, 2.0, 6.0), 2 + 3 + 1), "it ended after that was told"
    less = StageProgress(stage="map", tasks=4, done=1, usage=KindAmounts(cpu=15.0, disk=3.0))
    work.report([less, later])
    assert work.to_come() == ((16.0, 2.0, 6.0), 5)
    assert (work.done, work.left()) == (1, (5.0, 1.0, 0.0))


def test_a_job_with_ever_new_stages_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("master.core.work.MOST_STAGES", 256)
    work = Work()
    for index in range(3 * 256):
        work.task_announced(f"s{index}", KindAmounts())
        work.attained("a", JobUse(job="j", service_s=index + 1.0))
        work.task_ended(f"s{index}", KindAmounts())
    assert len(work.tallies) == 256
    assert list(work.service) == [f"s{index}" for index in range(256, 3 * 256)], "the oldest ones are forgotten"
    work.report([stage_progress("s0", 1, 0)])
    assert len(work.service) == 256, "a stage that is neither reported nor counted is over"


def test_history_means_the_last_and_all_before_and_is_bounded() -> None:
    history = History(most=2)
    history.learn(("u", "a"), Needed((8.0, 0.0, 0.0), 10.0))
    history.learn(("u", "a"), Needed((4.0, 0.0, 0.0), 20.0))
    assert history.of(("u", "a")) == Needed((6.0, 0.0, 0.0), 15.0)
    assert history.of(("v", "a")) is None, "the same name of another user is another job"
    for name in "bcd":
        history.learn(("u", name), Needed())
    assert [history.of(("u", name)) is not None for name in "abcd"] == [False, False, True, True]


def test_memory_is_the_smaller_of_its_part_of_the_job_and_of_its_input() -> None:
    estimates = MemoryEstimates()
    job = Job("j", "a", 1, name="n", user="u", memory_bytes=1000)
    ready = [
        TaskRequest(task=name, usage=KindAmounts(cpu=cpu, disk=100.0), memory_bytes=memory)
        for name, cpu, memory in (("t", 300.0, 0), ("u", 100.0, 0), ("v", 100.0, 7), ("w", 0.0, 0))
    ]
    # I = 300, 100, 100 and (no CPU monotask) 100 of 600; r·M = 500, 166, …; 2·I = 600, 200, …
    assert [request.memory_bytes for request in estimates.stated(job, "s", ready)] == [500, 166, 7, 166]
    job.memory_bytes = 0
    assert [request.memory_bytes for request in estimates.stated(job, "s", ready)] == [600, 200, 7, 200]


def test_the_peak_of_a_recurring_stage_is_remembered() -> None:
    estimates = MemoryEstimates(most=2)
    job = Job("j", "a", 1, name="n", user="u")
    command = TaskRequest(task="t", usage=KindAmounts(cpu=100.0), command=ContainerSpec(argv=("true",)))
    assert estimates.stated(job, "s", [command]) == [command], "the needs of a program cannot be derived from its input"
    estimates.learn(job, "s", command.usage, 250)
    estimates.learn(job, "s", command.usage, 150)
    assert estimates.stated(job, "s", [command])[0].memory_bytes == 250
    for stage in ("x", "y"):
        estimates.learn(job, stage, command.usage, 10)
    assert estimates.stated(job, "s", [command]) == [command], "forgotten"


@pytest.mark.parametrize("usage", [KindAmounts(), KindAmounts(cpu=5.0)])
def test_nothing_is_learned_from_nothing(usage: KindAmounts) -> None:
    estimates = MemoryEstimates()
    job = Job("j", "a", 1, name="n", user="u")
    estimates.learn(job, "s", usage, 0 if usage.cpu else 50)
    request = TaskRequest(task="t", usage=usage, command=ContainerSpec(argv=("true",)))
    assert estimates.stated(job, "s", [request]) == [request]


def test_a_node_that_reports_again_after_its_last_report_was_not_complete() -> None:
    work = Work()
    work.attained("a", JobUse(job="j", service_s=5.0, last=True))
    assert work.told_last == {"a"}
    work.attained("a", JobUse(job="j", service_s=1.0, running=1))
    assert (work.told_last, work.service_s) == (set(), 6.0)


def test_a_node_that_reports_less_by_a_rounding_has_not_started_anew() -> None:
    work = Work()
    work.attained("a", JobUse(job="j", service_s=5.8))
    work.attained("a", JobUse(job="j", service_s=5.8 - 1e-12, last=True))
    assert work.service_s == 5.8
