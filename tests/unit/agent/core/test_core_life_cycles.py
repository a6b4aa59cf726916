"""The life cycles of jobs and tasks: a record follows its table, and an event without a row is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from agent.core import events as e
from agent.core import life_cycles
from agent.core.plans import Course
from agent.core.records import TaskHere
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.model.life_cycle import TransitionError
from tests.fakes.node_bed import NodeBed


@pytest.mark.parametrize(
    ("table", "start", "states"),
    [
        (life_cycles.JOB, "waiting", get_args(life_cycles.JobState)),
        (life_cycles.TASK, "asked for", get_args(life_cycles.TaskState)),
        (life_cycles.HELD, "held", get_args(life_cycles.HeldState)),
    ],
)
def test_every_state_is_reached_and_may_end(
    table: Mapping[tuple[str, str], str], start: str, states: tuple[str, ...]
) -> None:
    assert {start, *table.values()} == set(states)
    *others, last = states
    assert all(table[state, last] == last for state in others)


def test_a_job_that_is_over_is_not_admitted() -> None:
    bed = NodeBed()
    bed.open()
    job = bed.node.jobs[bed.register()]
    assert job.state == "waiting" and job.admit() and not job.admit()
    bed.send(e.SessionClosed(1))
    with pytest.raises(TransitionError, match="'admitted' cannot follow the state 'over'"):
        job.admit()
    assert job.state == "over"


def test_a_task_ends_once_at_its_origin() -> None:
    task = TaskHere("s", TaskRequest(task="t", usage=KindAmounts()), False)
    task.place("n1")
    task.end(Ended(by=EndedBy.EXIT, exit_status=0), "n2")
    assert (task.node, task.state) == ("n1", "ended")
    with pytest.raises(TransitionError, match="'ended' cannot follow the state 'ended'"):
        task.end(Ended(by=EndedBy.LOST))
    with pytest.raises(TransitionError):
        task.place("n3")
    assert task.ended is not None and task.ended.by is EndedBy.EXIT and task.node == "n1"


def test_an_executor_is_observed_late_once_in_each_stage() -> None:
    late = Course().after("wants no more").after("overdue").after("corrected")
    assert late.state == "observed" and late.next_stage(1, 9.0).state == "on plan"
    for event in ("overdue", "wants no more"):
        with pytest.raises(TransitionError, match=f"'{event}' cannot follow the state 'observed'"):
            late.after(event)
    with pytest.raises(TransitionError):
        Course(state="sated").after("corrected")
    assert {"on plan", *life_cycles.EXECUTOR.values()} == set(get_args(life_cycles.ExecutorState))


def test_a_command_that_has_a_container_gets_no_other() -> None:
    bed = NodeBed()
    bed.command("t")
    held = bed.node.held.by_key[bed.JOB, "t"]
    first = held.container
    assert first and held.state == "started"
    with pytest.raises(TransitionError, match="'started' cannot follow the state 'started'"):
        bed.node.held.start(held, "c-again")
    assert held.container == first


def test_a_command_journaled_by_an_agent_that_kept_no_states_is_found_running() -> None:
    bed = NodeBed()
    bed.command("t")
    container = bed.container("t")
    bed.begin(container)
    (held,) = bed.of("tasks")
    held.state = "held"  # the default
    bed.restart(container, tasks=[held])
    assert bed.node.held.by_key[bed.JOB, "t"].state == "started"
