"""Jobs cancelled at any moment, among all other events of a cluster: nothing is left of them, nothing of others is
lost, and the reports about them add up.
"""

from __future__ import annotations

import sys

from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule

from master.core import events as e
from penstock.model import EndedBy
from penstock.wire import master_api as api
from penstock.wire.jobs_api import ListJobs
from tests.property.scheduling_agents import EXIT, MIB, NODES
from tests.property.scheduling_master import nodes, pick
from tests.property.test_scheduling_cluster import World


class Cancellations(World):
    """The world of the scheduling core, with users who cancel."""

    def start_master(self) -> None:
        super().start_master()
        #: Jobs whose cancellation some master, and this one, received. A master knows the ended jobs of its
        #: predecessor.
        self.ever_cancelled: set[str] = getattr(self, "ever_cancelled", set())
        self.cancelled: set[str] = {past.view.job for past in self.cluster.past if past.cancelled_by}

    def check(self, node: str, decision: api.AnyDecision, admitted: set[str]) -> None:
        super().check(node, decision, admitted)
        if isinstance(decision, api.Assign | api.AdmitJob | api.Promote | api.TellWaiting):
            assert decision.job not in self.cancelled, f"{decision.job} was cancelled, and gets {decision}"
        if isinstance(decision, api.CancelJob):
            assert decision.job in self.ever_cancelled
        if isinstance(decision, api.TellEnded) and decision.ended.by is EndedBy.CANCELLED:
            by_us = decision.ended.reason.startswith("cancelled by ")
            assert not by_us or decision.job in self.ever_cancelled, "a task of another job was stopped"

    @precondition(lambda self: any(job.described for job in self.cluster.jobs.values()))
    @rule(at=pick)
    def cancel_job(self, at: int) -> None:
        known = [name for name, job in self.cluster.jobs.items() if job.described]
        job = known[at % len(known)]
        self.cancelled.add(job)
        self.ever_cancelled.add(job)
        self.serve(e.CancelRequested(job, "ann"))
        view = self.cluster.listing.find(job)
        assert view is not None
        assert (view.state, view.why, view.tasks_ready) == ("cancelling", "cancelled by ann", 0)

    @precondition(lambda self: self.cancelled)
    @rule(at=pick)
    def cancel_again(self, at: int) -> None:
        """Cancel the job again from another user, whatever its state."""
        job = sorted(self.cancelled)[at % len(self.cancelled)]
        before = self.cluster.listing.find(job)
        self.serve(e.CancelRequested(job, "bob"))
        after = self.cluster.listing.find(job)
        assert (before is None) == (after is None)
        assert after is None or after.why == "cancelled by ann"

    @rule(node=nodes)
    def load(self, node: str) -> None:
        """Send another heartbeat, so that more of a step's messages arrive."""
        self.heartbeat(node)
        self.to_master(node, 10**6)

    @invariant()
    def reports_add_up(self) -> None:
        if not hasattr(self, "cluster"):
            return
        views = {view.job: view for view in self.cluster.listing.listed(ListJobs(), None)}
        described = [job for job in self.cluster.jobs.values() if job.described]
        assert sum(view.tasks_ready for view in views.values()) == sum(job.ready_count for job in described)
        for job in described:
            view = views[job.job]
            assert view.tasks_ready + view.tasks_running == len(job.tasks)
            assert view.stages_done <= view.stages
            assert (view.state == "cancelling") == (job.job in self.cancelled)
        for past in self.cluster.past:
            known = self.cluster.jobs.get(past.view.job)
            assert known is None or not known.described, "it is over, and is there"
            assert (past.view.outcome == "cancelled") >= (past.view.job in self.cancelled)
            assert past.view.tasks_running == past.view.tasks_ready == 0

    def teardown(self) -> None:
        super().teardown()
        if not hasattr(self, "cluster") or sys.exc_info()[0] is not None:
            return
        for job in self.cancelled:
            assert job not in self.cluster.jobs, f"{job} was cancelled, and is in the books"
            view = self.cluster.listing.find(job)
            assert view is not None
            assert (view.state, view.outcome) == ("ended", "cancelled")
            for name in NODES:
                agent = self.agents[name]
                assert job not in agent.jobs
                assert not any(key[0] == job for key in (*agent.held, *agent.stopping))


TestCancellations = Cancellations.TestCase
TestCancellations.settings = settings(max_examples=15, stateful_step_count=50, report_multiple_bugs=False)


def test_a_job_that_was_cancelled_and_lost_with_its_host_is_cancelled_by_the_next_master() -> None:
    """An example that was found: the next master knows it, as it is among those that are over."""
    world = Cancellations()
    world.begin(ordering="fifo", sizes=[1, 1, 1], limits={})
    world.master_restarts()
    world.link("b")
    world.cancel_job(0)
    world.round(6.0)
    world.master_restarts()
    assert world.cancelled
    world.link("b")
    world.reports_add_up()
    world.teardown()


def test_a_node_that_registers_with_an_unreceived_end_reports_the_holdings_of_others() -> None:
    """An example that was found: until the next heartbeat the books had 0 bytes of others."""
    world = Cancellations()
    world.begin(ordering="ejf", sizes=[8, 8, 8], limits={})
    world.place(0, 1, 100, (1, 0, 0), command=True, opportunistic=False, where=("a",))
    world.exchange(True, "", 3, "", 0.0)
    assert [held.request.memory_bytes for held in world.agents["a"].held.values()] == [100 * MIB]
    world.others_run("a", 60)
    world.exchange(True, "", 3, "", 0.0)
    world.unlink("a")
    world.task_ends(0, EXIT, elsewhere=False)
    world.link("a")
    assert world.cluster.nodes["a"].external_memory_bytes == 60 * MIB
    world.to_master("a", 10)
    assert world.cluster.nodes["a"].external_memory_bytes == 60 * MIB
    assert not world.cluster.nodes["a"].held
    world.teardown()
