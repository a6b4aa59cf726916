"""How containers ended is kept for each user, over restarts; no container is killed for want of a record."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.containers import USERS_WORTH
from agent.core.records import ContainerRecord, ContainerState, HeldTask
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, EndedBy, KindAmounts, Limits, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import ContainerRef, Launch

SETTINGS = NodeSettings(
    node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True, keep_ended=3
)


class Bed:
    """A node, and what it has journaled, as bytes."""

    def __init__(self, settings: NodeSettings = SETTINGS) -> None:
        self.settings = settings
        self.node = Node(settings)
        self.journal: dict[tuple[str, str], bytes] = {}
        self.done: list[i.Instruction] = []

    def send(self, event: e.Event) -> object:
        reply: object = None
        for instruction in self.node.handle(event, 0.0):
            self.done.append(instruction)
            if isinstance(instruction, i.Reply):
                reply = instruction.result
            if isinstance(instruction, i.Record):
                key = instruction.room, instruction.key
                self.journal.pop(key, None)
                if instruction.value is not None:
                    self.journal[key] = msgspec.msgpack.encode(instruction.value)
        return reply

    def launch(self, user: int, **fields: object) -> str:
        if user not in self.node.sessions:
            self.send(e.SessionOpened(user, f"u{user}", user, ""))
        spec = ContainerSpec(argv=("x",), **fields)  # type: ignore[arg-type]
        container = str(self.send(e.Asked(m.LAUNCH, user, Launch(container=spec))))
        self.send(e.ContainerStarted(container, 7, {}, 1e9))
        return container

    def run(self, user: int, status: int = 0) -> str:
        container = self.launch(user)
        self.exits(container, status)
        return container

    def exits(self, container: str, status: int) -> None:
        self.send(e.ContainerExited(container, status, None, 0.0, 0, 0, 1e9))

    def restart(self, running: dict[str, str], exits_to_come: frozenset[str] = frozenset()) -> None:
        """``running``: container → user."""
        self.settings = replace(self.settings, instance=self.settings.instance + "x")
        self.node, self.done = Node(self.settings), []
        records = [msgspec.msgpack.decode(data, type=ContainerRecord) for data in self.of_room("containers")]
        tasks = [msgspec.msgpack.decode(data, type=HeldTask) for data in self.of_room("tasks")]
        pids = dict.fromkeys(running, 7)
        self.send(e.Recovered([], tasks, records, pids, exits_to_come, 1e9, owners=running))

    def of_room(self, room: str) -> list[bytes]:
        return [data for (one, _), data in self.journal.items() if one == room]

    def ended(self) -> list[str]:
        return list(self.node.containers.ended.by_id)


def test_the_next_agents_know_how_each_ended_in_the_same_order() -> None:
    bed = Bed()
    late = bed.launch(1)
    early = bed.run(1, 3)
    bed.exits(late, 5)
    before = dict(bed.node.containers.ended.by_id)
    for _ in range(2):
        bed.restart({})
        assert bed.ended() == [early, late]
        assert {key: record.ended for key, record in bed.node.containers.ended.by_id.items()} == {
            key: record.ended for key, record in before.items()
        }
    newest = bed.run(1)
    assert bed.ended() == [early, late, newest]


def test_the_environment_is_not_kept() -> None:
    bed = Bed()
    bed.exits(bed.launch(1, env={"PASSWORD": "secret"}), 0)
    assert b"secret" not in bed.of_room("containers")[0]


def test_one_user_does_not_push_out_another() -> None:
    bed = Bed()
    kept = bed.run(1, 9)
    for _ in range(10):
        bed.run(2)
    assert kept in bed.ended() and len(bed.ended()) == 4
    assert len(bed.journal) == 4, "what is forgotten leaves the journal, too"
    bed.restart({})
    assert kept in bed.ended() and len(bed.ended()) == 4


def test_all_users_together_are_bounded_and_the_one_with_the_most_gives_way() -> None:
    bed = Bed(replace(SETTINGS, keep_ended=2))
    for user in range(1, USERS_WORTH + 1):
        bed.run(user)
        bed.run(user)
    few = bed.run(USERS_WORTH + 1)
    assert len(bed.ended()) == 2 * USERS_WORTH and few in bed.ended()
    assert len(bed.journal) == 2 * USERS_WORTH


def test_fewer_are_kept_from_a_reload_on_and_in_the_journal_none_but_those() -> None:
    bed = Bed()
    names = [bed.run(1) for _ in range(3)]
    bed.send(e.Reconfigured(replace(SETTINGS, keep_ended=1), 1e9))
    assert bed.ended() == names[2:]
    assert [key for _, key in bed.journal] == names[2:]
    bed.send(e.Reconfigured(replace(SETTINGS, keep_ended=0), 1e9))
    assert bed.ended() == [] and not bed.journal


def test_an_end_that_the_launcher_tells_again_is_acknowledged_and_changes_nothing() -> None:
    """The agent died after it had recorded the end and before it had removed the container."""
    bed = Bed()
    container = bed.run(1, 3)
    bed.restart({}, exits_to_come=frozenset({container}))
    bed.done = []
    bed.exits(container, 4)
    assert bed.done == [i.RemoveContainer(container)]
    ended = bed.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.exit_status == 3


def test_a_container_whose_record_is_lost_runs_on_and_its_owner_can_end_it() -> None:
    bed = Bed()
    container = bed.launch(1, limits=Limits(cpu_cores=0.5))
    bed.journal.clear()
    bed.restart({container: "u1"})
    record = bed.node.containers.live[container]
    assert (record.user, record.state, record.unrecorded) == ("u1", ContainerState.RUNNING, True)
    assert not [one for one in bed.done if isinstance(one, i.KillContainer | i.RemoveContainer | i.Confine)]
    bed.send(e.SessionOpened(1, "u1", 1, ""))
    bed.send(e.Asked(m.KILL, 1, ContainerRef(container=container)))
    assert [one.container for one in bed.done if isinstance(one, i.KillContainer)] == [container]
    bed.exits(container, 137)
    ended = bed.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.by is EndedBy.CANCELLED


def test_a_placed_command_whose_container_record_is_lost_ends_as_its_task() -> None:
    bed = Bed()
    spec = ContainerSpec(argv=("x",), memory_bytes=1 << 20, limits=Limits(cpu_cores=0.5))
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=spec)
    decision = api.Assign(job="o-1", stage="s", user="u", origin="o", priority=0.0, request=request)
    bed.send(e.Decided(1, [decision]))
    (container,) = bed.node.containers.live
    bed.send(e.ContainerStarted(container, 7, {}, 1e9))
    del bed.journal["containers", container]
    bed.restart({container: "u"})
    record = bed.node.containers.live[container]
    assert (record.task, record.limits, record.unrecorded) == ("t", spec.limits, False)
    bed.exits(container, 6)
    told = [one.params for one in bed.done if isinstance(one, i.TellMaster)]
    assert [one.ended.exit_status for one in told if isinstance(one, api.CommandEnded)] == [6]
