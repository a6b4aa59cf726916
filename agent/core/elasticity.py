"""Limits that change while a container runs: on request, or by a profile, slot by slot (Elasecutor §III).

This module decides the limits; lowering memory without an OOM kill is left to the cgroup (agent.cgroups.shrink). An
executor was placed by its profile: it enters the next stage when its framework reports that, and is corrected when it
is late (§III.C). All other containers follow the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent.core.containers import ROOM
from agent.core.instructions import Explain, Instruction, Record
from agent.core.memory_levels import levels
from agent.core.plans import Plan, Room, ahead
from agent.core.profile_follower import EPSILON_S, ProfileFollower, begin, limits_by_the_clock, limits_of, promise_of
from agent.core.records import ContainerRecord
from agent.core.reprovisioning import BOUNDED, Hindrance, Observation, corrected, held_back, lateness
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Limits
from penstock.model.resource_vector import NOTHING, RESOURCES, ResourceVector


class Elasticity:
    """The containers that follow a profile, and the time of the next change.

    ``version`` rises with every change of an executor's plan, but not with the passing of time.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self.version = 0
        self.settings = settings  # containers that follow a profile keep the lead and lag that they began with
        self._following: dict[str, ProfileFollower] = {}
        self._observation: Observation | None = None

    # ------------------------------------------------------------ followed profiles

    def follow(self, record: ContainerRecord, started: float) -> None:
        """Follow a profile from ``started`` (as ``now``) on."""
        self._following[record.container] = begin(record, started, self.settings)
        self.version += record.executor is not None

    def unfollow(self, container: str) -> None:
        """Stop following: the container ended, or follows no profile any more."""
        one = self._following.pop(container, None)
        if one is not None and one.executor:
            self.version += 1
        if self._observed(container) is not None:
            self._observation = None

    def plans(self, now: float) -> dict[str, Plan]:
        """Return the executors' plans from now on."""
        return {one.record.container: one.planned(now) for one in self._executors()}

    def lateness(self, container: str) -> tuple[float, bool]:
        """Return stage time ÷ prediction (0 unless above 1), and whether the executor is stuck (§III.D)."""
        one = self._following.get(container)
        return (0.0, False) if one is None else one.lateness

    def due(self, now: float) -> float | None:
        """Return the time of the next change: a slot, an overdue stage, or the end of an observation."""
        times: list[float] = []
        for one in self._following.values():
            times += one.changes_at(self.settings.reprovision_rho, now)
        if (seen := self._observation) is not None:
            times.append(seen.until if now < seen.until - EPSILON_S else max(now, seen.until + seen.period_s))
        return min((at for at in times if at < math.inf), default=None)

    def limits(self, record: ContainerRecord, now: float) -> Limits:
        """Return the profile's limits for the present slot; the present limits without a profile."""
        one = self._following.get(record.container)
        if one is None:
            return record.limits
        if one.executor:
            return limits_of(one, one.holds(now), None, self.settings)
        return limits_by_the_clock(one, now)

    # ------------------------------------------------------------ events

    def stage_ended(self, job: str, ended: int, now: float) -> list[Instruction]:
        """Advance a job's executors, as this many of its stages have ended. :meth:`changes` then renews their plans:
        the node wakes at once for that.
        """
        instructions: list[Instruction] = []
        for one in self._executors():
            course = one.course
            stage = ended - course.before
            if one.record.job != job or stage <= course.stage or not one.profile.stages:
                continue  # a profile without stages is one stage, which ends with the executor
            seen = self._observed(one.record.container)
            if seen is not None and not seen.lacks:
                instructions.append(self._correct(one, seen))
            elif seen is not None:  # the observation may have been of the next stage
                self._observation = None
            one.next_stage(stage, now)
            self.version += 1
            instructions.append(Record(ROOM, one.record.container, one.record))
        return instructions

    @property
    def has_executors(self) -> bool:
        """Whether a container follows an executor's plan."""
        return any(self._executors())

    def sampled(self, snapshot: Snapshot, promised: ResourceVector, now: float) -> list[Instruction]:
        """Correct the executors' plans by their measured use. The arguments are those of :meth:`changes`."""
        executors = list(self._executors())
        if not executors:
            return []
        for one in executors:
            use = snapshot.containers.get(one.record.container)
            if use is None:
                continue
            one.raise_memory(use)
            seen = self._observed(one.record.container)
            if seen is not None:
                seen.sampled(use, snapshot.at, snapshot.interval_s)
            else:
                one.sampled(use, snapshot.at, snapshot.interval_s)
        instructions = self.changes(promised, snapshot, now)
        overdue = [one for one in executors if one.measure_lateness(now) >= self.settings.reprovision_rho]
        left = self._left(promised, now) if overdue else NOTHING
        for one in overdue:
            one.stick(stuck=self._is_stuck(one, snapshot.containers.get(one.record.container), left, now))
        return instructions

    def changes(self, promised: ResourceVector, snapshot: Snapshot | None, now: float) -> list[Instruction]:
        """Return the changes of limits due now, for every container.

        ``promised`` are the promises to regular work that follows no profile: plans have the rest. ``snapshot`` is the
        latest sample.
        """
        if not self._following:
            return []
        late = [one for one in self._executors() if one.must_renew(now)]
        for one in late:  # each leaves the others what they were admitted with
            as_admitted = ahead(one.profile, one.course.as_admitted, now - one.started)
            one.follow(self._wanted(one, now).within(as_admitted), now)
        for one in late:
            self._replan(promised, one, now)
        instructions = self._reprovision(promised, now)
        levels_bytes = self._levels(promised, snapshot, now)
        for container, one in self._following.items():
            if one.executor:
                holds = one.holds(now)
                limits = limits_of(one, holds, levels_bytes.get(container), self.settings)
                instructions += one.record.resize(limits, promise_of(one, holds, self.settings))
            else:
                instructions += one.record.resize(limits_by_the_clock(one, now))
        return instructions

    # ------------------------------------------------------------ plans that do not suit any more

    def _replan(self, promised: ResourceVector, one: ProfileFollower, now: float) -> None:
        """Renew its plan from the present time, as far as other executors leave room."""
        one.follow(self._room(promised, one, now).allows(self._wanted(one, now)), now)
        self.version += 1

    def _wanted(self, one: ProfileFollower, now: float) -> Plan:
        """Return its desired plan from now on, including lent resources."""
        wanted, seen = ahead(one.profile, one.course, now - one.started), self._observed(one.record.container)
        return wanted if seen is None else wanted.with_extra(seen.extra, max(EPSILON_S, seen.until - now))

    def _reprovision(self, promised: ResourceVector, now: float) -> list[Instruction]:
        """End an observation that is over; begin one with the most overdue executor."""
        instructions: list[Instruction] = []
        if (seen := self._observation) is not None and seen.over(now):  # take the lent resources back
            one = self._following[seen.container]
            instructions += [self._correct(one, seen), Record(ROOM, seen.container, one.record)]
            self._replan(promised, one, now)
        rho = self.settings.reprovision_rho
        overdue = [one for one in self._executors() if one.is_overdue(rho, now) or one.foretold(rho, now)]
        overdue.sort(key=lambda one: -lateness(one.profile, one.course, now - one.started))
        for one in overdue:
            if self._observation is None:
                instructions += self._observe(promised, one, now)
        return instructions

    def _observe(self, promised: ResourceVector, one: ProfileFollower, now: float) -> list[Instruction]:
        """Lend an executor all that is left of the host, if anything, for one monitoring period (§III.C). Of a resource
        whose capacity is unknown, lend as much as it has.
        """
        had, period_s = one.planned(now).amounts[0], self.settings.executor_slot_s
        free = self._room(promised, one, now).free(0.0, period_s).minus(had)
        extra = one.named(has if room == math.inf else room for room, has in zip(free, had, strict=True))
        rho, hindrance = self.settings.reprovision_rho, one.hindrance
        lacks = () if one.is_overdue(rho, now) else hindrance.lacks
        if all(extra[index] <= (1 - BOUNDED) * had[index] for index in lacks or range(len(extra))):
            return []
        record, course = one.record, one.course
        self._observation = seen = Observation(record.container, now, now + period_s, extra, lacks=lacks)
        one.observed(late=not lacks)
        self._replan(promised, one, now)
        seen.had = one.present(now)
        facts: dict[str, object] = {
            "container": record.container,
            "job": record.job,
            "task": record.task,
            "why": f"stage {course.stage} has {_late(one, lacks, hindrance, now)} (ρ {rho:g})",
            "holds": _nonzero(had),
            "lent": _nonzero(extra),
            "for_s": period_s,
        }
        return [Explain("observed", facts)]

    def _correct(self, one: ProfileFollower, seen: Observation) -> Explain:
        before, self._observation = one.course, None
        course = corrected(one.profile, before, seen)
        one.record.go_on(course)
        facts: dict[str, object] = {
            "container": seen.container,
            "job": one.record.job,
            "task": one.record.task,
            "why": "its use was not measured" if course is before else f"observed in stage {course.stage}",
            "used": _nonzero(one.named(seen.used)),
            "bounded": seen.bounded,
            "scale": dict(zip(RESOURCES, (round(scale, 3) for scale in course.scale), strict=True)),
            "was": dict(zip(RESOURCES, (round(scale, 3) for scale in before.scale), strict=True)),
        }
        return Explain("reprovisioned", facts)

    def _is_stuck(self, one: ProfileFollower, use: ContainerUse | None, left: ResourceVector, now: float) -> bool:
        """Return whether an overdue executor is held back by its limits while the host has nothing left (§III.D)."""
        if use is None or self._observed(one.record.container) is not None:
            return False
        had = one.present(now)
        short = held_back(use, had)
        return bool(short) and all(left[index] <= (1 - BOUNDED) * had[index] for index in short)

    def _left(self, promised: ResourceVector, now: float) -> ResourceVector:
        """Return the resources that no plan holds at this moment."""
        left = self._whole(promised)
        for one in self._executors():
            left = left.minus(one.present(now))
        return left

    def _whole(self, promised: ResourceVector) -> ResourceVector:
        """Return the resources available to plans, without other promises; infinite if the capacity is unknown."""
        whole = ResourceVector._make(amount or math.inf for amount in self.settings.amounts)
        for taken in (promised, *(each.unnamed() for each in self._executors())):
            whole = whole.minus(taken)
        return whole

    def _room(self, promised: ResourceVector, one: ProfileFollower, now: float) -> Room:
        """Return the resources available to one executor: the whole without the other executors' plans."""
        others = [each.held(now) for each in self._executors() if each is not one]
        return Room(self._whole(promised), others)

    def _levels(self, promised: ResourceVector, snapshot: Snapshot | None, now: float) -> dict[str, float]:
        """Return ``memory.high`` for each executor with memory in its profile, once it has been sampled."""
        seen = snapshot.containers if snapshot is not None else {}
        limited = [one for one in self._executors() if one.profile.memory_bytes]
        if not limited:
            return {}
        capacity_bytes = float(self.settings.capacity.memory_bytes)
        whole_bytes = self._whole(promised).memory_bytes
        wants = [one.memory_tiers(seen.get(one.record.container), capacity_bytes, now) for one in limited]
        given = levels(whole_bytes, wants)
        return {
            one.record.container: level
            for one, level in zip(limited, given, strict=True)
            if one.record.container in seen
        }

    def _observed(self, container: str) -> Observation | None:
        seen = self._observation
        return seen if seen is not None and seen.container == container else None

    def _executors(self) -> Iterator[ProfileFollower]:
        return (one for one in self._following.values() if one.executor)


def _late(one: ProfileFollower, lacks: tuple[int, ...], hindrance: Hindrance, now: float) -> str:
    if not lacks:
        return f"taken {lateness(one.profile, one.course, now - one.started):.2f} of its time"
    short = ", ".join(RESOURCES[index] for index in lacks)
    return f"used up {short} for {hindrance.seen_s:.1f} s and waited for {hindrance.waited_s:.1f} s of them"


def _nonzero(amounts: ResourceVector) -> dict[str, float]:
    """Return the non-zero amounts, for an explanation."""
    return {name: round(amount, 3) for name, amount in zip(RESOURCES, amounts, strict=True) if amount}
