"""The same jobs by turns: their users, the options of a way of Penstock, and the report on the turns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.mix import turns
from bench.mix.jobs import Cost
from bench.mix.kinds import KINDS
from bench.mix.ways import plain
from demo.node import Node

COSTS = {kind.name: Cost(1.0, 2.0, 1.0, 2.0) for kind in KINDS}
UP = Node(Path("/nowhere/agent.sock"), "", {})


def test_the_jobs_are_of_different_users_and_have_their_costs() -> None:
    plan = turns.plan_of(COSTS)
    assert all(one.user != other.user for one, other in zip(plan.jobs, plan.jobs[1:], strict=False))
    assert all(job.cpu_s == job.alone_s == 1.0 + 2.0 * job.units for job in plan.jobs)
    assert len({job.application for job in plan.jobs}) == len(plan.jobs)


@pytest.mark.parametrize(("way", "order"), [("penstock", "gittins"), ("penstock-las_mq", "las_mq")])
def test_the_order_is_the_default_one_if_the_way_names_none(
    way: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: asked.append(argv[-1]))
    with turns.ready(way, UP):
        assert asked == [f"ordering={order}"]


def test_a_job_that_the_kernel_starts_requests_nothing_from_penstock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    with turns.ready("plain", UP) as start:
        assert start is plain


def test_the_table_has_each_way_against_each_other_one_in_the_same_turn() -> None:
    told = turns.table({"plain": [{"mean_s": 4.0}, {"mean_s": 8.0}], "penstock": [{"mean_s": 3.0}, {"mean_s": 6.0}]})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]
    assert rows[0] == ["figure", "plain", "penstock"]
    assert ["mean job, s", "6 ± 2", "4.5 ± 1.5"] in rows
    assert ["mean job, to plain", "+0.0 ± 0.0 %", "-25.0 ± 0.0 %"] in rows  # however fast the host was in a turn
    assert ["mean job, to penstock", "+33.3 ± 0.0 %", "+0.0 ± 0.0 %"] in rows


def test_a_single_turn_has_no_standard_error() -> None:
    with pytest.raises(SystemExit) as ended:
        turns.main(["--turns", "1"])
    assert ended.value.code == 2
