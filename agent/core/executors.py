"""The executors of a node: whether their profiles fit, the resources held for them, and reports to the master.

An executor starts as soon as the master assigns it: it neither waits for a CPU slot nor holds one, because its limits
follow its profile as long as it lives (Elasecutor §III). An executor without a profile is limited by its promise, as
any command is; so is an opportunistic one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.core.commitments import Steps, steps, total
from agent.core.containers import ROOM
from agent.core.elasticity import Elasticity
from agent.core.instructions import Instruction, Record
from agent.core.ledger import CORES_EPSILON, Ledger
from agent.core.plans import Course, ahead, unnamed
from agent.core.records import ContainerRecord, HeldTask
from agent.core.settings import NodeSettings
from agent.core.surrogate import UNITS, MonitorSurrogate
from penstock.documents import Document
from penstock.model import Profile, TaskRequest
from penstock.model.resource_vector import NOTHING, ResourceVector
from penstock.model.units import counted, format_bytes
from penstock.wire.master_api import Availability, ExecutorUse, Load, SlotAmounts

#: The planning horizon in slots; the last slot reported holds for all later ones.
MOST_SLOTS = 600
#: The maximum size of a heartbeat with its executor reports (Elasecutor §IV: compact reports).
HEARTBEAT_BYTES = 12_000
_LOAD_BYTES = 1_000
_AVAILABLE_BYTES = 1 + 4 * 5
#: Larger than the rounding error of sums of fractional cores, less than a byte in MiB.
_ROUNDING = 1e-7
_NAMES = ("cpu", "disk", "network", "memory")


class ExecutorState(Document, frozen=True, kw_only=True):
    """An executor. ``slot`` is that of its profile, by the time since it began (null: it follows none).

    ``behind`` is its stage's time ÷ the predicted time, 0 while it is not late; ``stuck``: it is late, and its node has
    no free resources. ``reprovisioned``: how often its plan was scaled by its observed use (Elasecutor §III.D).
    """

    application: str
    run: str
    slot: int | None
    slots: int | None
    behind: float
    stuck: bool
    reprovisioned: int


@dataclass(frozen=True, slots=True)
class _Planned:
    profile: Profile
    unprofiled: ResourceVector  # promised, of resources that the profile does not name
    began: float  # on the clock of ``now``


class Executors:
    """The executors that follow a profile, by container; the recordings of all executors."""

    def __init__(self, settings: NodeSettings, elasticity: Elasticity) -> None:
        """``elasticity`` keeps their plans."""
        self._amounts, self._slot_s = settings.amounts, settings.executor_slot_s
        self._elasticity = elasticity
        self.surrogate = MonitorSurrogate(settings.executor_slot_s)
        self.planned: dict[str, _Planned] = {}
        self._changes = 0
        self._held: tuple[object, Steps | None] = ((), None)
        self._reported: object = None

    def held(self, now: float) -> Steps | None:
        """Return the amounts held by all executors over time, including ``now``; None if there is none."""
        if not self.planned:
            return None
        state = (self._elasticity.version, self._changes)
        if self._held[0] != state:
            plans = self._elasticity.plans(now)
            each = [steps(plans[container], one.unprofiled, now) for container, one in self.planned.items()]
            self._held = (state, total(each, now))
        return self._held[1]

    def peak(self, now: float) -> ResourceVector:
        """Return the maximum of each resource that they hold together, at any time from now on."""
        held = self.held(now)
        return NOTHING if held is None else held.peak(now)

    def follow(self, held: HeldTask, record: ContainerRecord, profile: Profile, began: float) -> None:
        """Add an executor whose limits follow the profile in its record, which ``began`` then (as ``now``).

        Stages that its job had ended before do not count.
        """
        if record.course is None:
            record.go_on(Course(before=self.surrogate.stages.get(record.job, 0)))
        self._elasticity.follow(record, began)
        self.planned[record.container] = _Planned(profile, promised_without_profile(held.request, profile), began)
        self._changes += 1

    def refuse(self, request: TaskRequest, profile: Profile, ledger: Ledger, now: float) -> str:
        """Return why a profile does not fit beside other promises and plans, slot by slot; "" if it fits."""
        unprofiled = promised_without_profile(request, profile)
        known = self._amounts
        if unprofiled[2] and not known[2]:
            return ledger.refuse_network(int(unprofiled[2]), 0)
        free = ResourceVector._make(
            amount - other if amount else math.inf
            for amount, other in zip(known, ledger.promised_without_profile, strict=True)
        )
        wanted, held = steps(ahead(profile, Course(), 0.0), unprofiled, now), self.held(now)
        over = total([wanted] if held is None else [held, wanted], now).over(
            free._replace(cpu_cores=free.cpu_cores + CORES_EPSILON), wanted
        )
        if over is None:
            return ""
        which, at = over
        left = max(0.0, free[which] - (held.at(at)[which] if held is not None else 0.0))
        ahead_s = max(0.0, at - now)
        asked = f"{_NAMES[which]}: {_text(which, wanted.at(at)[which])} asked"
        return (
            f"{asked} in slot {profile.slot(ahead_s)} of its profile, "
            f"{_text(which, left)} of {_text(which, known[which])} free then ({ahead_s:g} s from now)"
        )

    def started(self, record: ContainerRecord, now: float) -> None:
        """Record its use from now on; its profile's slots began when it was assigned."""
        self.surrogate.began(record.container, record.job, record.task, now)

    def resumed(self, record: ContainerRecord, at: float, now: float) -> None:
        """Resume the recording of an executor that outlived an agent. ``at`` is Unix time."""
        began = now - (at - record.started_at) if record.started_at else None
        self.surrogate.resumed(record.container, record.job, record.task, began, record.recorded)

    def journal(self, live: Mapping[str, ContainerRecord]) -> list[Instruction]:
        """Journal the recordings that have grown, of these containers."""
        instructions: list[Instruction] = []
        for container, recorded in self.surrogate.to_journal():
            record = live[container]
            record.keep_use(recorded)
            instructions.append(Record(ROOM, container, record))
        return instructions

    def ended(self, container: str, cpu_seconds: float, now: float) -> None:
        """End the recording of an executor, which used ``cpu_seconds`` in all."""
        self.surrogate.ended(container, cpu_seconds, now)
        if self.planned.pop(container, None) is not None:
            self._changes += 1

    def link_opens(self) -> None:
        """Report everything anew on a new connection."""
        self._reported = None
        self.surrogate.report_all()

    def availability(self, ledger: Ledger, now: float) -> Availability | None:
        """Return AR(j) (Elasecutor §III.B.1) if it has changed since the last report."""
        held = self.held(now)
        state = (ledger.promised_without_profile, self._held[0] if held is not None else None)
        if state == self._reported:
            return None
        self._reported = state
        slot_s, capacity = self._slot_s, self._amounts
        taken = [NOTHING] if held is None else held.slots(now, slot_s, MOST_SLOTS).tolist()
        slots = [_free(capacity, ledger.promised_without_profile, each) for each in taken]
        while len(slots) > 1 and slots[-1] == slots[-2]:
            slots.pop()
        return Availability(slot_s=slot_s, capacity=_free(capacity, NOTHING, NOTHING), slots=slots)

    def report(self, load: Load) -> list[ExecutorUse]:
        """Return use that the master has not been told, as much as fits into the heartbeat with this Load."""
        available = len(load.availability.slots) if load.availability is not None else 0
        room_bytes = HEARTBEAT_BYTES - _LOAD_BYTES - available * _AVAILABLE_BYTES
        return self.surrogate.report(self._elasticity.lateness, room_bytes)

    def elapsed_s(self, container: str, now: float) -> float | None:
        """Return the time since an executor's profile began; None: it follows none."""
        planned = self.planned.get(container)
        return None if planned is None else now - planned.began

    def described(self, record: ContainerRecord, now: float) -> ExecutorState | None:
        """Return, for the status document, an executor's application, its place in its profile, whether it is late,
        and the corrections so far; None for another container.
        """
        if record.executor is None:
            return None
        behind, stuck = self._elasticity.lateness(record.container)
        planned = self.planned.get(record.container)
        return ExecutorState(
            application=record.executor.application,
            run=record.executor.run or record.job,
            slot=planned.profile.slot(now - planned.began) if planned is not None else None,
            slots=planned.profile.slots if planned is not None else None,
            behind=behind,
            stuck=stuck,
            reprovisioned=record.course.count if record.course is not None else 0,
        )


def _free(capacity: ResourceVector, promised: ResourceVector, taken: Sequence[float]) -> SlotAmounts:
    """Return the free amounts, rounded down, in the units of the wire."""
    cores, disk, network, memory = (
        max(0, math.floor((there - other - has) / unit + _ROUNDING))
        for there, other, has, unit in zip(capacity, promised, taken, UNITS, strict=True)
    )
    return (cores, disk, network, memory)


def promised_without_profile(request: TaskRequest, profile: Profile) -> ResourceVector:
    """Return the promise for the resources that the profile does not name."""
    command = request.command
    assert command is not None
    memory_bytes = float(max(request.memory_bytes, command.memory_bytes))
    promise = ResourceVector(command.cpu_cores, 0.0, float(command.network_bytes_per_s), memory_bytes)
    return unnamed(profile, promise)


def _text(resource: int, amount: float) -> str:
    if _NAMES[resource] == "cpu":
        return counted(amount, "core", digits=4)
    return format_bytes(int(amount)) + ("" if _NAMES[resource] == "memory" else "/s")
