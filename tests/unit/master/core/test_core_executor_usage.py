"""Nodes' reports of executors become runs, once and whole or not at all; reports of stages and stuck executors are
passed on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from master.core import events as e
from master.core.instructions import Explain
from master.prediction import Settings
from master.prediction.runs import LEAST_PART
from penstock.model import Capacity, Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from tests.unit.master.cluster_bed import EXIT, job_state, placed_task
from tests.unit.master.core.executor_bed import MIB, ExecutorBed, executor, profile

FLAT = profile((1, 100), (1, 100))


def bed_with(*names: str, nodes: tuple[str, ...] = ("a",), **more: Any) -> ExecutorBed:
    bed = ExecutorBed(*nodes, forecasts={"u/app": FLAT})
    bed.executors(*(executor(name, **more) for name in names))
    bed.round()
    return bed


def use(first: int, *cores: int, task: str = "e0", **more: Any) -> api.ExecutorUse:
    slots = [(amount, 10, 20, 30) for amount in cores]
    return api.ExecutorUse(job="j", task=task, **{"slot_s": 3.0, "first": first, "mean": slots, "peak": slots} | more)


def ends(bed: ExecutorBed, ended: Ended = EXIT, task: str = "e0", node: str = "a") -> None:
    bed.serve(e.Received(node, api.CommandEnded(job="j", task=task, origin="a", ended=ended)))


def not_kept(bed: ExecutorBed) -> list[object]:
    return [each.facts["why"] for each in bed.other if isinstance(each, Explain) and each.what == "run not kept"]


def test_parts_in_order_are_one_run_that_is_kept_when_it_ended_well() -> None:
    bed = bed_with("e0", run="r1", input_bytes=7)
    bed.uses("a", use(0, 1000, 2000))
    bed.uses("a", use(2, 500, stages=[1, 3], ended=True))
    assert bed.stored == []
    ends(bed)
    (stored,) = bed.stored
    assert (stored.application, stored.run, stored.slot_s) == ("u/app", "r1", 3.0)
    assert stored.usage.settings == Settings(7, 1.0, 100 * MIB)
    assert stored.usage.stages == (1, 3)
    assert stored.usage.mean.tolist() == [[1.0, 2.0, 0.5], [10240.0] * 3, [20480.0] * 3, [30.0 * MIB] * 3]


def test_a_run_ends_within_its_last_slot_and_of_an_older_agent_with_it() -> None:
    for more, last_part in (({"last_part": 0.5}, 0.5), ({"last_part": 1e-9}, LEAST_PART), ({}, 1.0)):
        bed = bed_with("e0")
        bed.uses("a", use(0, 1000), use(1, 2000, ended=True, **more))
        ends(bed)
        (stored,) = bed.stored
        assert stored.usage.last_part == last_part


def test_slots_that_were_not_measured_are_time_and_no_use() -> None:
    bed = bed_with("e0")
    bed.uses("a", use(0, 1000), use(1, mean=[None, None], peak=[None, None]), use(3, 500, ended=True))
    ends(bed)
    (stored,) = bed.stored
    assert np.array_equal(stored.usage.mean[0], [1.0, np.nan, np.nan, 0.5], equal_nan=True)
    assert stored.usage.measured.tolist() == [True, False, False, True]


def test_the_end_may_be_known_before_its_last_part_also_when_its_job_is_over() -> None:
    bed = bed_with("e0")
    bed.uses("a", use(0, 1000))
    ends(bed)
    bed.serve(e.Received("a", api.JobEnded(job="j")))
    assert bed.stored == []
    bed.uses("a", use(1, 2000, ended=True))
    (stored,) = bed.stored
    assert stored.run == "j"  # an executor that names no run is in that of its job
    assert np.array_equal(stored.usage.mean[0], [1.0, 2.0])


def test_after_a_reconnection_all_comes_again_and_counts_once() -> None:
    bed = bed_with("e0")
    bed.uses("a", use(0, 1000, 2000))
    bed.uses("a", use(0, 1000), use(1, 2000, 3000))
    bed.uses("a", use(0, 1500, 3000, slot_s=6.0), use(2, 7, slot_s=6.0, ended=True))
    ends(bed)
    (stored,) = bed.stored
    assert stored.slot_s == 6.0
    assert stored.usage.mean[0].tolist() == [1.5, 3.0, 0.007]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([use(0, 1), use(2, 1, ended=True)], "slots 1 to 2 were not reported"),
        ([use(3, ended=True)], "nothing was reported"),
        ([use(0, 1), use(1, 1, slot_s=6.0, ended=True)], "slots 1 to 1 were not reported"),
        ([use(0, ended=True)], "it ended before its first slot did"),
        ([use(0, 1, peak=[], ended=True)], "1 mean and 0 peaks from slot 0 on"),
        ([use(0, 1, peak=[None], ended=True)], "from slot 0 on a slot has a mean and no peak, or a peak and no mean"),
        ([use(0, mean=[None] * 2, peak=[None] * 2, ended=True)], "none of its slots was measured"),
    ],
)
def test_half_a_run_is_none_and_the_reason_is_reported(parts: list[api.ExecutorUse], why: str) -> None:
    bed = bed_with("e0")
    bed.uses("a", *parts)
    ends(bed)
    assert bed.stored == []
    assert not_kept(bed) == [why]
    assert not len(bed.cluster.executors.usage)


@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        (Ended(by=EndedBy.EXIT, exit_status=1), 0),
        (Ended(by=EndedBy.OOM), 0),
        (Ended(by=EndedBy.CANCELLED, exit_status=143), 0),
        (Ended(by=EndedBy.SIGNAL, exit_status=143), 1),
    ],
)
def test_only_executors_that_ended_well_or_on_request_are_learnt_from(ended: Ended, kept: int) -> None:
    bed = bed_with("e0")
    bed.uses("a", use(0, 1, ended=True))
    ends(bed, ended)
    assert len(bed.stored) == kept
    assert not len(bed.cluster.executors.usage)


def test_of_one_that_had_to_begin_again_elsewhere_only_the_second_life_counts() -> None:
    bed = bed_with("e0", nodes=("a", "b"))
    assert [node for node, _ in bed.decisions_of(api.Assign)] == ["a"]
    bed.uses("a", use(0, 1000, 1000))
    bed.serve(e.Received("a", api.CommandEnded(job="j", task="e0", origin="a", ended=Ended(by=EndedBy.PREEMPTED))))
    bed.beats("a", [(0, 0)])
    assert bed.round() == [("e0", "b")]
    bed.uses("b", use(0, 2000, ended=True))
    ends(bed, node="b")
    (stored,) = bed.stored
    assert stored.usage.mean[0].tolist() == [2.0]


def test_reports_of_unknown_executors_are_ignored() -> None:
    bed = bed_with("e0")
    bed.uses(
        "a", use(0, 1, task="other", ended=True), api.ExecutorUse(job="nobody's", task="e", slot_s=1.0, ended=True)
    )
    assert not len(bed.cluster.executors.usage)


def test_after_a_restart_of_the_master_the_agent_reports_all_and_the_run_is_kept() -> None:
    bed = ExecutorBed("a", forecasts={"u/app": FLAT})
    held = placed_task("e0", "k", memory_bytes=100 * MIB)
    state = job_state("k", admitted=True)
    waits = api.AwaitedTask(job="k", stage="s", request=executor("e0"), node="a")
    capacity = Capacity(cores=4, memory_bytes=1000 * MIB)
    bed.numbers.clear()
    bed.node("a", capacity=capacity, jobs=[state], placed=[held], awaited=[waits])
    assert bed.cluster.nodes["a"].held["k", "e0"].executor
    bed.uses("a", api.ExecutorUse(job="k", task="e0", slot_s=3.0, mean=[(1, 2, 3, 4)], peak=[(1, 2, 3, 4)], ended=True))
    bed.serve(e.Received("a", api.CommandEnded(job="k", task="e0", origin="a", ended=EXIT)))
    assert [stored.run for stored in bed.stored] == ["k"]


# ---------------------------------------------------------------- stages


def progress(bed: ExecutorBed, *stages: tuple[str, int, int]) -> list[tuple[str, int]]:
    told = [StageProgress(stage=name, tasks=tasks, done=done) for name, tasks, done in stages]
    decided = bed.serve(e.Received("a", Progress(job="j", stages=told)))
    return [(node, decision.ended) for node, decision in decided if isinstance(decision, api.TellStages)]


def test_the_nodes_of_a_jobs_executors_get_the_number_of_its_ended_stages() -> None:
    bed = bed_with("e0", "e1", "e2", "e3", nodes=("a", "b", "c"), cores=2.0)
    nodes = sorted({node for node, _ in bed.decisions_of(api.Assign)})
    assert progress(bed, ("s0", 4, 1), ("s1", 0, 0)) == []
    assert sorted(progress(bed, ("s0", 4, 4), ("s1", 2, 1))) == [(node, 1) for node in nodes]
    assert progress(bed, ("s0", 4, 4), ("s1", 2, 1)) == []
    assert sorted(progress(bed, ("s1", 2, 2), ("s2", 2, 2))) == [(node, 3) for node in nodes]
    assert progress(bed, ("s0", 5, 5)) == []  # once, despite later reports


def test_a_node_gets_the_count_before_an_executor_that_comes_later_and_when_it_is_back() -> None:
    bed = bed_with("e0")
    progress(bed, ("s0", 1, 1))
    bed.executors(executor("e1"))
    before = len(bed.sent)
    bed.round()
    kinds = [type(decision) for node, decision in bed.sent[before:] if node == "a"]
    assert kinds[:2] == [api.TellStages, api.Assign]
    waits = api.AwaitedTask(job="j", stage="s", request=executor("e0"), node="a")
    before = len(bed.sent)
    bed.node("a", jobs=[job_state("j", admitted=True)], placed=[placed_task("e0", memory_bytes=1)], awaited=[waits])
    assert [d.ended for _, d in bed.sent[before:] if isinstance(d, api.TellStages)] == [1]


# ---------------------------------------------------------------- task rescheduling


def test_a_stuck_executor_gets_the_executor_of_its_run_with_the_most_room_as_helper_once() -> None:
    bed = ExecutorBed("a", "b", "c", forecasts={"u/app": FLAT})
    bed.job("b", "k")
    bed.executors(executor("e0", run="r", nodes=("a",)), executor("e1", run="r", nodes=("b",)))
    bed.executors(executor("e2", run="r", nodes=("c",)), job="k", origin="b")
    bed.executors(executor("other", run="q", nodes=("c",)))
    assert len(bed.round()) == 4
    bed.beats("b", [(1, 100)])
    bed.beats("c", [(2, 500)])
    bed.uses("a", use(0, 1, stuck=True, behind=1.4))
    bed.uses("a", use(1, 1, stuck=True, behind=1.5))
    told = [(node, each.task, each.helper, each.node) for node, each in bed.decisions_of(api.TellStuck)]
    assert told == [("a", "e0", "e2", "c")]
    bed.beats("b", [(4, 900)])
    bed.uses("a", use(2, 1), use(3, 1, stuck=True, behind=1.2))
    assert [each.helper for _, each in bed.decisions_of(api.TellStuck)] == ["e2", "e1"]


def test_without_another_executor_there_is_no_helper() -> None:
    bed = bed_with("e0")
    bed.uses("a", use(0, 1, stuck=True, behind=1.4))
    assert bed.decisions_of(api.TellStuck) == []
    assert any(isinstance(each, Explain) and each.what == "executor stuck" for each in bed.other)
