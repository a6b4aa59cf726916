"""The job sizes that the master learns are those that its agents measured until the last container of the job had
ended.

The agents' cores and the master's are the real ones. Commands and lent processes use processor time that is chosen here
and that samples see as far as they come, and heartbeats report when they come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from master.core import Cluster, MasterSettings
from master.core import events as m
from master.core.instructions import SendDecisions
from master.ordering.sizes import LEAST
from penstock.model import Capacity, ContainerSpec, KindAmounts, TaskRequest
from penstock.wire import agent_methods
from penstock.wire import master_api as api
from penstock.wire.agent_api import JobRegistered, Place, RegisterJob
from penstock.wire.jobs_api import LeaveJob

NODES = ("a", "b", "c")
nodes = st.sampled_from(NODES)
pick = st.integers(0, 10**6)


class Measured(RuleBasedStateMachine):
    """One job after the other, of node a; the time that its containers used is known here."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.cluster = Cluster(MasterSettings(gather_s=0.0, ordering="gittins"))
        self.learnt: list[tuple[str, str, float]] = []
        learn = self.cluster.sizes.learn

        def learns(user: str, application: str, service: float) -> None:
            if service:
                self.learnt.append((user, application, service))
            learn(user, application, service)

        self.cluster.sizes.learn = learns  # type: ignore[method-assign]
        self.agents = {
            name: Node(
                NodeSettings(node=name, instance="x", capacity=Capacity(cores=2.0, memory_bytes=10**9), has_master=True)
            )
            for name in NODES
        }
        self.used: dict[str, dict[str, float]] = {name: {} for name in NODES}  # by node: container → CPU seconds
        self.ids = 0
        self.to_master: dict[str, list[Callable[[], object]]] = {name: [] for name in NODES}
        self.kept: list[m.Event] | None = None  # the reports of a, while it has no link to the master
        for name, agent in self.agents.items():
            self.register(name)
            agent.handle(e.SessionOpened(1, "u", "c"), self.now)
        self.begin()

    def begin(self) -> None:
        self.total_s = 0.0
        self.tasks = 0
        self.learnt.clear()
        instructions = self.agent("a", e.JobRegistered(1, RegisterJob(name="j"), self.now))
        [registered] = [each.result for each in instructions if isinstance(each, i.Reply)]
        assert isinstance(registered, JobRegistered)
        self.job = registered.job
        self.deliver()

    # ------------------------------------------------------------ between them

    def register(self, name: str) -> None:
        agent = self.agents[name]
        agent.link_opens()
        registration = api.Register(
            protocol=1, node=name, version="0", capacity=agent.settings.capacity, load=agent.load(self.now),
            jobs=agent.client_jobs.states(), complete=True,
        )  # fmt: skip
        self.master(m.Received(name, registration))
        agent.attained.lasts_read = True

    def link_breaks(self) -> None:
        self.master(m.NodeAway("a"))
        self.kept = []

    def link_returns(self) -> None:
        """Let a register, and report what it has kept: the ends of jobs."""
        kept, self.kept = self.kept or [], None
        self.register("a")
        for event in kept:
            assert isinstance(event, m.Received)
            if isinstance(event.message, api.JobEnded):
                self.master(event)

    def is_lost(self) -> None:
        """Let a stay away until its job is lost, and longer than the master waits for the other nodes' reports."""
        for passed_s in (self.cluster.settings.node_timeout_s + 1.0, 5.0):
            self.now += passed_s
            for name in ("b", "c"):
                self.heartbeat(name)
            self.deliver()
            self.master(m.RoundDue(self.now))
            self.deliver()

    def master(self, event: m.Event) -> None:
        for instruction in self.cluster.handle(event, self.now):
            if isinstance(instruction, SendDecisions):
                decided = e.Decided(instruction.number, instruction.decisions, 0.0)
                self.agent(instruction.node, decided, instruction.number)

    def agent(self, name: str, event: e.Event, number: int = 0) -> list[i.Instruction]:
        instructions = self.agents[name].handle(event, self.now)
        for each in instructions:
            match each:
                case i.SendToMaster(params):
                    self.say(name, m.Received(name, params))  # type: ignore[arg-type]
                case i.StartContainer(container) | i.AdoptProcess(container):
                    self.used[name][container] = 0.0
                    self.ids += 1
                    self.agent(name, e.ContainerStarted(container, self.ids, {}, self.now))
                case i.Reply(api.Decided() as answer):
                    self.say(name, m.Answered(name, number, answer.refused, answer.places_known))
                case _:
                    pass
        for each in instructions:
            if isinstance(each, i.KillContainer):
                self.ends(name, each.container, 0.0)
            elif isinstance(each, i.GiveBack):
                self.agent(name, e.GivenBack(each.container, self.used[name].pop(each.container), 0, self.now))
        return instructions

    def say(self, name: str, event: m.Event) -> None:
        if name == "a" and self.kept is not None:
            self.kept.append(event)
            return
        self.to_master[name].append(lambda: self.master(event))

    def ends(self, name: str, container: str, more_s: float) -> None:
        self.total_s += more_s
        used_s = self.used[name].pop(container) + more_s
        self.agent(name, e.ContainerExited(container, 0, None, used_s, 0, 0, self.now))

    # ------------------------------------------------------------ events

    @rule()
    def deliver(self) -> None:
        while any(self.to_master.values()):
            for name in NODES:
                if self.to_master[name]:
                    self.to_master[name].pop(0)()

    @rule(name=nodes)
    def heartbeat(self, name: str) -> None:
        self.say(name, m.Received(name, self.agents[name].heartbeat(self.now)))

    @rule(name=nodes)
    def sample(self, name: str) -> None:
        uses = {container: ContainerUse(cpu_seconds=used_s) for container, used_s in self.used[name].items()}
        self.agent(name, e.Sampled(Snapshot(self.now, 1.0, containers=uses), self.now))

    @rule(where=nodes)
    def command(self, where: str) -> None:
        self.tasks += 1
        request = TaskRequest(
            task=f"t{self.tasks}", usage=KindAmounts(cpu=1.0), nodes=(where,), command=ContainerSpec(argv=("x",))
        )
        self.agent(
            "a",
            e.Requested(agent_methods.PLACE, 1, Place(job=self.job, stage="s", tasks=[request], opportunistic=False)),
        )
        self.deliver()
        self.now += 0.001
        self.master(m.RoundDue(self.now))
        self.deliver()

    @rule(name=nodes)
    def lend(self, name: str) -> None:
        """A process of the job's framework, which joins the job where it is not there yet."""
        agent = self.agents[name]
        if self.job not in agent.sessions[1].jobs:
            self.deliver()
            self.master(m.Received(name, api.JoinJob(job=self.job, user="u")))
            self.agent(name, e.JobIntroduced(self.job, "j", "u", 0.0))
            self.agent(name, e.JobRegistered(1, RegisterJob(name="j", job=self.job), self.now))
        self.ids += 1
        self.agent(name, e.LendRequested(1, self.job, self.ids, ("python",)))

    @precondition(lambda self: any(self.used.values()))
    @rule(at=pick, seconds=st.floats(0.01, 5.0))
    def compute(self, at: int, seconds: float) -> None:
        running = [(name, container) for name in NODES for container in self.used[name]]
        name, container = running[at % len(running)]
        self.used[name][container] += seconds
        self.total_s += seconds

    @precondition(lambda self: any(self.used.values()))
    @rule(at=pick, seconds=st.floats(0.0, 5.0))
    def container_ends(self, at: int, seconds: float) -> None:
        running = [(name, container) for name in NODES for container in self.used[name]]
        self.ends(*running[at % len(running)], seconds)

    @rule(told=st.booleans(), last=nodes, away=st.sampled_from(["", "briefly", "lost before", "lost after"]))
    def job_ends(self, told: bool, last: str, away: str) -> None:
        """End a job, perhaps while its origin is ``away``, and before or after the master has lost the job.

        Its commands have ended, as those of a finished job have; its lent processes go on until they are back.
        """
        while commands := [
            (name, container)
            for name in NODES
            for container in self.used[name]
            if not self.agents[name].containers.live[container].borrowed
        ]:
            self.ends(*commands[0], 0.5)
            if told:
                self.deliver()
        self.deliver()
        if away:
            self.link_breaks()
        if away == "lost before":
            self.is_lost()
        for name in [*(name for name in NODES if name != last), last]:
            if self.agents[name].sessions[1].jobs:
                self.agent(name, e.Requested(agent_methods.LEAVE_JOB, 1, LeaveJob(job=self.job)))
                self.agent(name, e.SessionClosed(1))
                self.agent(name, e.SessionOpened(1, "u", "c"))
                if told:
                    self.deliver()
        self.deliver()
        if away == "lost after":
            self.is_lost()
        if away:
            self.link_returns()
        for name in NODES:
            self.heartbeat(name)
        self.deliver()
        assert not any(self.used.values())
        self.counted(lost="lost" in away)
        self.now += 5.0  # longer than the master waits for the last of a job
        self.master(m.RoundDue(self.now))
        for name in NODES:
            self.heartbeat(name)
        self.deliver()
        assert not self.cluster.unlearnt.jobs
        self.counted(lost="lost" in away)
        self.begin()

    def counted(self, *, lost: bool) -> None:
        """Slots are held for a thousandth of a second for each command, which is all that slot-time can be more.

        The work of the placed tasks of a job that was ``lost`` is unknown, so it teaches nothing.
        """
        view = self.cluster.listing.find(self.job)
        assert view is not None and view.state == "ended" and view.outcome == "succeeded"
        most_s = 0.002 * self.tasks**2
        assert self.total_s - 1e-6 <= view.service_container_s <= self.total_s + most_s + 1e-6
        teaches = (self.total_s and not self.tasks) if lost else (self.total_s or self.tasks)
        assert self.learnt == ([("u", "j", view.service_container_s or LEAST)] if teaches else [])

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.job_ends(True, "a", away="")


TestMeasured = Measured.TestCase
TestMeasured.settings = settings(max_examples=20, stateful_step_count=30)
