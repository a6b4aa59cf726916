"""One container whose limits follow its profile: its present plan, and the limits derived from it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.core.confinement import Promise
from agent.core.memory_levels import raised_bytes, tiers
from agent.core.plans import Course, Held, Plan, ahead, demand, extend_at_s, predicted_s, unnamed
from agent.core.records import ContainerRecord
from agent.core.reprovisioning import Hindrance, lateness, overdue_s
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse
from penstock.model import Limits, Profile, Sizing
from penstock.model.resource_vector import RESOURCES, ResourceVector

#: The limits that a profile's resource sets; memory: :func:`_memory_limit`.
_LIMITS_OF = {
    "cpu_cores": ("cpu_cores",),
    "disk_bytes_per_s": ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
    "network_bytes_per_s": ("network_egress_bytes_per_s",),
}
#: The floor of an executor's limits, whatever its plan: with less it would never end. The rates apply where the node
#: does not know its capacity.
LEAST = ResourceVector(0.05, float(1 << 20), float(128 << 10), 0.0)
#: Otherwise the floor of a rate is this part of the node's capacity: little of a slow disk, and enough of a fast one
#: for unpredicted demand.
LEAST_PART = 0.05
#: The maximum lead and lag, as a part of a slot.
_MOST_OF_A_SLOT = 0.25
#: A fall by less than this part is not written.
HYSTERESIS = 0.05
EPSILON_S = 1e-6


@dataclass(slots=True, kw_only=True)
class ProfileFollower:
    """``_plan`` was made at ``made_at``; the limits may change at each of ``_change_times``.

    Times are on the clock of ``now``. An executor's plan must be renewed at ``_extend_at``. ``_raised_bytes`` is the
    memory that it needs beyond its plan. ``_behind`` and ``_stuck`` are those of the last sample.
    """

    record: ContainerRecord
    profile: Profile
    started: float
    lead_s: float
    lag_s: float
    period_s: float  # of monitoring
    made_at: float = field(init=False)
    _hindrance: Hindrance = field(init=False)
    _plan: Plan = field(init=False)
    _rows: Held = field(init=False)
    _extend_at: float = field(init=False, default=math.inf)
    _change_times: list[float] = field(init=False, default_factory=list)
    _raised_bytes: float = field(init=False, default=0.0)
    _behind: float = field(init=False, default=0.0)
    _stuck: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._hindrance = Hindrance(self.period_s)

    @property
    def executor(self) -> bool:
        """Whether this is an executor: placed by its profile, and with stages."""
        return self.record.executor is not None

    @property
    def shared(self) -> bool:
        """Whether the plan is a guarantee, and the executor may use idle resources beyond it."""
        return self.record.executor is not None and self.record.executor.sizing is Sizing.SHARED

    @property
    def course(self) -> Course:
        """The executor's progress on its profile."""
        return self.record.course or Course()

    @property
    def hindrance(self) -> Hindrance:
        """What has held it back since its stage began, or since it was last observed."""
        return self._hindrance

    @property
    def lateness(self) -> tuple[float, bool]:
        """Its stage's time ÷ the predicted time (0 unless above 1), and whether it is stuck, at the last sample."""
        return self._behind, self._stuck

    def named(self, amounts: Iterable[float]) -> ResourceVector:
        """Return the amounts with 0 for the resources that the profile does not name."""
        each = zip(RESOURCES, amounts, strict=True)
        return ResourceVector._make(amount if getattr(self.profile, name) else 0.0 for name, amount in each)

    def unnamed(self) -> ResourceVector:
        """Return the promise for the resources that the profile does not name."""
        spec = self.record.spec
        promise = ResourceVector(spec.cpu_cores, 0.0, float(spec.network_bytes_per_s), float(spec.memory_bytes))
        return unnamed(self.profile, promise)

    def follow(self, plan: Plan, now: float) -> None:
        """Replace the plan from now on."""
        self._plan, self._rows, self.made_at = plan, plan.held(), now
        steps = [now + after_s for after_s in plan.steps_s()]
        self._change_times = sorted([at - self.lead_s for at in steps] + [at + self.lag_s for at in steps])
        if self.executor:
            again_s = extend_at_s(self.profile, self.course, now - self.started)
            self._extend_at = math.inf if again_s is None else self.started + again_s

    def renew(self, at: float) -> None:
        """Let the plan be renewed ``at`` this time."""
        self._extend_at = at

    def must_renew(self, now: float) -> bool:
        """Return whether the plan must be renewed now."""
        return now >= self._extend_at - EPSILON_S

    def changes_at(self, rho: float, now: float) -> list[float]:
        """Return times of later changes: the next one of the limits, of the plan, and of an overdue stage."""
        overdue_at = self.overdue_at(rho)
        return [
            *self._change_times[bisect_right(self._change_times, now + EPSILON_S) :][:1],
            max(self._extend_at, now),
            *([overdue_at] if overdue_at > now + EPSILON_S else []),  # after that, every sample tries again
        ]

    def next_stage(self, stage: int, now: float) -> None:
        """Begin the stage after ``stage`` ended ones: its plan must be renewed, and it is not late."""
        self.record.go_on(self.course.next_stage(stage, now - self.started))
        self.renew(now)
        self._behind, self._stuck = 0.0, False
        self._hindrance = Hindrance(self.period_s)

    def observed(self, *, late: bool) -> None:
        """Record that an observation has begun, of an executor that is ``late`` or may be."""
        if late:
            self.record.go_on(self.course.after("overdue"))
        self._hindrance = Hindrance(self.period_s)

    def holds(self, now: float) -> ResourceVector:
        """Return the amounts to hold now: early for a rise, late for a fall."""
        after_s = now - self.made_at
        return self._plan.highest(after_s - self.lag_s, after_s + self.lead_s)

    def present(self, now: float) -> ResourceVector:
        """Return the plan's amounts in the present slot."""
        return self._plan.amounts[self._plan.slot(now - self.made_at)]

    def planned(self, now: float) -> Plan:
        """Return the plan from now on; the desired plan if it must be renewed."""
        if not self.must_renew(now):
            return self._plan.advanced(now - self.made_at)
        return ahead(self.profile, self.course, now - self.started)

    def held(self, now: float) -> Held:
        """Return the present plan as an array."""
        plan, passed_s = self._plan, now - self.made_at
        slot = plan.slot(passed_s)
        return Held(plan.slot_s, max(0.0, plan.elapsed_s + passed_s - slot * plan.slot_s), self._rows.rows[slot:])

    def overdue_at(self, rho: float) -> float:
        """Return when its stage is to be corrected; infinity if it has been."""
        overdue = overdue_s(self.profile, self.course, rho) if self.executor else None
        return math.inf if overdue is None else self.started + overdue

    def is_overdue(self, rho: float, now: float) -> bool:
        """Return whether its stage is to be corrected now."""
        return now >= self.overdue_at(rho) - EPSILON_S

    def sampled(self, use: ContainerUse, at: float, interval_s: float) -> None:
        """Take a sample of the last ``interval_s`` into account: it shows whether the plan holds the executor back."""
        after_s = at - self.made_at
        seen_s = min(interval_s, after_s)
        if seen_s < interval_s / 2:  # most of the sample is from the previous plan
            return
        had = self._plan.highest(after_s - interval_s - self.lag_s, after_s + self.lead_s)
        self._hindrance.sampled(use, self._of_plan(had), seen_s)

    def raise_memory(self, use: ContainerUse) -> None:
        """Note how much memory it needs beyond its plan, if its level stalls it."""
        self._raised_bytes = raised_bytes(use, self.record.limits.memory_high_bytes, self._raised_bytes)

    def memory_tiers(self, use: ContainerUse | None, capacity_bytes: float, now: float) -> list[float]:
        """Return its demands of memory, as :func:`agent.core.memory_levels.tiers` does."""
        return tiers(use, self.holds(now).memory_bytes, self._raised_bytes, capacity_bytes)

    def measure_lateness(self, now: float) -> float:
        """Compare its stage's time with the predicted time; return the ratio, 0 unless above 1."""
        behind = lateness(self.profile, self.course, now - self.started)
        self._behind, self._stuck = behind if behind > 1 else 0.0, False
        return self._behind

    def stick(self, *, stuck: bool) -> None:
        """Record whether it is late on a node with nothing left to give (§III.D)."""
        self._stuck = stuck

    def foretold(self, rho: float, now: float) -> bool:
        """Return whether the executor will be late at this pace, unless an observation showed that it needs no more.

        After the predicted end of its stage it may already be in the next one, with only the report missing. An
        executor that shares idle resources has its bursts from those: waiting for a burst beside others does not make
        its stage late, as the mean of its plan can suffice, and a burst held for the rest of the stage would keep
        others out.
        """
        course = self.course
        length_s = predicted_s(self.profile, course.stage) if self.executor and not self.shared else None
        if length_s is None or course.state != "on plan" or now >= self.started + course.since_s + length_s:
            return False
        return self._hindrance.foretells(rho)

    def _of_plan(self, had: ResourceVector) -> ResourceVector:
        """Return the plan's amounts where below the user's own limits: elsewhere a better plan cannot help."""
        spec, asked = self.record.spec, self.record.spec.limits
        disks = (asked.disk_read_bytes_per_s, asked.disk_write_bytes_per_s)
        cores = min(spec.cpu_cores or math.inf, asked.cpu_cores or math.inf)
        disk = min(each or math.inf for each in disks)
        return ResourceVector(
            had.cpu_cores if had.cpu_cores < cores else 0.0,
            had.disk_bytes_per_s if had.disk_bytes_per_s < disk else 0.0,
        )


