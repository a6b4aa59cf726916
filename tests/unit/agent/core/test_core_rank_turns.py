"""Turns of starving jobs: who has one, and from when."""

from __future__ import annotations

from agent.core.rank_turns import TURNS_APART, StarvingTurns

JOBS = {"": ["a", "b", "c"]}


def given(turns: StarvingTurns, now: float, jobs: dict[str, list[str]] = JOBS) -> str:
    return turns.give(jobs, now, wait_max_s=3.0, tick_s=1.0)[""]


def test_the_job_that_has_waited_longest_is_first_for_one_sample() -> None:
    turns = StarvingTurns()
    assert [given(turns, now) for now in (0.0, 1.0, 2.0)] == ["", "", ""]
    assert given(turns, 3.0) == "b"
    assert given(turns, 3.5) == "b", "a ranking between two samples ends no turn"
    assert given(turns, 4.0) == ""


def test_the_next_turn_comes_ten_samples_later_and_is_that_of_another_job() -> None:
    turns = StarvingTurns()
    got = [given(turns, float(now)) for now in range(3 + 2 * TURNS_APART)]
    assert [(now, job) for now, job in enumerate(got) if job] == [(3, "b"), (3 + TURNS_APART, "c")]


def test_a_job_that_is_first_now_takes_no_turn_from_one_that_has_waited_as_long() -> None:
    turns = StarvingTurns()
    given(turns, 0.0)
    assert given(turns, 3.0, {"": ["b", "c", "a"]}) == "c"


def test_an_only_job_has_no_turn() -> None:
    turns = StarvingTurns()
    assert [given(turns, float(now), {"": ["a"]}) for now in range(9)] == [""] * 9
