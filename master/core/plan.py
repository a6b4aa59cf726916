"""The plan follower (Rayon §5.2): room for promised tasks.

Unpromised work is stopped only where a promised task has no other room: then as few commands as possible, newest
first, are stopped and wait for a place again. The room is kept for the promised tasks, which are placed there once it
is free. A framework's own tasks cannot be stopped from here: their slots go to promised jobs as they become free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from master.core.dues import Clock
from master.core.executors import Executors
from master.core.guarantees import Guarantees
from master.core.job import Key, Task
from master.core.kept_room import EPSILON, KeptRoom, Room
from master.core.membership import Membership
from master.core.node import Held, Node
from master.core.outbox import Outbox
from master.core.snapshot import holds
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import RoundQuotas, UserQuotas
from master.ordering import Guarantee
from penstock.model import KINDS, ResourceKind

#: Promised tasks for which room is made in one round; the next round continues.
_AT_ONCE = 200


@dataclass(eq=False, repr=False)
class PlanFollower:
    """Makes room for promised tasks."""

    _clock: Clock
    _members: Membership
    _outbox: Outbox
    _guarantees: Guarantees
    _executors: Executors
    _user_quotas: UserQuotas
    _tasks: TaskLifecycle
    _kept: KeptRoom

    def fill(self, limits: RoundQuotas | None) -> None:
        """Place promised tasks where the room that was made for them is free; executors follow by their profiles."""
        for key in self._kept.promised:
            task = self._members.task(key)
            job = self._members.jobs.get(key[0])
            if job is None or task is None or task.node or task.elastic or not job.admitted:
                continue
            node = self._kept.free_for(task)
            if node is None or (limits is not None and limits.take(job.user, self._user_quotas.amounts_of(job, task))):
                continue
            self._tasks.assign(job, task, node, f"room was made for it: {job.reservation} is promised its place")
        self._kept.settle()

    def make_room(self, now: float, limits: RoundQuotas | None) -> None:
        """After placement, stop other work that blocks promised tasks without a place or slot. Tasks of users at their
        limits are skipped: they would not be placed in that room.
        """
        at = self._clock.unix(now)
        members, promised = self._guarantees.of(at)
        jobs = self._members.jobs
        # reservations with ready tasks
        waiting = {members[job] for job in members if jobs[job].admitted and jobs[job].ready_count}
        self._guarantees.plan.saw(at, {one for one in waiting if one in promised and promised[one].lacking})
        if not promised:
            if self._kept.promised:
                self._kept.keep_promised({})
            return
        protected = {job: members[job] for job in members if members[job] in promised}
        held = {task.node for job in protected for task in self._members.jobs[job].tasks.values() if task.node}
        looked_at = {name: _Node(node, protected) for name, node in self._members.nodes.items() if name in held}
        self._give_slots(list(looked_at.values()), protected, promised)
        rooms = self._without_forecast(members, promised, looked_at, protected, limits)
        for task in list(self._lacking_tasks(members, promised, limits)):
            key, takes = (task.job, task.name), self._takes(task)
            before = self._kept.promised.get(key)
            if before is not None and (found := self._not_ready_yet(before, looked_at, protected)) is not None:
                found.keep_for(takes)
                rooms[key] = replace(before, reports=found.node.heartbeats) if found.leaving else before
                continue
            fewest, chosen = self._fewest(task, takes, looked_at, protected)
            if fewest is not None:
                self._stop(fewest, chosen, f"{members[task.job]} is promised its place")
                fewest.keep_for(takes)
                # No room begins where the task fits now: it waits for something else, such as a disk. Room that was
                # made stays, because commands would be stopped for it again.
                name = fewest.node.name
                if chosen or fewest.leaving or (before is not None and before.node == name):
                    rooms[key] = Room(name, takes.cores, takes.memory_bytes, fewest.node.heartbeats)
        if rooms or self._kept.promised:
            self._kept.keep_promised(rooms)

    def _not_ready_yet(self, room: Room, looked_at: dict[str, _Node], protected: Mapping[str, str]) -> _Node | None:
        """Return the node of a room while something leaves there, or until the node has reported since: its last report
        counts the cores of what has left, for which other work would be stopped in vain.
        """
        node = self._members.nodes.get(room.node)
        if node is None or not node.takes_work:
            return None
        one = _look(node, looked_at, protected)
        return one if one.leaving or node.heartbeats == room.reports else None

    def _without_forecast(
        self,
        members: dict[str, str],
        promised: dict[str, Guarantee],
        looked_at: dict[str, _Node],
        protected: Mapping[str, str],
        limits: RoundQuotas | None,
    ) -> dict[Key, Room]:
        """Return the rooms of promised executors whose forecast is fetched anew. Until it comes, no room can be made
        for them, and commands would be stopped for them again.
        """
        rooms: dict[Key, Room] = {}
        for key, room in self._kept.promised.items():
            task, node = self._executors.waiting.get(key), self._members.nodes.get(room.node)
            if task is None or task.request is None or node is None or not node.takes_work:
                continue
            job, guarantee = self._members.jobs[key[0]], promised.get(members.get(key[0], ""))
            if guarantee is None or not guarantee.lacking or self._executors.has_forecast(job, task):
                continue
            if limits is not None and limits.take(job.user, (room.cores, room.memory_bytes)):
                continue
            guarantee.take(holds(task.request))
            _look(node, looked_at, protected).keep_for(_Takes(room.cores, room.memory_bytes, None))
            rooms[key] = room
        return rooms

    def _fewest(
        self, task: Task, takes: _Takes, looked_at: dict[str, _Node], protected: Mapping[str, str]
    ) -> tuple[_Node | None, list[Held]]:
        """Return the node where the fewest commands are in a task's way, and these; None: the task fits nowhere."""
        fewest: _Node | None = None
        chosen: list[Held] = []
        for node in self._members.nodes.values():  # examine all nodes where a promised task lacks a place
            if not node.takes_work:
                continue
            one = _look(node, looked_at, protected)
            victims = one.in_the_way_of(task, takes)
            if victims is not None and (fewest is None or len(victims) < len(chosen)):
                fewest, chosen = one, victims
        return fewest, chosen

    def _give_slots(self, nodes: list[_Node], protected: dict[str, str], promised: dict[str, Guarantee]) -> None:
        """Give slots of other jobs to commands that wait for one on their nodes, up to their reservation's promise."""
        waiting = [(one, held) for one in nodes for held in one.waiting()]
        if not waiting:
            return
        promised = {name: replace(one, held=one.held[:]) for name, one in promised.items()}
        for _, held in waiting:  # a waiting command holds nothing yet
            promised[protected[held.job]].take([-amount for amount in held.holds()])
        for one, held in waiting:
            guarantee = promised[protected[held.job]]
            if guarantee.lacking:
                guarantee.take(held.holds())
                self._stop(one, one.with_slots(held.kind)[:1], f"what is promised waits for a slot of {held.kind}")

    def _stop(self, on: _Node, victims: list[Held], why: str) -> None:
        """Stop these commands on a node; they wait for a place again."""
        on.free(victims)
        for held in victims:
            self._tasks.withdraw(on.node, held, why, again=True)
            self._outbox.counts["preempted_for_promises"] += 1
            self._outbox.explain("preempted", node=on.node.name, job=held.job, task=held.task, why=why)
            if (found := self._members.at_home(on.node, held.key)) is not None:
                self._tasks.requeue(*found)

    def _lacking_tasks(
        self, members: dict[str, str], promised: dict[str, Guarantee], limits: RoundQuotas | None
    ) -> Iterable[Task]:
        """Yield ready tasks within their reservation's promise, in the order in which their jobs came."""
        count = 0
        jobs = [self._members.jobs[name] for name in members]
        for job in sorted(jobs, key=lambda job: (job.submitted_at, job.sequence)):
            guarantee = promised.get(members[job.job])
            if guarantee is None or not job.admitted:
                continue
            regular = [task for tasks in job.ready_for_regular().values() for task in tasks]
            for task in (*regular, *self._executors.waiting_of(job)):
                if not guarantee.lacking or count == _AT_ONCE:
                    break
                assert task.request is not None
                if limits is not None and limits.take(job.user, self._user_quotas.amounts_of(job, task)):
                    continue
                guarantee.take(holds(task.request))
                count += 1
                yield task

    def _takes(self, task: Task) -> _Takes:
        request = task.request
        assert request is not None
        if task.elastic:  # an executor runs in no slot, and holds its largest demands
            cores, memory_bytes = self._executors.largest(self._members.jobs[task.job], task)
            return _Takes(cores, memory_bytes, None)
        command = request.command
        if command is None:
            return _Takes(0.0, request.memory_bytes, None)
        kind = None if command.cpu_cores and request.command_kind is ResourceKind.CPU else request.command_kind
        return _Takes(command.cpu_cores, request.memory_bytes, kind)


