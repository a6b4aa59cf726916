"""The demands of frameworks and operators on a cluster: jobs and their tasks, orders by hand, drained nodes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from master.core import events as e
from penstock.model import ContainerSpec, Ended, EndedBy, KindAmounts, ResourceKind, TaskRequest
from penstock.wire import master_api as api
from tests.property.scheduling_agents import EXIT, MIB, Agent, Job, Wanted
from tests.property.scheduling_master import CheckedMaster, nodes, pick

USERS = ("u", "v")


class Work(CheckedMaster):
    """Jobs and tasks come, are executed, end and are cancelled; people change their order, and drain nodes."""

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
        """The report comes from the node that executed it, or from the origin."""
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
        agent.kill_over(key)

    @precondition(lambda self: any(agent.jobs for agent in self.agents.values()))
    @rule(at=pick)
    def cancel(self, at: int) -> None:
        agent, job = self.some_job(at)
        live = [name for name, wanted in agent.jobs[job].tasks.items() if wanted.ended is None]
        if live:
            name = live[at % len(live)]
            wanted = agent.jobs[job].tasks[name]
            wanted.unwanted = True
            if not wanted.node:
                wanted.ended = Ended(by=EndedBy.CANCELLED)
            agent.say(api.TasksCancelled(job=job, tasks=[name]))

    @rule(node=nodes, memory=st.integers(0, 600))
    def others_run(self, node: str, memory: int) -> None:
        """Start and end regular containers that belong to no task."""
        agent = self.agents[node]
        wanted = memory * MIB
        if agent.promised() - agent.external + wanted <= agent.capacity.memory_bytes:
            agent.external_version += wanted > agent.external
            agent.external = wanted

    # ------------------------------------------------------------ orders by hand, drained nodes

    @rule(at=pick, many=st.integers(0, 3), of_all=st.booleans())
    def order_by_hand(self, at: int, many: int, of_all: bool) -> None:
        """Let a user put some of the user's jobs first, or an operator some of all."""
        described = [job for job in self.cluster.jobs.values() if job.described]
        by = described[at % len(described)].user if described else "u"
        wanted = [job.job for job in described if of_all or job.user == by][:many]
        self.serve(e.OrderRequested(tuple(wanted), "root" if of_all else by, of_all))
        order = self.cluster.order.rank(self.now).order()
        assert sorted(order) == sorted(job.job for job in described)
        assert order[: len(wanted)] == wanted or not of_all, "the jobs that an operator names come first"

    @rule(node=nodes, stop=st.booleans())
    def drain(self, node: str, stop: bool) -> None:
        """Let an operator drain a known node; it may be away, and gets the message later."""
        if node in self.drained or (node in self.cluster.nodes and self.cluster.nodes[node].version):
            self.drained.add(node)
            self.serve(e.DrainRequested((node,), "root", 1000.0 + self.now, stop))

    @rule(node=nodes)
    def undrain(self, node: str) -> None:
        if node in self.drained or (node in self.cluster.nodes and self.cluster.nodes[node].version):
            self.drained.discard(node)
            self.serve(e.UndrainRequested((node,), "root"))
