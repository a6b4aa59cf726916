"""The scheduling core against a small cluster of agents that follow the contract, over connections that delay, break
and reorder as real ones do.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from master.core import MasterSettings, draining
from master.ordering import NAMES
from penstock.model import Capacity, Ended, EndedBy
from penstock.wire import master_api as api
from tests.master_invariants import broken
from tests.property.scheduling_agents import EXIT, MIB, NODES, TIMEOUT_S, Agent
from tests.property.scheduling_connections import Connections
from tests.property.scheduling_work import Work

#: The limit of one user: no less than the demand of one task that some node could hold.
LIMITS: tuple[dict[str, float], ...] = (
    {},
    {"user_max_cores": 1.0},
    {"user_max_cores": 3.0, "user_max_memory_bytes": 300 * MIB},
    {"user_max_jobs": 1},
    {"user_max_memory_bytes": 700 * MIB, "user_max_jobs": 2},
)


class World(Connections, Work):
    """See the module's docstring."""

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

    # ------------------------------------------------------------ invariants

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "cluster"):
            assert broken(self.cluster) == []

    @invariant()
    def written_records_equal_the_state(self) -> None:
        if hasattr(self, "cluster"):
            assert list(self.kept_jobs.values()) == list(self.cluster.past)
            assert {node for node, said in self.kept_drains.items() if said.draining is not None} == self.drained
            for node, agent in self.agents.items():
                untold = agent.draining is not None and node not in self.drained
                assert not untold or node in self.kept_drains, f"{node} would be drained after a restart"

    @invariant()
    def drained_nodes_were_drained_and_have_no_work_left(self) -> None:
        for node in self.cluster.nodes.values() if hasattr(self, "cluster") else ():
            if node.connected:
                assert (node.draining is not None) == (node.name in self.drained)
            if draining.state(node) == "drained":
                agent = self.agents[node.name]
                assert not agent.held and not agent.stopping, f"{node.name} is called drained"

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
            assert draining.state(node) == "drained", self.cluster.drain.status(node)
            self.undrain(name)
        for _ in range(200):
            if self.settled():
                break
            self.calm_down()
        assert self.settled(), "work is left that no node does"
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
                agent.kill_over(key)
            self.to_master(name, 10**6)


TestScheduling = World.TestCase
TestScheduling.settings = settings(max_examples=45, stateful_step_count=60, report_multiple_bugs=False)


def test_a_command_withdrawn_with_its_lost_origin_is_not_cancelled() -> None:
    """Its origin is back, and the node that stops the command registers before the command has ended."""
    world = World()
    world.begin(ordering="fifo", sizes=[5, 1, 1], limits={})
    world.place(
        at=NODES.index("c"), count=1, memory=300, usage=(0, 0, 0), command=True, opportunistic=False, where=()
    )  # fmt: skip
    for breaks, gone_s, until in (("c", TIMEOUT_S + 1, 1), ("", 0.0, 2), ("a", 0.0, 1)):
        world.exchange(heartbeats=False, grumpy="", until=until, breaks=breaks, gone_s=gone_s)
    assert world.agents["a"].stopping
    world.teardown()


@pytest.mark.parametrize("dies_meanwhile", [False, True])
def test_a_command_cancelled_before_its_origin_was_lost_does_not_run_again(dies_meanwhile: bool) -> None:
    """A round is due between the registration of its origin, which is back, and the cancellation right behind that."""
    world = World()
    world.begin(ordering="fifo", sizes=[5, 1, 1], limits={})
    at = NODES.index("c")
    world.place(at=at, count=1, memory=300, usage=(0, 0, 0), command=True, opportunistic=False, where=())
    for _ in range(2):
        world.exchange(heartbeats=False, grumpy="", until=3, breaks="", gone_s=0.0)
    world.cancel(at)
    world.exchange(heartbeats=False, grumpy="", until=3, breaks="", gone_s=0.0)
    world.unlink("c")
    for _ in range(2):
        world.round(TIMEOUT_S / 2 + 1)
        world.heartbeat("a")
        world.to_master("a", 1)
    assert "c" not in world.cluster.nodes
    if dies_meanwhile:
        world.kill_ends(0)
        world.to_master("a", 1)
    world.link("c")
    world.round(0.1)
    assert not [one for sent, _ in world.agents["a"].inbox for one in sent.decisions if isinstance(one, api.Assign)]
    world.teardown()
    [wanted] = [wanted for job in world.agents["c"].jobs.values() for wanted in job.tasks.values()]
    assert (wanted.node, wanted.ended) == ("a", Ended(by=EndedBy.CANCELLED))
