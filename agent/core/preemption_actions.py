"""Turn the decisions of preemption into instructions, and record their subject, reason, numbers and rule."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import msgspec

from agent.core import events as e
from agent.core.containers import Containers
from agent.core.instructions import Explain, Instruction, Reclaim
from agent.core.node_resources import NodeResources
from agent.core.preemption import Act, Action, Preemption, View
from agent.core.records import ContainerState
from agent.core.settings import NodeSettings
from agent.core.slack import Slack
from agent.core.snapshot import Snapshot
from penstock.model import EndedBy

#: Upper bounds in seconds of the latency's buckets (Prometheus), followed by infinity.
BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Preempted(msgspec.Struct, frozen=True):
    """An action on an opportunistic container whose resources were needed, with its reason and numbers.

    ``at`` is Unix time; ``action`` is ``paused``, ``reclaimed``, ``warned``, ``preempted``, or ``dry run``.
    """

    at: float
    container: str
    resource: str
    action: str
    reason: str


class PreemptionLatency:
    """Time from the decision to preempt a container to its end: a histogram for operators.

    ``counts`` is per bucket, not cumulative.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._decided: dict[str, float] = {}

    def decided(self, container: str, now: float) -> None:
        """Record the decision to end a container."""
        self._decided.setdefault(container, now)

    def ended(self, container: str, now: float) -> None:
        """Record the end of a container, for any reason; counted if it had been decided here."""
        decided = self._decided.pop(container, None)
        if decided is not None:
            self.counts[bisect_left(BOUNDS_S, now - decided)] += 1
            self.sum_s += now - decided


class PreemptionActions:
    """The policy, and the record of its actions on this node."""

    def __init__(self, settings: NodeSettings, containers: Containers, resources: NodeResources, slack: Slack) -> None:
        #: The latest actions, as many as ended containers are kept.
        self.preempted: list[Preempted] = []
        self.acts: Counter[tuple[str, str]] = Counter()  # (action, resource) → count
        self.latency = PreemptionLatency()
        self.policy = Preemption(settings.preemption)
        self._dry_run, self._keep = settings.preemption.dry_run, settings.keep_ended
        self._containers = containers
        self._resources = resources
        self._slack = slack

    def reconfigure(self, settings: NodeSettings, at: float, now: float) -> list[Instruction]:
        """Replace the settings; actions that had begun under the former ones are completed. ``at`` is Unix time."""
        self._dry_run, self._keep = settings.preemption.dry_run, settings.keep_ended
        return self._carry_out(self.policy.reconfigure(settings.preemption), at, now, begun=True)

    def sampled(self, snapshot: Snapshot, at: float, now: float) -> list[Instruction]:
        """Apply a sample to preemption and to the tuning of T_alloc."""
        if any(record.opportunistic for record in self._containers.live.values()):
            instructions = self._carry_out(self.policy.sampled(self._view(snapshot, now), now), at, now)
        else:
            self.policy.rests()
            instructions = []
        preemptions = sum(count for (act, _), count in self.acts.items() if act in (Act.PAUSE, Act.END))
        self._slack.tune(preemptions, now)
        return instructions

    def memory_checked(self, event: e.MemoryChecked, now: float) -> list[Instruction]:
        """Apply a memory check between two samples."""
        view = self._view(event.snapshot, now)
        return self._carry_out(self.policy.looked(view, event.pressed, now), event.at, now)

    def reclaimed(self, event: e.Reclaimed, now: float) -> list[Instruction]:
        """Record the end of a reclaim; the next check decides whether it was enough."""
        self.policy.reclaimed(event.container)
        return []

    def woken(self, at: float, now: float) -> list[Instruction]:
        """End the containers whose grace period is over. ``at`` is Unix time."""
        return self._carry_out(self.policy.woken(now), at, now, begun=True)

    def _view(self, snapshot: Snapshot, now: float) -> View:
        live = list(self._containers.live.values())
        return View.of(snapshot, live, self._resources.ledger(now), self._slack.of_frameworks())

    def _carry_out(self, actions: list[Action], at: float, now: float, *, begun: bool = False) -> list[Instruction]:
        """Carry out actions and log each. A dry run only logs, except for actions ``begun`` before it."""
        instructions: list[Instruction] = []
        for action in actions:
            if action.act is Act.END and self._ends_already(action.container):
                continue
            done = action.act.value
            dry_run = self._dry_run and not begun
            if not dry_run:
                instructions += self._instructions(action)
                if action.act is Act.END:
                    self.latency.decided(action.container, now)
            if action.act is not Act.RESUME:
                record = Preempted(at, action.container, action.resource, "dry run" if dry_run else done, action.reason)
                self.preempted.append(record)
                del self.preempted[: max(0, len(self.preempted) - self._keep)]
            self.acts[done, action.resource] += not dry_run
            facts: dict[str, object] = {
                "container": action.container,
                "resource": action.resource,
                "why": action.reason,
            }
            if action.candidates:
                facts["candidates"] = action.candidates
            instructions.append(Explain(f"would have {done}" if dry_run else done, facts))
        return instructions

    def _ends_already(self, container: str) -> bool:
        """Return whether a container is being ended for another reason, such as by its user in its grace period."""
        record = self._containers.live.get(container)
        return record is not None and record.state is ContainerState.STOPPING

    def _instructions(self, action: Action) -> list[Instruction]:
        container = action.container
        record = self._containers.live.get(container)
        if record is None:
            return []
        match action.act:
            case Act.PAUSE:
                return self._containers.pause(container)
            case Act.RESUME:
                return self._containers.resume(container)
            case Act.RECLAIM:
                return [Reclaim(container, action.size_bytes)]
            case Act.WARN:
                assert record.spec.notice is not None
                return self._containers.warn(container, record.spec.notice.signal)
            case Act.END:
                return self._containers.stop(container, EndedBy.PREEMPTED, action.reason)