def begin(record: ContainerRecord, started: float, settings: NodeSettings) -> ProfileFollower:
    """Follow the record's profile; an executor that outlived an agent resumes in the stage it was in."""
    profile = record.profile
    assert profile is not None
    most_s = profile.slot_s * _MOST_OF_A_SLOT
    one = ProfileFollower(
        record=record,
        profile=profile,
        started=started,
        lead_s=min(settings.elastic_lead_s, most_s),
        lag_s=min(settings.elastic_lag_s, most_s),
        period_s=settings.executor_slot_s,
    )
    if one.executor:
        one.follow(ahead(profile, one.course, one.course.since_s), started + one.course.since_s)
        if one.course != Course(before=one.course.before):
            one.renew(started)  # its plan was not the profile's alone, and had to fit beside others
        record.resize(record.limits, promise_of(one, one.holds(one.made_at), settings))  # the caller applies it
    else:
        one.follow(Plan(profile.slot_s, 0.0, tuple(demand(profile, slot) for slot in range(profile.slots))), started)
    return one


# ---------------------------------------------------------------- limits and promise


def limits_by_the_clock(one: ProfileFollower, now: float) -> Limits:
    """Return the limits of a container that is not an executor: exactly its profile's."""
    wanted: dict[str, int | float | str | None] = {}
    for name, amount in zip(RESOURCES, one.holds(now), strict=True):
        if amount:
            value = amount if name == "cpu_cores" else int(amount)
            wanted |= dict.fromkeys(_LIMITS_OF.get(name) or (_memory_limit(one.record),), value)
    return one.record.limits.changed(wanted)


