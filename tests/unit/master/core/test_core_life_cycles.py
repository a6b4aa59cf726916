"""The life cycles: a record follows its table, and an event without a row is an error that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from master.core import life_cycles
from master.core.job import Job, Task
from master.core.node import Held, Node
from penstock.model import KindAmounts
from penstock.model.life_cycle import TransitionError, next_state


@pytest.mark.parametrize(
    ("table", "start", "final"),
    [
        (life_cycles.NODE, "expected", {"lost"}),
        (life_cycles.JOB, "expected", {"over"}),
        (life_cycles.TASK, "ready", {"ended"}),
        (life_cycles.COPY, "new", {"released"}),
    ],
)
def test_every_state_is_reached_and_only_the_last_one_is_never_left(
    table: Mapping[tuple[str, str], str], start: str, final: set[str]
) -> None:
    states = {start} | {state for state, _ in table} | set(table.values())
    reached = {start}
    while more := {after for (state, _), after in table.items() if state in reached} - reached:
        reached |= more
    assert reached == states
    assert states - {state for state, _ in table} == final


def test_an_event_without_a_row_is_named_with_the_state() -> None:
    with pytest.raises(TransitionError, match="'requeued' cannot follow the state 'ready'"):
        next_state(life_cycles.TASK, "ready", "requeued")


def test_a_step_without_a_row_changes_nothing() -> None:
    task, job, node = Task("j", "t", "s", False, None), Job("j", "n1", 1), Node("n1", away_since=0.0)
    task.place("n1", "there is room", on_slack=False)
    task.end()
    for again in (task.end, lambda: job.admit(1.0), lambda: node.connection_lost(1.0)):
        with pytest.raises(TransitionError):
            again()
    assert (job.admitted, job.admitted_at) == (False, None), "it has no description yet"


def test_a_copy_withdrawn_before_the_answer_to_its_proposal_is_leaving_after_it() -> None:
    held = Held("j", "t", KindAmounts(), 0, opportunistic=False, command=False)
    held.propose(1, queued=False)
    with pytest.raises(TransitionError, match="'proposed' cannot follow the state 'proposed'"):
        held.propose(2, queued=False)
    held.step("withdrawn")
    assert (held.accepted, held.leaving, held.assigned_in) == (False, True, 1)
    held.step("accepted")
    assert (held.accepted, held.leaving) == (True, True)
    with pytest.raises(TransitionError):
        held.step("withdrawn")
