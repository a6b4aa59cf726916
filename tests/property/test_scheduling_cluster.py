"""The scheduling core against a small cluster of agents that do what the contract says, over connections that delay,
break and reorder as real ones do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from master.core import Cluster, MasterSettings, draining
from master.core import events as e
from master.core.drains import DrainSaid
from master.core.finished_jobs import FinishedJob
from master.core.instructions import Hangup, Instruction, Keep, SendDecisions
from master.ordering import NAMES, HandOrder
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, ResourceKind, TaskRequest
from penstock.wire import master_api as api
from tests.master_invariants import broken
from tests.property.scheduling_agents import EXIT, MIB, NODES, TIMEOUT_S, Agent, Job, Wanted

nodes = st.sampled_from(NODES)
USERS = ("u", "v")
#: What one user may hold: no less than one task that some node could hold wants.
LIMITS: tuple[dict[str, float], ...] = (
    {},
    {"user_max_cores": 1.0},
    {"user_max_cores": 3.0, "user_max_memory_bytes": 300 * MIB},
    {"user_max_jobs": 1},
    {"user_max_memory_bytes": 700 * MIB, "user_max_jobs": 2},
)
pick = st.integers(min_value=0, max_value=10**6)


T = TypeVar("T")


def keep(kept: dict[str, T], changed: Mapping[str, T | None]) -> None:
    """As a store does."""
    for name, one in changed.items():
        kept.pop(name, None)
        if one is not None:
            kept[name] = one


class World(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        #: Whom an operator has drained; every master remembers it.
        self.drained: set[str] = set()
        #: What is written down for the next master.
        self.kept_drains: dict[str, DrainSaid] = {}
        self.kept_jobs: dict[str, FinishedJob] = {}
        self.kept_orders: dict[str, HandOrder] = {}
        #: Job → its user.
        self.users: dict[str, str] = {}

    @initialize(
        ordering=st.sampled_from(NAMES),
        sizes=st.lists(st.integers(1, 8), min_size=3, max_size=3),
        limits=st.sampled_from(LIMITS),
    )
    def begin(self, ordering: str, sizes: list[int], limits: dict[str, Any]) -> None:
        self.settings = MasterSettings(node_timeout_s=TIMEOUT_S, ordering=ordering, **limits)
        self.now = 100.0
        self.serial = 0
        self.agents = {
            name: Agent(name, Capacity(cores=4.0, memory_bytes=size * 128 * MIB))
            for name, size in zip(NODES, sizes, strict=True)
        }
        self.start_master()
        for name in NODES:
            self.link(name)
            self.submit_job(name, 0)

    def start_master(self) -> None:
        self.cluster = Cluster(self.settings)
        self.known_version = dict.fromkeys(NODES, 0)
        self.log: list[tuple[e.Event, float]] = []
        self.said: list[list[Instruction]] = []
        self.ends: dict[tuple[str, str], Ended] = {}
        self.serve(e.Remembered(dict(self.kept_drains), list(self.kept_jobs.values()), (), dict(self.kept_orders)))

    def serve(self, event: e.Event) -> None:
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
                    for decision in decisions:
                        self.check(node, decision, admitted)
                case Hangup(node):
                    self.agents[node].unlink()
                case Keep(drains, jobs, _, orders):
                    keep(self.kept_drains, drains)
                    keep(self.kept_jobs, jobs)
                    keep(self.kept_orders, orders)

    def check(self, node: str, decision: api.AnyDecision, admitted: set[str]) -> None:
        if isinstance(decision, api.Assign | api.Promote):
            assert node not in self.drained, f"{node} is drained, and is told {decision}"
        if isinstance(decision, api.Promote) or (isinstance(decision, api.Assign) and not decision.opportunistic):
            self.within_limits(node, decision)
        if isinstance(decision, api.Assign):
            if not decision.opportunistic:
                assert self.cluster.nodes[node].memory_free_bytes() >= 0, "the master over-commits a node"
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
        """With what is promised now nobody holds more than he may, of what it takes some of."""
        task = decision.request.task if isinstance(decision, api.Assign) else decision.task
        user, settings = self.users[decision.job], self.cluster.settings
        books = [held for each in self.cluster.nodes.values() for held in each.held.values() if held.regular]
        own = self.cluster.nodes[node].held[decision.job, task].holds()
        for resource, most in ((0, settings.user_max_cores), (3, settings.user_max_memory_bytes)):
            has = sum(held.holds()[resource] for held in books if self.users[held.job] == user)
            assert not (most and own[resource]) or has <= most + 1e-6, f"{user} holds {has} of {most}"

    # ------------------------------------------------------------ the network

    @rule(node=nodes)
    def link(self, node: str) -> None:
        agent = self.agents[node]
        if agent.linked:
            return
        agent.linked = True
        self.known_version[node], agent.reported = agent.external_version, agent.external
        self.serve(e.Said(node, agent.register()))
        self.books_agree(agent)
        kept, agent.kept = agent.kept, []
        for message in kept:
            agent.say(message)

    @rule(node=nodes)
    def unlink(self, node: str) -> None:
        if self.agents[node].linked:
            self.agents[node].unlink()
            self.serve(e.NodeAway(node))

    @rule(node=nodes, many=st.integers(1, 8))
    def to_master(self, node: str, many: int) -> None:
        agent = self.agents[node]
        for _ in range(many):
            if not agent.to_master:
                return
            kind, what, version, external = agent.to_master.popleft()
            if kind == "answer":
                self.serve(what)
                self.books_agree(agent)
                continue
            if isinstance(what, api.Heartbeat):
                self.known_version[node], agent.reported = version, external
            self.serve(e.Said(node, what))
            self.books_agree(agent)

    def books_agree(self, agent: Agent) -> None:
        """What the master takes for others' memory is others' memory: no promise is counted twice, or not at all."""
        if agent.linked:
            assert self.cluster.nodes[agent.name].external_memory_bytes == agent.reported

    @rule(node=nodes, grumpy=st.sampled_from([False, False, False, True]))
    def to_agent(self, node: str, grumpy: bool) -> None:
        agent = self.agents[node]
        if not agent.inbox:
            return
        sent, known_version = agent.inbox.popleft()
        agent.decide(sent, known_version, grumpy)
        for decision in sent.decisions:
            job = agent.jobs.get(decision.job) if isinstance(decision, api.TellEnded) else None
            if isinstance(decision, api.TellEnded) and job is not None and decision.task in job.tasks:
                first = self.ends.setdefault((decision.job, decision.task), decision.ended)
                assert first == decision.ended, f"{decision.task} ended as {first}, and then as {decision.ended}"

    @rule(node=nodes)
    def heartbeat(self, node: str) -> None:
        agent = self.agents[node]
        agent.say(agent.heartbeat())

    @rule(
        heartbeats=st.booleans(),
        grumpy=st.sampled_from(["", "", *NODES]),
        until=st.integers(1, 3),
        breaks=st.sampled_from(["", "", *NODES]),
        gone_s=st.sampled_from([0.0, 0.0, TIMEOUT_S + 1]),
    )
    def exchange(self, heartbeats: bool, grumpy: str, until: int, breaks: str, gone_s: float) -> None:
        """Everything under way arrives, a round is run, carried out and answered; or only so far, and then a
        connection breaks, for a moment or for too long."""
        for name in NODES:
            if heartbeats:
                self.heartbeat(name)
            self.to_master(name, 10**6)
        for step in range(1, until + 1):
            if step == 1:
                self.round(0.1)
            for name in NODES:
                while step == 2 and self.agents[name].inbox:
                    self.to_agent(name, name == grumpy)
                if step == 3:
                    self.to_master(name, 10**6)
        if breaks:
            self.unlink(breaks)
            if gone_s:
                self.round(gone_s / 2)
                for name in NODES:
                    self.heartbeat(name)
                    self.to_master(name, 10**6)
                self.round(gone_s / 2)
            self.link(breaks)

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.1, 0.1, 1.0, TIMEOUT_S + 1]))
    def round(self, seconds: float) -> None:
        self.now += seconds
        self.serve(e.RoundDue(1000.0 + self.now))

    @rule(node=nodes)
    def agent_restarts(self, node: str) -> None:
        """What it holds is journaled, and how that ended; what its frameworks want, they know until they come back."""
        self.unlink(node)
        agent = self.agents[node]
        for job in agent.jobs.values():
            job.recovered = True
            job.forgotten |= job.tasks
            job.tasks = {}
        agent.kept = [said for said in agent.kept if isinstance(said, api.CommandEnded)]

    @precondition(lambda self: any(job.forgotten for agent in self.agents.values() for job in agent.jobs.values()))
    @rule(at=pick)
    def framework_rejoins(self, at: int) -> None:
        known = [(agent, name, job) for agent in self.agents.values() for name, job in agent.jobs.items()]
        forgetful = [(agent, name) for agent, name, job in known if job.forgotten]
        self.rejoin(*forgetful[at % len(forgetful)])

    def rejoin(self, agent: Agent, name: str) -> None:
        job = agent.jobs[name]
        forgotten, job.forgotten = job.forgotten, {}
        for task, wanted in forgotten.items():
            if wanted.ended is None:
                job.tasks[task] = Wanted(wanted.stage, wanted.request, wanted.opportunistic)
                ready = api.ReadyTasks(
                    job=name, stage=wanted.stage, tasks=[wanted.request], opportunistic=wanted.opportunistic
                )
                agent.say(ready)
            else:
                job.tasks[task] = wanted

    @rule()
    def master_restarts(self) -> None:
        self.replay()
        for agent in self.agents.values():
            agent.unlink()
        self.start_master()

    @rule(at=pick, many=st.integers(0, 3), of_all=st.booleans())
    def order_by_hand(self, at: int, many: int, of_all: bool) -> None:
        """Somebody puts some of his jobs first, or an operator some of all."""
        described = [job for job in self.cluster.jobs.values() if job.described]
        by = described[at % len(described)].user if described else "u"
        wanted = [job.job for job in described if of_all or job.user == by][:many]
        self.serve(e.OrderAsked(tuple(wanted), "root" if of_all else by, of_all))
        order = self.cluster.order.rank(self.now).order()
        assert sorted(order) == sorted(job.job for job in described)
        assert order[: len(wanted)] == wanted or not of_all, "what an operator names comes first"

    @rule(node=nodes, stop=st.booleans())
    def drain(self, node: str, stop: bool) -> None:
        """An operator has a node that is known drained; it may be away, and hears of it later."""
        if node in self.drained or (node in self.cluster.nodes and self.cluster.nodes[node].version):
            self.drained.add(node)
            self.serve(e.DrainAsked((node,), "root", 1000.0 + self.now, stop))

    @rule(node=nodes)
    def undrain(self, node: str) -> None:
        if node in self.drained or (node in self.cluster.nodes and self.cluster.nodes[node].version):
            self.drained.discard(node)
            self.serve(e.UndrainAsked((node,), "root"))

    # ------------------------------------------------------------ the work

    @rule(node=nodes, memory=st.sampled_from([0, 64, 256, 900, 5000]), user=st.sampled_from(USERS))
    def submit_job(self, node: str, memory: int, user: str = USERS[0]) -> None:
        self.serial += 1
        state = api.JobState(
            job=f"{node}-{self.serial}", name="job", user=user, memory_bytes=memory * MIB, priority=0.0,
            submitted_at=1000.0 + self.now,
        )  # fmt: skip
        self.users[state.job] = user
        self.agents[node].jobs[state.job] = Job(state)
        self.agents[node].say(state)

    @precondition(lambda self: any(agent.jobs for agent in self.agents.values()))
    @rule(
        at=pick,
        count=st.integers(1, 4),
        memory=st.sampled_from([0, 1, 60, 100, 300, 3000]),
        usage=st.sampled_from([(0, 0, 0), (1, 0, 0), (20, 1, 0), (1, 0, 40), (500, 500, 500)]),
        command=st.booleans(),
        opportunistic=st.booleans(),
        where=st.sampled_from([(), (), (), ("a",), ("b", "c"), ("nowhere",)]),
    )
    def place(
        self, at: int, count: int, memory: int, usage: tuple[int, int, int], command: bool, opportunistic: bool,
        where: tuple[str, ...],
    ) -> None:  # fmt: skip
        agent, job = self.some_job(at)
        requests = []
        for _ in range(count):
            self.serial += 1
            requests.append(
                TaskRequest(
                    task=f"t{self.serial}", usage=KindAmounts(*(float(n * MIB) for n in usage)),
                    memory_bytes=memory * MIB, nodes=where, command_kind=ResourceKind.CPU,
                    command=ContainerSpec(argv=("true",)) if command else None,
                )
            )  # fmt: skip
        stage = f"s{self.serial % 3}"
        for request in requests:
            agent.jobs[job].tasks[request.task] = Wanted(stage, request, opportunistic)
        agent.say(api.ReadyTasks(job=job, stage=stage, tasks=requests, opportunistic=opportunistic))

    def some_job(self, at: int) -> tuple[Agent, str]:
        known = [(agent, job) for agent in self.agents.values() for job in agent.jobs]
        return known[at % len(known)]

    @precondition(lambda self: any(agent.jobs for agent in self.agents.values()))
    @rule(at=pick)
    def end_job(self, at: int) -> None:
        agent, job = self.some_job(at)
        agent.end_job(job)

    @precondition(lambda self: any(agent.held for agent in self.agents.values()))
    @rule(at=pick, ended=st.sampled_from([EXIT, Ended(by=EndedBy.PREEMPTED)]), elsewhere=st.booleans())
    def task_ends(self, at: int, ended: Ended, elsewhere: bool) -> None:
        held = [(agent, key) for agent in self.agents.values() for key in agent.held]
        agent, key = held[at % len(held)]
        if agent.held[key].request.command is not None:
            agent.command_over(key, ended)
            return
        self.framework_done(agent, key, elsewhere)

    def framework_done(self, agent: Agent, key: tuple[str, str], elsewhere: bool) -> None:
        """Said at the node that executed it, or at the origin."""
        origin = self.agents[agent.held[key].origin]
        speaker = agent if elsewhere else origin
        speaker.held.pop(key, None)
        if speaker is origin and key[0] in origin.jobs:
            job = origin.jobs[key[0]]
            wanted = job.tasks.get(key[1]) or job.forgotten[key[1]]
            wanted.ended = wanted.ended or EXIT
        speaker.say(api.TasksDone(job=key[0], tasks=[key[1]]))

    @precondition(lambda self: any(agent.stopping for agent in self.agents.values()))
    @rule(at=pick)
    def kill_ends(self, at: int) -> None:
        stopping = [(agent, key) for agent in self.agents.values() for key in agent.stopping]
        agent, key = stopping[at % len(stopping)]
        agent.command_over(key, Ended(by=EndedBy.CANCELLED))

    @precondition(lambda self: any(agent.jobs for agent in self.agents.values()))
    @rule(at=pick)
    def cancel(self, at: int) -> None:
        agent, job = self.some_job(at)
        live = [name for name, wanted in agent.jobs[job].tasks.items() if wanted.ended is None]
        if live:
            name = live[at % len(live)]
            wanted = agent.jobs[job].tasks[name]
            if not wanted.node:
                wanted.ended = Ended(by=EndedBy.CANCELLED)
            agent.say(api.TasksCancelled(job=job, tasks=[name]))

    @rule(node=nodes, memory=st.integers(0, 600))
    def others_run(self, node: str, memory: int) -> None:
        """Regular containers that are nobody's task come and go."""
        agent = self.agents[node]
        wanted = memory * MIB
        if agent.promised() - agent.external + wanted <= agent.capacity.memory_bytes:
            agent.external_version += wanted > agent.external
            agent.external = wanted

    # ------------------------------------------------------------ what must hold

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "cluster"):
            assert broken(self.cluster) == []

    @invariant()
    def what_is_written_down_is_what_is_known(self) -> None:
        if hasattr(self, "cluster"):
            assert list(self.kept_jobs.values()) == list(self.cluster.past)
            assert {node for node, said in self.kept_drains.items() if said.draining is not None} == self.drained
            for node, agent in self.agents.items():
                untold = agent.draining is not None and node not in self.drained
                assert not untold or node in self.kept_drains, f"{node} would be drained after a restart"

    @invariant()
    def drained_is_who_was_drained_and_has_nothing_left(self) -> None:
        for node in self.cluster.nodes.values() if hasattr(self, "cluster") else ():
            if node.connected:
                assert (node.draining is not None) == (node.name in self.drained)
            if draining.state(node) == "drained":
                agent = self.agents[node.name]
                assert not agent.held and not agent.stopping, f"{node.name} is called drained"

    def replay(self) -> None:
        """The same events give the same decisions."""
        again = Cluster(self.settings)
        assert [again.handle(event, now) for event, now in self.log] == self.said

    def teardown(self) -> None:
        if not hasattr(self, "cluster") or sys.exc_info()[0] is not None:
            return
        self.replay()
        for agent in self.agents.values():
            agent.external = 0
        for _ in range(20):
            self.calm_down()
        for name in sorted(self.drained):
            node = self.cluster.nodes[name]
            assert draining.state(node) == "drained", self.cluster.drain.told(node)
            self.undrain(name)
        for _ in range(200):
            if self.settled():
                break
            self.calm_down()
        assert self.settled(), "work is left that nobody does"
        for node in self.cluster.nodes.values():
            assert not node.held, f"{node.name} still holds {list(node.held)} in the master's books"

    def settled(self) -> bool:
        """Every task of a live job has ended, no node holds anything."""
        return (
            all(
                agent.linked
                and not (agent.held or agent.stopping or agent.to_master or agent.inbox or agent.kept)
                and all(wanted.ended is not None for job in agent.jobs.values() for wanted in job.tasks.values())
                and not any(job.forgotten for job in agent.jobs.values())
                for agent in self.agents.values()
            )
            and not self.cluster.members.ready_tasks
        )

    def calm_down(self) -> None:
        self.reconnect()
        self.round(TIMEOUT_S / 4)
        self.finish()
        # Jobs that hold memory others wait for, or one of their user's places, end once their tasks have.
        for agent in self.agents.values():
            for job in [job for job in agent.jobs.values() if job.state.admitted]:
                in_the_way = job.state.memory_bytes or self.cluster.settings.user_max_jobs
                if in_the_way and all(wanted.ended is not None for wanted in job.tasks.values()):
                    agent.end_job(job.state.job)

    def reconnect(self) -> None:
        for name, agent in self.agents.items():
            self.link(name)
            for job in agent.jobs:
                self.rejoin(agent, job)
            for job in [job for job in agent.jobs.values() if not job.state.admitted]:
                if all(wanted.ended is not None for wanted in job.tasks.values()):
                    agent.end_job(job.state.job)
            self.heartbeat(name)
            self.to_master(name, 10**6)

    def finish(self) -> None:
        for name, agent in self.agents.items():
            while agent.inbox:
                self.to_agent(name, False)
            for key in list(agent.held):
                if agent.held[key].request.command is not None:
                    agent.command_over(key, EXIT)
                else:
                    self.framework_done(agent, key, elsewhere=True)
            for key in list(agent.stopping):
                agent.command_over(key, Ended(by=EndedBy.CANCELLED))
            self.to_master(name, 10**6)


TestScheduling = World.TestCase
TestScheduling.settings = settings(
    max_examples=45,
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
