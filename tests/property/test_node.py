"""The node's one interface under random events: accepted work ends once, promises are kept, nothing is left over."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from agent.core import events as e
from agent.core.confinement import WEIGHT_PER_CORE
from agent.core.records import ContainerState, journal_key
from agent.core.snapshot import Snapshot
from penstock.model import ResourceKind
from penstock.wire import master_api
from tests.property.node_books import MEMORY_BYTES
from tests.property.node_callers import Callers
from tests.property.node_processes import Processes


class NodeMachine(Callers, Processes):
    """Plays kernel, launcher, frameworks and master around one node, and keeps the books."""

    @invariant()
    def promises_fit_the_node(self) -> None:
        ledger = self.node.ledger()
        assert ledger.promised_memory_bytes <= MEMORY_BYTES, "memory is over-committed"
        assert ledger.promised_cores <= 2 + 1e-6

    @invariant()
    def every_container_is_live_or_ended(self) -> None:
        live = set(self.node.containers.live)
        assert live == self.starting | self.processes
        assert live | set(self.ended) == self.launched
        assert not live & set(self.ended)
        kept = set(self.node.containers.ended.by_id)
        assert {key for room, key in self.journal if room == "containers"} == live | kept

    @invariant()
    def a_lent_process_belongs_to_a_job_or_is_given_back(self) -> None:
        for container, record in self.node.containers.live.items():
            if record.borrowed and record.state is ContainerState.RUNNING:
                assert record.job in self.node.jobs or container in self.giving

    @invariant()
    def only_paused_containers_are_frozen(self) -> None:
        live = self.node.containers.live
        paused = {c for c, record in live.items() if record.state is ContainerState.PAUSED}
        assert paused == self.frozen - self.doomed
        assert all(live[container].opportunistic for container in paused), "a regular container was paused"

    @invariant()
    def the_kernel_got_every_limit(self) -> None:
        for container, record in self.node.containers.live.items():
            if record.state in (ContainerState.RUNNING, ContainerState.PAUSED):
                assert self.confined[container] == record.confine().confinement

    @invariant()
    def ranked_jobs_weigh_no_more_than_the_cores(self) -> None:
        ranked = [standing.shared_weight for standing in self.node.ranks.standings.values()]
        several = len(self.node.containers.live)  # each weighs 1 at least
        assert sum(ranked) <= WEIGHT_PER_CORE * 2 + several

    @invariant()
    def memory_is_watched_while_a_container_could_give_it_back(self) -> None:
        assert self.watched == any(record.opportunistic for record in self.node.containers.live.values())

    @invariant()
    def the_alarm_is_set_for_waiting_work(self) -> None:
        times = [at for at in (self.node.preemption.policy.due(), self.node.elasticity.due(self.now)) if at is not None]
        assert not times or (self.alarm is not None and self.alarm <= min(times) + 1e-9)

    @invariant()
    def every_assigned_command_is_held_or_reported(self) -> None:
        held = {key for key, task in self.node.held.by_key.items() if task.request.command is not None}
        assert not held & self.reported
        kept = {journal_key(*key) for key in self.unacknowledged | self.node.held.by_key.keys()}
        assert {key for room, key in self.journal if room == "tasks"} == kept

    @invariant()
    def a_task_is_started_with_its_container_and_waits_for_slack_alone(self) -> None:
        for key, held in self.node.held.by_key.items():
            assert (held.state == "started") == bool(held.container)
            assert (held.state == "waiting") == (key in self.node.held.waiting)

    @invariant()
    def jobs_and_their_tasks_are_in_the_state_that_was_told(self) -> None:
        for job in self.node.jobs.values():
            assert (job.state == "admitted") == job.record.admitted
            for task in job.tasks.values():
                assert (task.state == "ended") == (task.ended is not None)
                assert task.state == "ended" or (task.state == "placed") == bool(task.node)

    @invariant()
    def who_is_drained_keeps_nothing_that_others_could_do(self) -> None:
        for held in self.node.held if self.node.drain.draining is not None else ():
            if held.request.command is not None:
                going = self.node.containers.live[held.container].state is ContainerState.STOPPING
                assert going or not held.opportunistic

    @invariant()
    def no_work_waits_beside_an_idle_slot(self) -> None:
        for kind in ResourceKind:
            counts = self.node.queues.counts(kind, self.now)
            assert not counts.queued or counts.running >= counts.slots - counts.withheld

    @invariant()
    def grants_are_only_to_the_living(self) -> None:
        assert {session for session, _, _ in self.granted} <= self.sessions

    def teardown(self) -> None:
        """When all leave and everything ends, nothing is left."""
        self.drain(False)
        for session in sorted(self.sessions):
            self.send(e.SessionClosed(session))
        self.now += 100
        self.send(e.Sampled(Snapshot(self.now, 1.0), self.now))
        for job in sorted({job for job, _ in self.assigned}):
            for held in self.node.held.of_job(job):
                self.decide(master_api.Withdraw(job=job, task=held.task, why="the end"))
        while self.starting or self.processes:
            for container in sorted(self.starting):
                self.starting.discard(container)
                self.send(e.ContainerNotStarted(container, "too late"))
            for container in sorted(self.processes):
                self.processes.discard(container)
                self.frozen.discard(container)
                self.orphans.discard(container)
                self.send(e.ContainerExited(container, 0, None, 0.0, 0, 0, self.now))
        for key in sorted(self.unacknowledged):
            self.acknowledge(key)
        self.now += 100
        self.send(e.Sampled(Snapshot(self.now, 1.0), self.now))  # nothing waits any longer
        assert not self.node.held.by_key and not self.node.jobs and not self.node.containers.live
        gone = [key for key in self.journal if key[0] not in {"containers", "cancelled"}]
        assert not gone, "the journal keeps ended records"
        idle = self.node.queues.idle()
        assert (idle.cpu, idle.disk, idle.network) == (2, 1, 2), "a slot leaked"


TestNode = NodeMachine.TestCase
TestNode.settings = settings(max_examples=50, stateful_step_count=50, suppress_health_check=list(HealthCheck))
