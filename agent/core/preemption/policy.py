"""The actions against contention, and their times (UBIS §IV.C, work-preserving where the resource allows it).

CPU, disk and network: after ``after`` consecutive samples, victims are frozen; they resume when there has been room for
as long. Memory: at once; page cache is reclaimed first, if that suffices; otherwise victims are ended, after a notice
if they asked for one. A task of the master that makes no progress here for ``starved_after_s`` is handed back.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from agent.core.preemption.contention import Contention, contention, fits_again, stalled
from agent.core.preemption.victims import RULES, cover, dump, in_order
from agent.core.preemption.view import RESOURCES, View
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import PreemptionSettings

#: The time after which a reclaim without an answer is no longer waited for.
_RECLAIM_S = 2.0
#: A running container starves if it waits for a processor at least this part of the time and gets less than this many
#: cores.
_STALLED, _GETS = 0.9, 0.05


class Act(enum.StrEnum):
    """An action on a container, by the name under which it is recorded."""

    PAUSE = "paused"
    RESUME = "resumed"
    RECLAIM = "reclaimed"
    WARN = "warned"
    END = "preempted"


@dataclass(frozen=True, slots=True)
class Action:
    """``reason`` has the rule and the numbers; ``candidates`` lists the candidates. ``size_bytes`` is for a reclaim."""

    act: Act
    container: str
    resource: str
    reason: str
    candidates: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Paused:
    resource: str
    amount: float
    since: float


class Preemption:
    """The policy of one node, given one view per tick. It returns actions, which the caller carries out (or not)."""

    def __init__(self, settings: PreemptionSettings) -> None:
        self._settings = settings
        self._breaches = dict.fromkeys(RESOURCES, 0)
        self._calm = dict.fromkeys(RESOURCES, 0)
        self._cool_until = dict.fromkeys(RESOURCES, float("-inf"))
        self._paused: dict[str, _Paused] = {}
        self._warned: dict[str, tuple[float, str, str]] = {}  # container → deadline, resource, reason
        self._starving: dict[str, float] = {}
        self._reclaiming: dict[str, float] = {}  # container → deadline of its answer
        self._reclaimed = False  # since memory was last needed: reclaiming was not enough

    def reconfigure(self, settings: PreemptionSettings) -> list[Action]:
        """Replace the settings. A dry run resumes paused containers, which it would otherwise never do; so does a
        threshold of 1 those that were paused for the CPU.
        """
        self._settings = settings
        if settings.dry_run:
            over, why = dict(self._paused), "preemption is a dry run from now on"
        elif settings.thresholds.cpu >= 1.0:
            over = {one: was for one, was in self._paused.items() if was.resource == "cpu"}
            why = "nothing is frozen for the CPU from now on"
        else:
            return []
        self._paused = {one: was for one, was in self._paused.items() if one not in over}
        return [Action(Act.RESUME, one, was.resource, why) for one, was in over.items()]

    def sampled(self, view: View, now: float) -> list[Action]:
        """Return the actions of a tick, for every resource."""
        actions = self._memory(view, (), now)
        going = {action.container for action in actions if action.act in (Act.WARN, Act.END)}
        for resource in RESOURCES[1:]:
            actions += self._contended(resource, view, going, now)
            going |= {action.container for action in actions}
        actions += self._resume(view, going, now)
        return actions + self._starved(view, going, now)

    def rests(self) -> None:
        """Apply a tick without opportunistic containers: there is no contention."""
        self._breaches = dict.fromkeys(RESOURCES, 0)
        self._calm = dict.fromkeys(RESOURCES, 0)
        self._reclaimed = False

    def looked(self, view: View, pressed: Collection[str], now: float) -> list[Action]:
        """Return the actions of a memory check between two ticks; ``pressed`` containers stall on memory."""
        return self._memory(view, pressed, now)

    def reclaimed(self, container: str) -> None:
        """Record the end of a reclaim."""
        self._reclaiming.pop(container, None)

    def due(self) -> float | None:
        """Return when the next grace period ends."""
        return min((deadline for deadline, _, _ in self._warned.values()), default=None)

    def woken(self, now: float) -> list[Action]:
        """End the containers whose grace period is over, once: a kill may take long, and there is none to wake for."""
        over = {container: warned for container, warned in self._warned.items() if warned[0] <= now}
        self._warned = {container: warned for container, warned in self._warned.items() if container not in over}
        return [Action(Act.END, container, resource, reason) for container, (_, resource, reason) in over.items()]

    def drop(self, container: str) -> None:
        """Drop a container that ended or is no longer opportunistic."""
        for kept in (self._paused, self._warned, self._starving, self._reclaiming):
            kept.pop(container, None)

    # ------------------------------------------------------------ memory

    def _memory(self, view: View, pressed: Collection[str], now: float) -> list[Action]:
        threshold = self._settings.thresholds.memory
        short = stalled(view, pressed) if pressed else None
        found = short or contention("memory", view, threshold)
        if found is None:
            if contention("memory", view, threshold - self._settings.hysteresis) is None:
                self._reclaimed = False
            return []
        if short is not None and self._warned:  # a promise waits, so grace periods end
            warned, self._warned = self._warned, {}
            return [Action(Act.END, c, "memory", f"memory: {short.text}") for c in warned]
        self._reclaiming = {c: until for c, until in self._reclaiming.items() if until > now}
        if self._reclaiming:
            return []
        candidates = in_order("memory", view, self._settings.order)
        listed = dump("memory", view, candidates)
        if not self._reclaimed and (actions := self._reclaim(found, view, candidates, listed, now)):
            return actions
        if self._cooling("memory", now):
            return []
        victims = cover(found.amount, candidates, lambda record: view.held("memory", record), ())
        return [self._end(record, found, listed, now, urgent=short is not None) for record in victims]

    def _reclaim(
        self, found: Contention, view: View, candidates: list[ContainerRecord], listed: str, now: float
    ) -> list[Action]:
        """Reclaim the candidates' page cache if it suffices: no work is lost."""
        victims = cover(found.amount, candidates, lambda record: view.use(record).memory_cache_bytes, ())
        if sum(view.use(record).memory_cache_bytes for record in victims) < found.amount:
            return []
        self._reclaimed = True
        reason = f"memory: {found.text}; its page cache covers that"
        actions = []
        for record in victims:
            if not self._settings.dry_run:
                self._reclaiming[record.container] = now + _RECLAIM_S
            size = view.use(record).memory_cache_bytes
            actions.append(Action(Act.RECLAIM, record.container, "memory", reason, listed, size))
        return actions

    def _end(self, record: ContainerRecord, found: Contention, listed: str, now: float, *, urgent: bool) -> Action:
        reason = f"{found.resource}: {found.text}; {RULES[self._settings.order]}"
        return self._notice_or_end(record, found.resource, reason, listed, now, urgent=urgent)

    def _notice_or_end(
        self, record: ContainerRecord, resource: str, reason: str, listed: str, now: float, *, urgent: bool
    ) -> Action:
        notice = record.spec.notice
        if notice is None or urgent or self._settings.dry_run:
            return Action(Act.END, record.container, resource, reason, listed)
        deadline = now + min(notice.grace_s, self._settings.grace_max_s)
        self._warned[record.container] = (deadline, resource, reason)
        return Action(Act.WARN, record.container, resource, reason, listed)

    # ------------------------------------------------------------ CPU, disk, network

    def _contended(self, resource: str, view: View, going: Collection[str], now: float) -> list[Action]:
        found = contention(resource, view, getattr(self._settings.thresholds, resource))
        if found is None:
            self._breaches[resource] = 0
            return []
        self._breaches[resource] += 1
        if self._breaches[resource] < self._settings.samples(resource) or self._cooling(resource, now):
            return []
        self._breaches[resource] = 0
        candidates = in_order(resource, view, self._settings.order)
        listed = dump(resource, view, candidates)
        reason = f"{resource}: {found.text}; {RULES[self._settings.order]}"
        actions = []
        for record in cover(found.amount, candidates, lambda one: view.held(resource, one), going):
            if not self._settings.dry_run:
                self._paused[record.container] = _Paused(resource, view.held(resource, record), now)
            actions.append(Action(Act.PAUSE, record.container, resource, reason, listed))
        return actions

    def _resume(self, view: View, going: Collection[str], now: float) -> list[Action]:
        """Resume the oldest container paused for a resource, one at a time."""
        actions = []
        for resource in RESOURCES[1:]:
            waiting = [
                (record, paused)
                for record in sorted(view.paused, key=lambda record: record.order)
                if (paused := self._paused.get(record.container)) is not None and paused.resource == resource
            ]
            threshold = getattr(self._settings.thresholds, resource) - self._settings.hysteresis
            first = waiting[0] if waiting else None
            if first is None or not fits_again(resource, view, threshold, first[0], first[1].amount):
                self._calm[resource] = 0
                continue
            self._calm[resource] += 1
            record, paused = first
            rested = now >= paused.since + self._settings.cooldown_s
            if self._calm[resource] < self._settings.samples(resource) or not rested or record.container in going:
                continue
            self._calm[resource] = 0
            self._paused.pop(record.container)
            self._cool_until[resource] = now + self._settings.cooldown_s
            actions.append(Action(Act.RESUME, record.container, resource, f"{resource}: there is room again"))
        return actions

    def _starved(self, view: View, going: Collection[str], now: float) -> list[Action]:
        """Hand back starved tasks of the master, which can place them elsewhere. Other containers wait for any time."""
        actions = []
        after_s = self._settings.starved_after_s
        for record in (*view.running, *view.paused):
            use = view.use(record)
            paused = record.state is ContainerState.PAUSED
            waits = use.cpu_stalled >= _STALLED and use.cpu_cores < _GETS
            if not after_s or not record.task or not (paused or waits):
                self._starving.pop(record.container, None)
                continue
            since = self._starving.setdefault(record.container, now)
            if now - since < after_s or record.container in going:
                continue
            self._starving[record.container] = now
            how = "was paused" if paused else "got no processor"
            reason = f"starved: it {how} for {now - since:.0f} s here; handed back to the master"
            actions.append(self._notice_or_end(record, "starved", reason, "", now, urgent=False))
        return actions

    def _cooling(self, resource: str, now: float) -> bool:
        """Return whether the last action is too recent; if not, this one counts as the last. Memory only waits in a dry
        run, in which nothing is freed and the next check would repeat the action.
        """
        if now < self._cool_until[resource]:
            return True
        if resource != "memory" or self._settings.dry_run:
            self._cool_until[resource] = now + self._settings.cooldown_s
        return False
