"""Connections between a master and its agents, which delay and break, and restarts on either side."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from master.core import events as e
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.property.scheduling_agents import NODES, TIMEOUT_S, Agent, Wanted
from tests.property.scheduling_master import CheckedMaster, nodes, pick


class Connections(CheckedMaster):
    """Messages arrive in their order, late, or not at all; a process that restarts knows the records that it wrote."""

    @rule(node=nodes)
    def link(self, node: str) -> None:
        agent = self.agents[node]
        if agent.linked:
            return
        agent.linked = True
        self.known_version[node], agent.reported = agent.external_version, agent.external
        self.serve(e.Received(node, agent.register()))
        self.books_agree(agent)
        kept, agent.kept = agent.kept, []
        unwanted = agent.cancelled()
        # Where the master has lost the job, it reads them as new.
        self.cancelled_tasks -= {(each.job, task) for each in unwanted for task in each.tasks}
        for message in [*unwanted, *kept]:
            agent.say(message)

    @rule(node=nodes, answers_lost=st.booleans())
    def unlink(self, node: str, answers_lost: bool = False) -> None:
        if self.agents[node].linked:
            self.agents[node].unlink(answers_lost=answers_lost)
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
            self.serve(e.Received(node, what))
            self.books_agree(agent)
            if isinstance(what, api.JobEnded):
                self.listed_with_its_outcome(what.job)

    def listed_with_its_outcome(self, job: str) -> None:
        """Check that a master which has received the report of a job's end lists it, also if the job ended unlinked."""
        past = self.cluster.past.get(job)
        assert past is not None, f"{job} is not listed"
        assert past.outcome_known, f"{job} is listed as {past.view.outcome}: {past.view.why}"

    def books_agree(self, agent: Agent) -> None:
        """Check that the master's figure of others' memory is true: no promise is counted twice, or not at all."""
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
        """Restart an agent.

        Its containers, their ends, its reports of other ends, and the placed tasks that frameworks execute themselves
        are journaled; its frameworks keep their other demands until they come back.
        """
        agent = self.agents[node]
        self.unlink(node)
        for job in agent.jobs.values():
            job.recovered = True
            journaled = {name: wanted for name, wanted in job.tasks.items() if wanted.journaled}
            job.forgotten |= {name: wanted for name, wanted in job.tasks.items() if not wanted.journaled}
            job.tasks = journaled

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
            if wanted.unwanted and wanted.ended is None:
                wanted.ended = Ended(by=EndedBy.CANCELLED)
                job.tasks[task] = wanted
                agent.say(api.TasksCancelled(job=name, tasks=[task]))
            elif wanted.ended is None:
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