@dataclass(frozen=True, slots=True)
class _Takes:
    """The resources a task takes of a node; ``kind`` is that of its slot, None where it runs in no slot."""

    cores: float
    memory_bytes: int
    kind: ResourceKind | None


class _Node:
    """The resources of a node that would be free once all withdrawn tasks have left.

    Its slots belong to the commands that came first: later ones wait on the node for them.
    """

    def __init__(self, node: Node, protected: Mapping[str, str]) -> None:
        self.node = node
        self._protected = protected
        staying = [held for held in node.held.values() if not held.leaving]
        leaving = [held for held in node.held.values() if held.regular and held.leaving]
        self.leaving = bool(leaving)
        #: Newest first.
        self._others = [
            held for held in reversed(staying) if held.regular and held.command and held.job not in protected
        ]
        self._memory = float(node.memory_free_bytes() + sum(held.memory_bytes for held in leaving))
        self._cores = node.cores_free() + sum(held.cores for held in leaving)
        self._in_line = {
            kind: [held for held in staying if held.command and held.in_a_slot and held.kind is kind] for kind in KINDS
        }
        self._slots = {kind: int(slots) for kind, slots in zip(KINDS, node.slots, strict=True)}

    def waiting(self) -> list[Held]:
        """Return promised commands for which no slot is left."""
        return [
            held
            for kind, line in self._in_line.items()
            for held in line[self._slots[kind] :]
            if held.job in self._protected
        ]

    def in_the_way_of(self, task: Task, takes: _Takes) -> list[Held] | None:
        """Return the commands to stop so that a task fits; None: it cannot fit here."""
        request, kind = task.request, takes.kind
        assert request is not None
        if request.nodes and self.node.name not in request.nodes:
            return None
        cores, memory = self._cores - takes.cores, self._memory - takes.memory_bytes
        short = kind is not None and self._slots[kind] <= len(self._in_line[kind])
        with_slots = self.with_slots(kind) if kind is not None else []
        victims: list[Held] = []
        for held in self._others:
            if cores >= -EPSILON and memory >= 0 and not short:
                break
            has_slot = held in with_slots
            if (short and has_slot) or (cores < -EPSILON and held.cores) or (memory < 0 and held.memory_bytes):
                victims.append(held)
                cores, memory = cores + held.cores, memory + held.memory_bytes
                short = short and not has_slot
        return victims if cores >= -EPSILON and memory >= 0 and not short else None

    def free(self, victims: list[Held]) -> None:
        """Count the resources of these commands as free, because they are being stopped."""
        for held in victims:
            self._others.remove(held)
            if held in self._in_line[held.kind]:  # executors have no slot
                self._in_line[held.kind].remove(held)
            self._memory += held.memory_bytes
            self._cores += held.cores

    def keep_for(self, takes: _Takes) -> None:
        """Reserve the room, so that no other task counts on it."""
        self._memory -= takes.memory_bytes
        self._cores -= takes.cores
        if takes.kind is not None:
            self._slots[takes.kind] -= 1

    def with_slots(self, kind: ResourceKind) -> list[Held]:
        """Return other jobs' commands that have a slot, newest first."""
        return [held for held in reversed(self._in_line[kind][: self._slots[kind]]) if held.job not in self._protected]


def _look(node: Node, looked_at: dict[str, _Node], protected: Mapping[str, str]) -> _Node:
    """Return what would be free on a node; it is summed up once in a round."""
    if node.name not in looked_at:
        looked_at[node.name] = _Node(node, protected)
    return looked_at[node.name]
