"""The end of a command is in the journal until the master has received it."""

from __future__ import annotations

import pytest

from agent.core import events as e
from master.core import Cluster, MasterSettings
from master.core import events as m
from penstock.model import EndedBy
from penstock.wire import master_api as api
from tests.fakes.node_bed import MIB, NodeBed


class Bed(NodeBed):
    def assign(self, **how: bool) -> str:
        """Place a command here; return the container that it runs in."""
        self.command("t", spec={"memory_bytes": MIB}, memory_bytes=MIB, origin="other", **how)
        self.begin(self.container("t"))
        return self.container("t")

    def acknowledge(self) -> None:
        self.done.clear()
        self.send(e.EndAcknowledged(self.JOB, "t"))


def test_until_then_it_is_registered_as_held(bed: Bed) -> None:
    """Otherwise the master would look for another place for it, before it reads the message right behind."""
    bed.exit(bed.assign(), 3)
    assert [(placed.task, placed.command) for placed in bed.node.held.report()] == [("t", True)]
    bed.acknowledge()
    assert bed.node.held.report() == [] and bed.of("tasks") == []


def test_a_task_that_has_come_back_meanwhile_stays_recorded(bed: Bed) -> None:
    """The master had lost the connection, and had given the task to this node again before it received the end."""
    bed.exit(bed.assign(), 3)
    container = bed.assign()
    bed.acknowledge()
    assert bed.done == []
    assert bed.container("t") == container
    assert len(bed.node.held.report()) == 1
    assert bed.node.held.by_key[bed.JOB, "t"].ended is None


def test_a_task_stopped_to_run_elsewhere_is_reported_as_such(bed: Bed) -> None:
    """A node that is drained and restarted while the master is away."""
    container = bed.assign()
    bed.node.containers.stop(container, EndedBy.PREEMPTED, "drained")
    bed.exit(container, 137)
    bed.restart()
    assert [told.ended.by for told in bed.to_master(api.CommandEnded)] == [EndedBy.PREEMPTED]


@pytest.mark.parametrize("opportunistic", [False, True])
def test_memory_that_others_hold_is_others_though_the_end_of_a_command_has_not_been_received(
    bed: Bed, opportunistic: bool
) -> None:
    """A registration names the command as if it ran: so its load counts the command's promise."""
    bed.open()
    bed.launch(memory_bytes=3 * MIB)
    bed.exit(bed.assign(opportunistic=opportunistic), 3)
    [ended] = bed.to_master(api.CommandEnded)
    bed.node.link_opens()
    cluster = Cluster(MasterSettings(gather_s=0.0))
    registration = api.Register(
        protocol=api.PROTOCOL, node="n", version="0", capacity=bed.settings.capacity,
        load=bed.node.held.registering(bed.node.load(2.0)), placed=bed.node.held.report(),
    )  # fmt: skip
    for said in (registration, ended, bed.node.heartbeat(2.0)):
        cluster.handle(m.Received("n", said), 2.0)
        assert cluster.nodes["n"].external_memory_bytes == 3 * MIB
