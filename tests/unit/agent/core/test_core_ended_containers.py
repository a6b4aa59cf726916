"""How containers ended is kept for each user, over restarts; no container is killed for want of a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core import events as e
from agent.core import instructions as i
from agent.core.containers import USERS_WORTH
from agent.core.records import ContainerState
from penstock.model import ContainerSpec, EndedBy, Limits
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import ContainerRef
from tests.fakes.node_bed import NodeBed


class Bed(NodeBed):
    """A node that keeps the ends of three containers of each user."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"keep_ended": 3, **settings})

    def launch(self, user: int, **fields: Any) -> str:
        if user not in self.node.sessions:
            self.open(user, f"u{user}")
        container = super().launch(user, **fields)
        self.begin(container)
        return container

    def run(self, user: int, status: int = 0) -> str:
        container = self.launch(user)
        self.exit(container, status)
        return container

    def restart_with(self, running: dict[str, str], exits_to_come: frozenset[str] = frozenset()) -> None:
        """Start another agent. ``running``: container → user."""
        self.restart(*running, owners=running, exits_to_come=exits_to_come)

    def ended(self) -> list[str]:
        return list(self.node.containers.ended.by_id)


def test_the_next_agents_know_how_each_ended_in_the_same_order(bed: Bed) -> None:
    late = bed.launch(1)
    early = bed.run(1, 3)
    bed.exit(late, 5)
    before = dict(bed.node.containers.ended.by_id)
    for _ in range(2):
        bed.restart_with({})
        assert bed.ended() == [early, late]
        assert {key: record.ended for key, record in bed.node.containers.ended.by_id.items()} == {
            key: record.ended for key, record in before.items()
        }
    newest = bed.run(1)
    assert bed.ended() == [early, late, newest]


def test_the_environment_is_not_kept(bed: Bed) -> None:
    bed.exit(bed.launch(1, env={"PASSWORD": "secret"}), 0)
    assert not any(b"secret" in data for data in bed.journal.values())


def test_one_user_does_not_push_out_another(bed: Bed) -> None:
    kept = bed.run(1, 9)
    for _ in range(10):
        bed.run(2)
    assert kept in bed.ended() and len(bed.ended()) == 4
    assert len(bed.journal) == 4, "dropped records leave the journal, too"
    bed.restart_with({})
    assert kept in bed.ended() and len(bed.ended()) == 4


def test_all_users_together_are_bounded_and_the_one_with_the_most_gives_way() -> None:
    bed = Bed(keep_ended=2)
    for user in range(1, USERS_WORTH + 1):
        bed.run(user)
        bed.run(user)
    few = bed.run(USERS_WORTH + 1)
    assert len(bed.ended()) == 2 * USERS_WORTH and few in bed.ended()
    assert len(bed.journal) == 2 * USERS_WORTH


def test_fewer_are_kept_from_a_reload_on_and_in_the_journal_none_but_those(bed: Bed) -> None:
    names = [bed.run(1) for _ in range(3)]
    bed.send(e.Reconfigured(replace(bed.settings, keep_ended=1), 1e9))
    assert bed.ended() == names[2:]
    assert [key for _, key in bed.journal] == names[2:]
    bed.send(e.Reconfigured(replace(bed.settings, keep_ended=0), 1e9))
    assert bed.ended() == [] and not bed.journal


def test_an_end_that_the_launcher_repeats_is_acknowledged_and_changes_nothing(bed: Bed) -> None:
    """The agent died after it had recorded the end and before it had removed the container."""
    container = bed.run(1, 3)
    bed.restart_with({}, exits_to_come=frozenset({container}))
    bed.done = []
    bed.exit(container, 4)
    assert bed.done == [i.RemoveContainer(container)]
    ended = bed.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.exit_status == 3


def test_a_container_whose_record_is_lost_runs_on_and_its_owner_can_end_it(bed: Bed) -> None:
    container = bed.launch(1, limits=Limits(cpu_cores=0.5))
    bed.journal.clear()
    bed.restart_with({container: "u1"})
    record = bed.node.containers.live[container]
    assert (record.user, record.state, record.unrecorded) == ("u1", ContainerState.RUNNING, True)
    assert not [one for one in bed.done if isinstance(one, i.KillContainer | i.RemoveContainer | i.Confine)]
    bed.send(e.SessionOpened(1, "u1", ""))
    bed.send(e.Requested(m.KILL, 1, ContainerRef(container=container)))
    assert [one.container for one in bed.done if isinstance(one, i.KillContainer)] == [container]
    bed.exit(container, 137)
    ended = bed.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.by is EndedBy.CANCELLED


def test_a_placed_command_whose_container_record_is_lost_ends_as_its_task(bed: Bed) -> None:
    spec = ContainerSpec(argv=("x",), memory_bytes=1 << 20, limits=Limits(cpu_cores=0.5))
    bed.command("t", memory_bytes=1 << 20, command=spec, user="u")
    container = bed.container("t")
    bed.begin(container)
    del bed.journal["containers", container]
    bed.restart_with({container: "u"})
    record = bed.node.containers.live[container]
    assert (record.task, record.limits, record.unrecorded) == ("t", spec.limits, False)
    bed.exit(container, 6)
    assert [one.ended.exit_status for one in bed.to_master(api.CommandEnded)] == [6]
