"""The work that the overhead bench measures is really done: executors are placed, and the reports of them are taken."""

from __future__ import annotations

from bench._executors import Master


def test_the_executors_of_which_is_reported_are_those_that_were_placed() -> None:
    master = Master(nodes=2, executors=3)
    assert sum(map(len, master.held.values())) == 6
    assert len(master.heartbeats(6)) == 6
    assert len(master.cluster.executors.usage) == 6
    assert len(master.drivers(4)) == 4
    assert [len(job.stages_ended) for job in master.cluster.jobs.values()] == [2, 2]


def test_without_executors_nothing_is_reported_of_any() -> None:
    master = Master(nodes=2, executors=0)
    master.heartbeats(6)
    assert not master.held and len(master.cluster.executors.usage) == 0
