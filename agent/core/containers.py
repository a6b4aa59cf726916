"""The containers of the node: from start to end, and why each ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from agent.core.confinement import worth_saying
from agent.core.events import ContainerExited
from agent.core.instructions import (
    AdoptProcess,
    Freeze,
    Instruction,
    KillContainer,
    Record,
    RemoveContainer,
    Signal,
    StartContainer,
    WatchMemory,
    WatchOrphan,
)
from agent.core.records import ContainerRecord, ContainerState
from agent.core.session import Session
from penstock.model import Ended, EndedBy, ResourceKind
from penstock.model.life_cycle import next_state
from penstock.model.units import format_bytes
from penstock.model.work import LONGEST_NAME
from penstock.wire.errors import bad_request, refused

ROOM = "containers"
_STARTING, _RUNNING, _PAUSED = ContainerState.STARTING, ContainerState.RUNNING, ContainerState.PAUSED
_WARNED, _STOPPING = ContainerState.WARNED, ContainerState.STOPPING
#: The life of a container: its state and a step → its next state. A step without a row is an error of the program.
LIFE: Mapping[tuple[ContainerState, str], ContainerState] = {
    (_STARTING, "started"): _RUNNING,
    (_WARNED, "started"): _WARNED,  # it was given notice, or to be stopped, before it had started
    (_STOPPING, "started"): _STOPPING,
    (_RUNNING, "paused"): _PAUSED,
    (_PAUSED, "resumed"): _RUNNING,
    (_STARTING, "warned"): _WARNED,
    (_RUNNING, "warned"): _WARNED,
    (_WARNED, "promoted"): _RUNNING,
    **{(state, "stopped"): _STOPPING for state in (_STARTING, _RUNNING, _PAUSED, _WARNED)},
    **{(state, "taken back"): _RUNNING for state in (_STARTING, _RUNNING, _PAUSED, _WARNED)},
    (_STOPPING, "taken back"): _STOPPING,
    **{(state, "ended"): ContainerState.ENDED for state in (_STARTING, _RUNNING, _PAUSED, _WARNED, _STOPPING)},
}
#: The bound on all users together, as a multiple of the bound per user.
USERS_WORTH = 20


class EndedContainers:
    """Ended containers, in the order of their ends; each user's latest are kept.

    When the bound on all users together is exceeded, the user with the most records loses the oldest one: a user with
    few loses none to a user with many.
    """

    def __init__(self, keep: int) -> None:
        self.by_id: dict[str, ContainerRecord] = {}
        self._of_user: dict[str, deque[str]] = {}
        self._keep = keep

    def add(self, record: ContainerRecord) -> list[str]:
        """Keep one more record; return the ids dropped, possibly including its own."""
        self.by_id[record.container] = record
        self._of_user.setdefault(record.user, deque()).append(record.container)
        return self._trim(record.user) + self._trim_all()

    def keep(self, keep: int) -> list[str]:
        """Keep the latest ``keep`` of each user from now on; return the ids dropped."""
        self._keep = keep
        dropped = [container for user in list(self._of_user) for container in self._trim(user)]
        return dropped + self._trim_all()

    def _trim(self, user: str) -> list[str]:
        dropped = []
        while len(self._of_user.get(user, ())) > self._keep:
            dropped.append(self._drop_oldest(user))
        return dropped

    def _trim_all(self) -> list[str]:
        dropped = []
        while len(self.by_id) > USERS_WORTH * self._keep:
            dropped.append(self._drop_oldest(max(self._of_user, key=lambda user: len(self._of_user[user]))))
        return dropped

    def _drop_oldest(self, user: str) -> str:
        own = self._of_user[user]
        container = own.popleft()
        if not own:
            del self._of_user[user]
        del self.by_id[container]
        return container


class Containers:
    """The live records by id, and each user's most recently ended containers."""

    def __init__(self, keep_ended: int) -> None:
        self.live: dict[str, ContainerRecord] = {}
        self.ended = EndedContainers(keep_ended)
        self._order = 0
        self._watched = False

    def find(self, container: str) -> ContainerRecord | None:
        """Return a live container, or an ended one that is still kept."""
        return self.live.get(container) or self.ended.by_id.get(container)

    def accessible(self, container: str, opened: Session) -> ContainerRecord:
        """Return a container that this session may access.

        Raises:
            RpcError: ``bad_request``: no such container; ``refused``: another user's container.
        """
        record = self.find(container)
        if record is None:
            wrong = f"there is no container {container[:128]!r} on this host, or it ended too long ago"
            raise bad_request(wrong, field="container", remedy="see `penstock status`, for jobs `penstock jobs`")
        if record.user != opened.user and not opened.operator:
            raise refused(f"container {container!r} belongs to {record.user}", field="container")
        return record

    def watched_closely(self, *, slack_awaited: bool) -> AbstractSet[str]:
        """Return the containers on whose stalled times something is decided at each sample: executors, and those with
        promised cores or a profile; all while work runs on slack, or waits for it.
        """
        live = self.live.values()
        every = slack_awaited or any(record.opportunistic for record in live)
        return {
            record.container
            for record in live
            if every or record.promised_cores or record.profile is not None or record.executor is not None
        }

    def promised(self) -> list[str]:
        """Return the running containers with promised memory."""
        return [
            record.container
            for record in self.live.values()
            if record.state is _RUNNING and not record.opportunistic and record.spec.memory_bytes
        ]

    def add(self, record: ContainerRecord, adopt: AdoptProcess | None = None) -> list[Instruction]:
        """Start a container or adopt a process. It is journaled first, so that every running container is known."""
        self._order += 1
        record.order = self._order
        self.live[record.container] = record
        start = adopt or StartContainer(record.container, record.user, record.spec, record.rank_weight, record.groups)
        return [Record(ROOM, record.container, record), start, *(self.watch() if record.opportunistic else ())]

    def watch(self) -> list[Instruction]:
        """Watch memory while opportunistic containers hold some of it."""
        wanted = any(record.opportunistic for record in self.live.values())
        if wanted == self._watched:
            return []
        self._watched = wanted
        return [WatchMemory(wanted)]

    def take_back(self, record: ContainerRecord, pid: int) -> None:
        """Take over a container that outlived an agent; the connection that launched it is gone."""
        self._order = max(self._order, record.order)
        record.pid = pid
        _step(record, "taken back")
        self.live[record.container] = record

    def started(self, container: str, pid: int, not_enforced: dict[str, str], at: float) -> list[Instruction]:
        """Record that the launcher has started a container."""
        record = self.live[container]
        record.pid = pid
        record.started_at = at
        self.confined(container, not_enforced)
        if _step(record, "started") is _RUNNING:
            return [Record(ROOM, container, record)]
        return [KillContainer(container, record.stopping_reason)]

    def orphan(self, container: str) -> list[Instruction]:
        """Mark a container whose launcher died. It runs on; only its exit status will not be known."""
        record = self.live[container]
        record.orphaned = True
        return [Record(ROOM, container, record), WatchOrphan(container)]

    def confined(self, container: str, not_enforced: dict[str, str]) -> None:
        """Record which of its settings the kernel does not enforce."""
        record = self.live.get(container)
        if record is not None:
            record.not_enforced = worth_saying(
                not_enforced, record.spec, record.limits, opportunistic=record.opportunistic
            )

    def pause(self, container: str) -> list[Instruction]:
        """Freeze a container. This is journaled before, so that the next agent thaws it."""
        record = self.live[container]
        if record.state is not _RUNNING:
            return []
        _step(record, "paused")
        return [Record(ROOM, container, record), Freeze(container, frozen=True)]

    def resume(self, container: str) -> list[Instruction]:
        """Thaw a container."""
        record = self.live[container]
        if record.state is not _PAUSED:
            return []
        _step(record, "resumed")
        return [Freeze(container, frozen=False), Record(ROOM, container, record)]

    def warn(self, container: str, signal: int) -> list[Instruction]:
        """Give a container notice of its end, after thawing it: a frozen process could not react."""
        thaw = self.resume(container)
        _step(self.live[container], "warned")
        return [*thaw, Signal(container, signal)]

    def promote(self, record: ContainerRecord, slot: ResourceKind | None) -> list[Instruction]:
        """Give a container the same limits in the regular class, in place (UBIS §IV.D), and the ``slot`` it needs."""
        record.opportunistic = False
        record.hold(slot)
        if record.state is _WARNED:
            _step(record, "promoted")
        instructions = self.resume(record.container)
        if record.state is _RUNNING:
            instructions.append(record.confine())
        return instructions

    def stop(self, container: str, by: EndedBy, reason: str) -> list[Instruction]:
        """Kill a container for a recorded reason; the first reason is kept."""
        record = self.live.get(container)
        if record is None or record.state is _STOPPING:
            return []
        starting = record.state is _STARTING
        _step(record, "stopped")
        record.stopping_by = by
        record.stopping_reason = reason
        instructions: list[Instruction] = [Record(ROOM, container, record)]
        if not starting:
            instructions.append(KillContainer(container, reason))
        return instructions

    def end(self, container: str, ended: Ended) -> list[Instruction]:
        """Record how a container ended, here and in the journal, before anything of it is removed.

        The command's environment is dropped: it may be large or hold secrets, and nothing reads it any more.
        """
        record = self.live.pop(container)
        self._order += 1
        record.order = self._order
        _step(record, "ended")
        record.ended = ended
        record.spec = msgspec.structs.replace(record.spec, env={})
        kept = Record(ROOM, container, record)
        dropped = _unrecord(self.ended.add(record))
        return [kept, RemoveContainer(container), *dropped, *self.watch()]

    def take_back_ended(self, records: list[ContainerRecord]) -> list[Instruction]:
        """Take over the ended containers of an earlier agent, up to ``keep_ended``."""
        dropped: list[str] = []
        for record in sorted(records, key=lambda record: record.order):
            self._order = max(self._order, record.order)
            dropped += self.ended.add(record)
        return _unrecord(dropped)

    def keep(self, keep_ended: int) -> list[Instruction]:
        """Keep the latest ``keep_ended`` containers of each user."""
        return _unrecord(self.ended.keep(keep_ended))


