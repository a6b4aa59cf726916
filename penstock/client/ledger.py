"""PURE. What a framework still has with its agent: the part of the client that must survive an agent's restart.

A monotask is *queued*, then *granted* (at most once), then it has ended (exactly once). When the connection is lost the
agent forgets both kinds, so after a reconnection all of them are announced again, the granted ones as ``running``; what
had ended in the meantime needs no message any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from penstock.model.container import Ended, EndedBy
from penstock.model.resources import ResourceKind
from penstock.model.work import MonotaskId, MonotaskSpec, TaskRequest
from penstock.wire.agent_api import Completion


@dataclass(slots=True)
class Outgoing:
    """What is to be sent for one job now, each list as one message, in this order."""

    submit: list[MonotaskSpec] = field(default_factory=list)
    complete: list[Completion] = field(default_factory=list)
    cancel: list[MonotaskId] = field(default_factory=list)


class MonotaskLedger:
    """The monotasks of one job on one host that have not ended."""

    def __init__(self) -> None:
        self._specs: dict[MonotaskId, MonotaskSpec] = {}
        self._granted: set[MonotaskId] = set()
        self._unsent: dict[MonotaskId, None] = {}
        self._completed: list[Completion] = []
        self._cancelled: list[MonotaskId] = []
        self._last_id = 0
        self._linked = False

    def __len__(self) -> int:
        return len(self._specs)

    def submit(self, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = "") -> int:
        """A new monotask's id."""
        self._last_id += 1
        spec = MonotaskSpec(id=self._last_id, kind=kind, input_bytes=input_bytes, stage=stage, task=task)
        self._specs[spec.id] = spec
        self._unsent[spec.id] = None
        return self._last_id

    def grant(self, ids: Iterable[MonotaskId]) -> list[MonotaskId]:
        """Those that may run from now on. A grant that crossed a cancellation, or came twice, is none."""
        fresh: list[MonotaskId] = []
        if not self._linked:
            return fresh
        for one in ids:
            if one in self._specs and one not in self._granted and one not in self._unsent:
                self._granted.add(one)
                fresh.append(one)
        return fresh

    def is_granted(self, one: MonotaskId) -> bool:
        """Whether it may run and has not ended."""
        return one in self._granted

    def complete(self, one: MonotaskId, *, failed: bool = False) -> bool:
        """Whether this ended it (False: it had ended already).

        Raises:
            ValueError: it was not granted yet.
        """
        if one not in self._specs:
            return False
        if one not in self._granted:
            raise ValueError(f"monotask {one} cannot be completed: it waits for its grant")
        known_to_agent = self._remove(one)
        if known_to_agent:
            self._completed.append(Completion(id=one, failed=failed))
        return True

    def cancel(self, one: MonotaskId) -> bool:
        """Whether this ended it (False: it had ended already)."""
        if one not in self._specs:
            return False
        if self._remove(one):
            self._cancelled.append(one)
        return True

    def refuse(self, ids: Iterable[MonotaskId]) -> list[MonotaskId]:
        """The agent refused a submission: those of it that end by that."""
        ended = [one for one in ids if one in self._specs]
        for one in ended:
            self._remove(one)
        return ended

    def clear(self) -> list[MonotaskId]:
        """All that is left ends, and nothing is to be sent about it (the job is over, or the agent is)."""
        self._forget_outgoing()
        ended = list(self._specs)
        self._specs.clear()
        self._granted.clear()
        self._unsent.clear()
        return ended

    def unlink(self) -> None:
        """The connection is gone and with it what the agent knew of us."""
        self._linked = False
        self._forget_outgoing()

    def link(self) -> None:
        """The job is known to the agent (again): announce everything that lives, in the order of submission."""
        self._linked = True
        self._unsent = dict.fromkeys(self._specs)

    def take(self) -> Outgoing:
        """What to send now; nothing while the agent does not know the job."""
        out = Outgoing()
        if not self._linked:
            return out
        for one in self._unsent:
            spec = self._specs[one]
            out.submit.append(msgspec.structs.replace(spec, running=True) if one in self._granted else spec)
        self._unsent.clear()
        out.complete, self._completed = self._completed, out.complete
        out.cancel, self._cancelled = self._cancelled, out.cancel
        return out

    def _remove(self, one: MonotaskId) -> bool:
        """Whether the agent must be told: it has heard, or is about to hear, of this monotask."""
        del self._specs[one]
        self._granted.discard(one)
        if one in self._unsent:
            del self._unsent[one]
            return False
        return self._linked

    def _forget_outgoing(self) -> None:
        self._completed = []
        self._cancelled = []


