"""One container whose limits follow its profile: its present plan, and the limits derived from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.core.confinement import Promise
from agent.core.plans import Course, Held, Plan, ahead, demand, extend_at_s, predicted_s, unnamed
from agent.core.records import ContainerRecord
from agent.core.reprovisioning import Hindrance, overdue_s
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
    """``plan`` was made at ``made_at``; the limits may change at each of ``change_times``.

    Times are on the clock of ``now``. An executor's plan must be renewed at ``extend_at``. ``raised_bytes`` is the
    memory that it needs beyond its plan. ``behind`` and ``stuck`` are those of the last sample.
    """

    record: ContainerRecord
    profile: Profile
    started: float
    lead_s: float
    lag_s: float
    hindrance: Hindrance
    plan: Plan = field(init=False)
    rows: Held = field(init=False)
    made_at: float = field(init=False)
    extend_at: float = math.inf
    change_times: list[float] = field(default_factory=list)
    raised_bytes: float = 0.0
    behind: float = 0.0
    stuck: bool = False

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
        self.plan, self.rows, self.made_at = plan, plan.held(), now
        steps = [now + after_s for after_s in plan.steps_s()]
        self.change_times = sorted([at - self.lead_s for at in steps] + [at + self.lag_s for at in steps])
        if self.executor:
            again_s = extend_at_s(self.profile, self.course, now - self.started)
            self.extend_at = math.inf if again_s is None else self.started + again_s

    def holds(self, now: float) -> ResourceVector:
        """Return the amounts to hold now: early for a rise, late for a fall."""
        after_s = now - self.made_at
        return self.plan.highest(after_s - self.lag_s, after_s + self.lead_s)

    def present(self, now: float) -> ResourceVector:
        """Return the plan's amounts in the present slot."""
        return self.plan.amounts[self.plan.slot(now - self.made_at)]

    def planned(self, now: float) -> Plan:
        """Return the plan from now on; the desired plan if it must be renewed."""
        if now < self.extend_at - EPSILON_S:
            return self.plan.advanced(now - self.made_at)
        return ahead(self.profile, self.course, now - self.started)

    def held(self, now: float) -> Held:
        """Return the present plan as an array."""
        plan, passed_s = self.plan, now - self.made_at
        slot = plan.slot(passed_s)
        return Held(plan.slot_s, max(0.0, plan.elapsed_s + passed_s - slot * plan.slot_s), self.rows.rows[slot:])

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
        had = self.plan.highest(after_s - interval_s - self.lag_s, after_s + self.lead_s)
        self.hindrance.sampled(use, self._of_plan(had), seen_s)

    def foretold(self, rho: float, now: float) -> bool:
        """Return whether the executor will be late at this pace, unless an observation showed that it needs no more.

        After the predicted end of its stage it may already be in the next one, with only the report missing. An
        executor that shares idle resources has its bursts from those: waiting for a burst beside others does not make
        its stage late, as the mean of its plan can suffice, and a burst held for the rest of the stage would keep
        others out.
        """
        course = self.course
        length_s = predicted_s(self.profile, course.stage) if self.executor and not self.shared else None
        if length_s is None or course.observed or course.sated or now >= self.started + course.since_s + length_s:
            return False
        return self.hindrance.foretells(rho)

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
        hindrance=Hindrance(settings.executor_slot_s),
    )
    if one.executor:
        one.follow(ahead(profile, one.course, one.course.since_s), started + one.course.since_s)
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
