"""A master whose decisions are checked one by one and reach its agents, and the records that it writes for the next
master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.drains import DrainRequest
from master.core.finished_jobs import FinishedJob
from master.core.instructions import Hangup, Instruction, Keep, SendDecisions
from master.core.unlearnt_jobs import Unlearnt
from master.ordering import HandOrder
from penstock.model import Ended
from penstock.wire import master_api as api
from tests.property.scheduling_agents import NODES, Agent

nodes = st.sampled_from(NODES)
pick = st.integers(min_value=0, max_value=10**6)

T = TypeVar("T")


def keep(kept: dict[str, T], changed: Mapping[str, T | None]) -> None:
    """As a store does."""
    for name, one in changed.items():
        kept.pop(name, None)
        if one is not None:
            kept[name] = one


class CheckedMaster(RuleBasedStateMachine):
    """The master, its agents, and the rules for its decisions. A world defines how they begin."""

    settings: MasterSettings
    agents: dict[str, Agent]
    now: float
    #: The number in the name of the latest job or task.
    serial: int

    def __init__(self) -> None:
        super().__init__()
        #: Nodes that an operator has drained; every master remembers them.
        self.drained: set[str] = set()
        #: Records that are written for the next master.
        self.kept_drains: dict[str, DrainRequest] = {}
        self.kept_jobs: dict[str, FinishedJob] = {}
        self.kept_orders: dict[str, HandOrder] = {}
        #: Job → its user.
        self.users: dict[str, str] = {}
        #: Jobs whose size some master has learnt.
        self.taught: list[str] = []
        #: Tasks whose cancellation some master has received.
        self.cancelled_tasks: set[tuple[str, str]] = set()

    def start_master(self) -> None:
        self.cluster = Cluster(self.settings)
        self.watch_learning()
        self.known_version = dict.fromkeys(NODES, 0)
        self.log: list[tuple[e.Event, float]] = []
        self.said: list[list[Instruction]] = []
        #: Of the message that is being checked.
        self.decisions: Sequence[api.AnyDecision] = ()
        self.ends: dict[tuple[str, str], Ended] = {}
        self.serve(e.StateRestored(dict(self.kept_drains), list(self.kept_jobs.values()), (), dict(self.kept_orders)))

    def watch_learning(self) -> None:
        """Note the jobs that the master learns from."""
        unlearnt = self.cluster.unlearnt
        learn = unlearnt._learn

        def learns(over: Unlearnt) -> None:
            if over.teaches:
                assert over.job.job not in self.taught, f"{over.job.job} is counted twice"
                self.taught.append(over.job.job)
            learn(over)

        unlearnt._learn = learns  # type: ignore[method-assign]

    def serve(self, event: e.Event) -> None:
        if isinstance(event, e.Received) and isinstance(event.message, api.TasksCancelled):
            self.cancelled_tasks |= {(event.message.job, task) for task in event.message.tasks}
        admitted = {job.job for job in self.cluster.jobs.values() if job.admitted}
        self.log.append((event, self.now))
        instructions = self.cluster.handle(event, self.now)
        self.said.append(instructions)
        for instruction in instructions:
            match instruction:
                case SendDecisions(node, number, decisions):
                    agent = self.agents[node]
                    assert agent.linked, f"decisions for {node}, which is away"
                    assert number == len([i for i, _ in agent.inbox]) + agent.decided + 1
                    agent.inbox.append((instruction, self.known_version[node]))
                    self.decisions = decisions
                    for decision in decisions:
                        self.check(node, decision, admitted)
                case Hangup(node):
                    self.agents[node].unlink()
                case Keep(drains, jobs, _, orders):
                    keep(self.kept_drains, drains)
                    keep(self.kept_jobs, jobs)
                    keep(self.kept_orders, orders)

    def memory_free_bytes(self, node: str) -> int:
        """The memory that a node had for the tasks of a round's decisions, less what they have."""
        return self.cluster.nodes[node].memory_free_bytes()

    def check(self, node: str, decision: api.AnyDecision, admitted: set[str]) -> None:
        if isinstance(decision, api.Assign | api.Promote):
            assert node not in self.drained, f"{node} is drained, and is told {decision}"
        if isinstance(decision, api.Promote) or (isinstance(decision, api.Assign) and not decision.opportunistic):
            self.within_limits(node, decision)
        if isinstance(decision, api.Assign):
            assert (decision.job, decision.request.task) not in self.cancelled_tasks, "a cancelled task is placed again"
            if not decision.opportunistic:
                assert self.memory_free_bytes(node) >= 0, "the master over-commits a node"
                assert decision.job in admitted or self.cluster.jobs[decision.job].admitted
            nodes_wanted = decision.request.nodes
            assert not nodes_wanted or node in nodes_wanted
        if isinstance(decision, api.AdmitJob) and decision.job not in admitted:
            job = self.cluster.jobs[decision.job]
            total = self.cluster.admission.reservable_bytes()
            assert not job.memory_bytes or self.cluster.admission.reserved_bytes() <= total
            most = self.cluster.settings.user_max_jobs
            of_users = Counter(each.user for each in self.cluster.jobs.values() if each.admitted)
            assert not most or of_users[job.user] <= most
            for other in self.cluster.jobs.values():
                waiting = other.described and not other.admitted and not other.cancelled_by
                waiting = waiting and not (most and of_users[other.user] >= most)
                waits = waiting and other.memory_bytes <= total
                in_line = self.cluster.settings.ordering in ("fifo", "ejf")  # others admit in an order of their own
                overtaken = in_line and job.memory_bytes and other.submitted_at < job.submitted_at
                keeps_waiting = "starts no later" not in decision.why
                assert not (waits and overtaken and keeps_waiting), f"{job.job} overtook {other.job}"

    def within_limits(self, node: str, decision: api.Assign | api.Promote) -> None:
        """Check that with this promise no user holds more than the limit of each resource that it takes."""
        task = decision.request.task if isinstance(decision, api.Assign) else decision.task
        user, settings = self.users[decision.job], self.cluster.settings
        books = [held for each in self.cluster.nodes.values() for held in each.held.values() if held.regular]
        own = self.cluster.nodes[node].held[decision.job, task].holds()
        for resource, most in ((0, settings.user_max_cores), (3, settings.user_max_memory_bytes)):
            has = sum(held.holds()[resource] for held in books if self.users[held.job] == user)
            assert not (most and own[resource]) or has <= most + 1e-6, f"{user} holds {has} of {most}"

    def replay(self) -> None:
        """The same events give the same decisions."""
        again = Cluster(self.settings)
        assert [again.handle(event, now) for event, now in self.log] == self.said