@dataclass(slots=True)
class _Task:
    request: TaskRequest
    stage: str
    opportunistic: bool
    confirmed: bool = False  # the agent said that it took the request
    node: str | None = None
    ended: Ended | None = None


class PlacementLedger:
    """The tasks of one job that were given to the agent for placement. Each is placed, and ends, at most once."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def ask(self, stage: str, requests: Iterable[TaskRequest], *, opportunistic: bool) -> None:
        """Tasks are about to be sent.

        Raises:
            ValueError: a task of that name was asked for before (the agent would answer with how that one ended).
        """
        requests = list(requests)
        seen: set[str] = set()
        for name in (request.task for request in requests):
            if name in self._tasks or name in seen:
                raise ValueError(f"task {name!r} was asked for already; names are unique within a job")
            seen.add(name)
        for request in requests:
            self._tasks[request.task] = _Task(request, stage, opportunistic)

    def confirm(self, names: Iterable[str]) -> None:
        """The agent took them; from now on they are asked for again after a reconnection."""
        for name in names:
            self._tasks[name].confirmed = True

    def withdraw(self, names: Iterable[str]) -> None:
        """The agent did not take them."""
        for name in names:
            self._tasks.pop(name, None)

    def place(self, name: str, node: str) -> bool:
        """Whether this is news."""
        task = self._tasks.get(name)
        if task is None or task.ended is not None or task.node is not None:
            return False
        task.node = node
        return True

    def end(self, name: str, ended: Ended) -> bool:
        """Whether this is news."""
        task = self._tasks.get(name)
        if task is None or task.ended is not None:
            return False
        task.ended = ended
        return True

    def done(self, names: Iterable[str]) -> list[str]:
        """The framework executed them: those that end by that."""
        ended = Ended(by=EndedBy.EXIT, exit_status=0, reason="done by the framework")
        return [name for name in names if self.end(name, ended)]

    def cancel(self, names: Iterable[str]) -> list[str]:
        """Those that end at once: all but placed commands, whose end the agent reports."""
        ended = Ended(by=EndedBy.CANCELLED, reason="cancelled by the framework")
        return [name for name in names if not self._runs_as_command(name) and self.end(name, ended)]

    def clear(self, ended: Ended) -> list[str]:
        """All that is left ends (the job is over, or the agent is)."""
        return [name for name in self._tasks if self.end(name, ended)]

    def to_ask_again(self) -> list[tuple[str, bool, list[TaskRequest]]]:
        """(stage, opportunistic, tasks) whose placement or end is still owed to us after a reconnection.

        Framework tasks that have a node are not among them: we know ourselves when they end.
        """
        groups: dict[tuple[str, bool], list[TaskRequest]] = {}
        for task in self._tasks.values():
            owed = task.ended is None and (task.node is None or task.request.command is not None)
            if owed and task.confirmed:
                groups.setdefault((task.stage, task.opportunistic), []).append(task.request)
        return [(stage, opportunistic, requests) for (stage, opportunistic), requests in groups.items()]

    def node_of(self, name: str) -> str | None:
        """Where it was placed.

        Raises:
            KeyError: never asked for.
        """
        return self._tasks[name].node

    def end_of(self, name: str) -> Ended | None:
        """How it ended.

        Raises:
            KeyError: never asked for.
        """
        return self._tasks[name].ended

    def _runs_as_command(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and task.request.command is not None and task.node is not None