def limits_of(one: ProfileFollower, holds: ResourceVector, level_bytes: float | None, settings: NodeSettings) -> Limits:
    """Return an executor's limits: the amounts it holds, within its user's limits.

    ``level_bytes`` is its ``memory.high``; None: memory stays unlimited until a sample has measured the unreclaimable
    part. ``shared`` sizing leaves limits unchanged.
    """
    record, asked = one.record, one.record.spec.limits
    if not one.executor or one.shared:
        return asked
    wanted: dict[str, int | float | str | None] = {}
    least = least_of(settings)
    for index, (name, limits) in enumerate(_LIMITS_OF.items()):
        if not getattr(one.profile, name):
            continue
        offered = settings.amounts[index] or math.inf  # 0: the capacity is unknown
        amount = min(max(holds[index], least[index]), offered)
        for limit in limits:
            most = getattr(asked, limit)
            kept = _worth_it(getattr(record.limits, limit), amount if most is None else min(amount, float(most)))
            wanted[limit] = kept if name == "cpu_cores" else int(kept)
    if one.profile.memory_bytes:
        most = asked.memory_high_bytes
        if level_bytes is None:
            wanted["memory_high_bytes"] = most
        else:
            level = _worth_it(record.limits.memory_high_bytes, level_bytes)
            wanted["memory_high_bytes"] = max(1, int(level if most is None else min(level, float(most))))
    return record.limits.changed(wanted)


def least_of(settings: NodeSettings) -> ResourceVector:
    """Return the floor of executors' limits on this node."""
    disk, network = (LEAST_PART * rate for rate in settings.amounts[1:3])
    return LEAST._replace(
        disk_bytes_per_s=disk or LEAST.disk_bytes_per_s, network_bytes_per_s=network or LEAST.network_bytes_per_s
    )


def promise_of(one: ProfileFollower, holds: ResourceVector, settings: NodeSettings) -> Promise:
    """Return an executor's protected resources: the amounts it holds, and its promise for resources not in the profile.

    On a link of unknown rate no part can be guaranteed: there the profile promises nothing.
    """
    cores, _, network, memory = one.named(holds).plus(one.unnamed())
    if not settings.link_bytes_per_s:
        network = float(one.record.spec.network_bytes_per_s)
    before = one.record.promise
    if before is not None:
        cores = _worth_it(before.cpu_cores, cores)
        network = _worth_it(before.network_bytes_per_s, network)
        memory = _worth_it(before.memory_bytes, memory)
    return Promise(cpu_cores=cores, memory_bytes=int(memory), network_bytes_per_s=int(network))


def _worth_it(before: float | None, now: float) -> float:
    """Return the new value, or the old one if the new one is only slightly lower."""
    return before if before is not None and before * (1 - HYSTERESIS) <= now <= before else now


def limits_named(record: ContainerRecord, profile: Profile) -> list[str]:
    """Return the limits that a profile sets; all of them from its first slot on."""
    resources = [name for name in RESOURCES if getattr(profile, name)]
    return [limit for name in resources for limit in _LIMITS_OF.get(name) or (_memory_limit(record),)]


def _memory_limit(record: ContainerRecord) -> str:
    """Return the memory limit that a profile sets: a container that is throttled rather than killed stays so."""
    throttled = record.limits.memory_high_bytes is not None and record.limits.memory_max_bytes is None
    return "memory_high_bytes" if throttled else "memory_max_bytes"