def _step(record: ContainerRecord, step: str) -> ContainerState:
    """Take the next step of a container's life. Raises: TransitionError."""
    record.state = next_state(LIFE, record.state, step)
    return record.state


def _unrecord(containers: list[str]) -> list[Instruction]:
    return [Record(ROOM, container, None) for container in containers]


def how_it_ended(record: ContainerRecord, event: ContainerExited) -> Ended:
    """Return the cause and the reason of a container's end. A kill by the agent keeps its recorded reason."""
    by, reason = EndedBy.EXIT, ""
    if record.stopping_by is not None:
        by, reason = record.stopping_by, record.stopping_reason
    elif event.exit_status is None and record.adopted and not record.orphaned:
        reason = "it was adopted: only its parent could see its exit status"
    elif event.exit_status is None:
        by, reason = EndedBy.LOST, "the launcher that could see its exit status died"
    elif event.oom_kills and event.signal == 9:
        limit = record.spec.limits.memory_max_bytes
        by = EndedBy.OOM
        reason = (
            f"killed by the kernel: more than memory.max ({format_bytes(limit)})" if limit else "killed by the kernel"
        )
    elif event.signal is not None:
        by, reason = EndedBy.SIGNAL, f"signal {event.signal}"
    elif event.oom_kills:
        reason = f"{event.oom_kills} of its processes were killed by the kernel for exceeding memory.max"
    return Ended(
        by=by,
        exit_status=event.exit_status,
        reason=reason,
        cpu_seconds=event.cpu_seconds,
        memory_peak_bytes=event.memory_peak_bytes,
        wall_seconds=max(0.0, event.ended_at - record.started_at) if record.started_at else 0.0,
    )


def shown_name(record: ContainerRecord) -> str:
    """Return the name of a container's command, or else its program, at most as long as a name may be."""
    return (record.spec.name or record.spec.argv[0])[:LONGEST_NAME]
