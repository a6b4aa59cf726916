"""Opportunistic work, message by message: slack, promotion, slots, preemption."""

from __future__ import annotations

import math

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, MB, Bed, bed, command, load, task


def test_slack_is_t_alloc_of_the_capacity_less_use_and_launches() -> None:
    b = Bed(promotion=False)
    b.node("a", t_alloc=0.5, load=load(used_memory_bytes=100 * MB))  # slack: 400 MB, 2 cores
    b.job("a")
    b.ready("a", *[command(f"o{i}", 150) for i in range(4)], opportunistic="only")
    b.answering = False
    assert [name for name, _ in b.round()] == ["o0", "o1"], "the third would need 450 MB, and a third core"
    b.heartbeat("a", decided=0, used_memory_bytes=100 * MB)
    assert b.round() == [], "launches since the report count in full"
    b.serve(e.Answered("a", b.numbers["a"], []))
    b.heartbeat("a", used_memory_bytes=120 * MB, used_cores=1.5, idle=(2, 1, 2))
    assert b.round() == [("o2", "a")]


def test_a_node_that_tunes_its_t_alloc_reports_it_with_its_load() -> None:
    b = Bed(promotion=False)
    b.node("a", t_alloc=0.5, load=load(used_memory_bytes=100 * MB))
    b.job("a")
    b.ready("a", *[command(f"o{i}", 150) for i in range(4)], opportunistic="only")
    b.heartbeat("a", used_memory_bytes=100 * MB, t_alloc=0.3)  # slack: 200 MB, 1.2 cores
    assert [name for name, _ in b.round()] == ["o0"]
    b.heartbeat("a", used_memory_bytes=100 * MB, used_cores=1.0, t_alloc=math.nan)  # an agent's number is not trusted
    assert b.cluster.nodes["a"].t_alloc == 0.3


def test_opportunistic_work_is_promoted_where_it_is_before_regular_work_is_placed() -> None:
    b = bed("a")
    b.heartbeat("a", promised_memory_bytes=800 * MB, used_memory_bytes=100 * MB)
    b.job("a")
    b.ready("a", command("o", 300), opportunistic=True)
    assert b.round() == [("o", "a")]
    assert b.round() == []
    assert b.decisions_of(api.Promote) == [], "800 of 1000 MB are promised"
    b.ready("a", task("t", 400))
    b.heartbeat("a", promised_memory_bytes=400 * MB)
    assert b.round() == [], "600 MB are free, of which promotion takes 300 first"
    assert [(node, d.task) for node, d in b.decisions_of(api.Promote)] == [("a", "o")]
    b.serve(e.Received("a", api.CommandEnded(job="j", task="o", origin="a", ended=EXIT)))
    b.heartbeat("a", promised_memory_bytes=400 * MB)
    assert b.round() == [("t", "a")]


def test_a_refused_promotion_is_tried_again_after_a_report_and_ever_more_seldom() -> None:
    b = bed("a")
    b.job("a")
    b.heartbeat("a", promised_memory_bytes=800 * MB)
    b.ready("a", command("o", 300), opportunistic=True)
    b.round()
    b.answering = False
    tried = []
    for report in range(200):
        b.heartbeat("a")
        for _ in range(2):  # the second round has no other report
            before = len(b.decisions_of(api.Promote))
            b.round()
            if len(b.decisions_of(api.Promote)) > before:
                tried.append(report)
                refusal = api.Refusal(index=0, reason="network: 1 MiB/s asked, 0 B/s not promised yet")
                b.serve(e.Answered("a", b.numbers["a"], [refusal]))
    assert tried == [0, 1, 3, 7, 15, 31, 63, 127, 191]


def test_an_opportunistic_task_of_a_framework_waits_for_a_free_core() -> None:
    b = Bed()
    b.node("a", load=load(idle=(0, 1, 2)))
    b.job("a")
    b.ready("a", task("t"), command("c"), opportunistic="only")
    assert b.round() == [("c", "a")], "a command waits for no slot"
    b.heartbeat("a", idle=(1, 1, 2))
    assert b.round() == [("t", "a")]


PREEMPTED = Ended(by=EndedBy.PREEMPTED, reason="memory was wanted")


def test_preempted_work_that_was_cancelled_meanwhile_ends() -> None:
    b = bed("a")
    b.job("a")
    b.ready("a", command("t"), opportunistic=True)
    assert b.round() == [("t", "a")]
    b.serve(e.Received("a", api.TasksCancelled(job="j", tasks=["t"])))
    b.serve(e.Received("a", api.CommandEnded(job="j", task="t", origin="a", ended=PREEMPTED)))
    assert [(told.task, told.ended.by) for _, told in b.decisions_of(api.TellEnded)] == [("t", EndedBy.CANCELLED)]
    assert b.round() == []
