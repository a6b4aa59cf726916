"""The executors of a node: whether their profiles fit, the resources held for them, and reports to the master.

An executor starts as soon as the master assigns it: it neither waits for a CPU slot nor holds one, because its limits
follow its profile as long as it lives (Elasecutor §III). An executor without a profile is limited by its promise, as
any command is; so is an opportunistic one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core import elasticity
from agent.core.commitments import Steps, steps, total
from agent.core.containers import ROOM
from agent.core.instructions import Instruction, Record
from agent.core.ledger import CORES_EPSILON, Ledger
from agent.core.plans import NOTHING, RESOURCES, Course, ahead
from agent.core.profiling import Amounts
from agent.core.records import ContainerRecord, HeldTask
from agent.core.settings import NodeSettings
from agent.core.surrogate import UNITS, MonitorSurrogate
from penstock.model import Profile, TaskRequest
from penstock.model.units import format_bytes
from penstock.wire.master_api import Availability, ExecutorUse, Load, SlotAmounts

if TYPE_CHECKING:
    from agent.core.node import Node

#: The planning horizon in slots; the last slot reported holds for all later ones.
MOST_SLOTS = 600
#: The maximum size of a heartbeat with its executor reports (Elasecutor §IV: compact reports).
HEARTBEAT_BYTES = 12_000
_LOAD_BYTES = 1_000
_AVAILABLE_BYTES = 1 + 4 * 5
#: Larger than the rounding error of sums of fractional cores, less than a byte in MiB.
_ROUNDING = 1e-7
_NAMES = ("cpu", "disk", "network", "memory")


@dataclass(frozen=True, slots=True)
class _Planned:
    profile: Profile
    beside: Amounts  # promised, of resources that the profile does not name
    began: float  # on the clock of ``now``


class Executors:
    """The executors that follow a profile, by container; the recordings of all executors."""

    def __init__(self, settings: NodeSettings) -> None:
        self.surrogate = MonitorSurrogate(settings.executor_slot_s)
        self.planned: dict[str, _Planned] = {}
        self._changes = 0
        self._held: tuple[object, Steps | None] = ((), None)
        self._reported: object = None

    def held(self, node: Node, now: float) -> Steps | None:
        """Return the amounts held by all executors over time, including ``now``; None if there is none."""
        if not self.planned:
            return None
        state = (node.elasticity.version, self._changes)
        if self._held[0] != state:
            plans = node.elasticity.plans(now)
            each = [steps(plans[container], one.beside, now) for container, one in self.planned.items()]
            self._held = (state, total(each, now))
        return self._held[1]

    def peak(self, node: Node, now: float) -> Amounts:
        """Return the maximum of each resource that they hold together, at any time from now on."""
        held = self.held(node, now)
        return NOTHING if held is None else held.peak(now)

    def plan(self, container: str, planned: _Planned) -> None:
        """Add an executor with a profile."""
        self.planned[container] = planned
        self._changes += 1

    def started(self, record: ContainerRecord, at: float, now: float) -> None:
        """Record its use from now on; its profile's slots began when it was assigned."""
        planned = self.planned.get(record.container)
        if planned is not None:
            record.profile_at = at - (now - planned.began)
        self.surrogate.began(record.container, record.job, record.task, now)

    def resumed(self, record: ContainerRecord, at: float, now: float) -> None:
        """Resume the recording of an executor that outlived an agent. ``at`` is Unix time."""
        began = now - (at - record.started_at) if record.started_at else None
        self.surrogate.resumed(record.container, record.job, record.task, began, record.recorded)

    def journal(self, node: Node) -> list[Instruction]:
        """Journal the recordings that have grown."""
        instructions: list[Instruction] = []
        for container, recorded in self.surrogate.to_journal():
            record = node.containers.live[container]
            record.recorded = recorded
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
        self.surrogate.tell_all()

    def availability(self, node: Node, ledger: Ledger, now: float) -> Availability | None:
        """Return AR(j) (Elasecutor §III.B.1) if it has changed since the last report."""
        held = self.held(node, now)
        state = (ledger.beside, self._held[0] if held is not None else None)
        if state == self._reported:
            return None
        self._reported = state
        slot_s = node.settings.executor_slot_s
        capacity = node.settings.amounts
        taken = [NOTHING] if held is None else held.slots(now, slot_s, MOST_SLOTS).tolist()
        slots = [_free(capacity, ledger.beside, each) for each in taken]
        while len(slots) > 1 and slots[-1] == slots[-2]:
            slots.pop()
        return Availability(slot_s=slot_s, capacity=_free(capacity, NOTHING, NOTHING), slots=slots)

    def report(self, node: Node, load: Load) -> list[ExecutorUse]:
        """Return use that the master has not been told, as much as fits into the heartbeat with this Load."""
        available = len(load.availability.slots) if load.availability is not None else 0
        room_bytes = HEARTBEAT_BYTES - _LOAD_BYTES - available * _AVAILABLE_BYTES
        return self.surrogate.report(node.elasticity.lateness, room_bytes)


def _free(capacity: Amounts, promised: Amounts, taken: Sequence[float]) -> SlotAmounts:
    """Return the free amounts, rounded down, in the units of the wire."""
    cores, disk, network, memory = (
        max(0, math.floor((there - other - has) / unit + _ROUNDING))
        for there, other, has, unit in zip(capacity, promised, taken, UNITS, strict=True)
    )
    return (cores, disk, network, memory)


def beside_profile(request: TaskRequest, profile: Profile) -> Amounts:
    """Return the promise for the resources that the profile does not name."""
    command = request.command
    assert command is not None
    promise = (command.cpu_cores, 0.0, command.network_bytes_per_s, max(request.memory_bytes, command.memory_bytes))
    named = profile.demand(0)
    cores, disk, network, memory = (
        0.0 if name in named else float(amount) for name, amount in zip(RESOURCES, promise, strict=True)
    )
    return (cores, disk, network, memory)


def refuse(node: Node, request: TaskRequest, profile: Profile, now: float) -> str:
    """Return why a profile does not fit beside other promises and plans, slot by slot; "" if it fits."""
    ledger = node.ledger()
    beside = beside_profile(request, profile)
    known = node.settings.amounts
    if beside[2] and not known[2]:
        return ledger.refuse_network(int(beside[2]), 0)
    cores, disk, network, memory = free = tuple(
        amount - other if amount else math.inf for amount, other in zip(known, ledger.beside, strict=True)
    )
    wanted, held = steps(ahead(profile, Course(), 0.0), beside, now), node.executors.held(node, now)
    over = total([wanted] if held is None else [held, wanted], now).over(
        (cores + CORES_EPSILON, disk, network, memory), wanted
    )
    if over is None:
        return ""
    which, at = over
    left = max(0.0, free[which] - (held.at(at)[which] if held is not None else 0.0))
    ahead_s = max(0.0, at - now)
    return (
        f"{_NAMES[which]}: {_text(which, wanted.at(at)[which])} asked in slot {profile.slot(ahead_s)} of its profile, "
        f"{_text(which, left)} of {_text(which, known[which])} free then ({ahead_s:g} s from now)"
    )


def _text(resource: int, amount: float) -> str:
    if _NAMES[resource] == "cpu":
        return f"{amount:.4g} cores"
    return format_bytes(int(amount)) + ("" if _NAMES[resource] == "memory" else "/s")


def start(node: Node, held: HeldTask, now: float) -> list[Instruction]:
    """Start an executor at once; its limits follow its profile, if it has one."""
    instructions = node.granting.start(held, now)
    record = node.containers.live[held.container]
    if held.profile is not None:
        _follow(node, held, record, held.profile, now)
        instructions += elasticity.change(record, node.elasticity.limits(record, now))
    return instructions


def _follow(node: Node, held: HeldTask, record: ContainerRecord, profile: Profile, began: float) -> None:
    record.profile = profile
    node.elasticity.follow(record, began)
    node.executors.plan(record.container, _Planned(profile, beside_profile(held.request, profile), began))


def take_back(node: Node, held: HeldTask, now: float, at: float) -> list[Instruction]:
    """Resume an executor that outlived an agent, at its place in the profile; start it if it was not started."""
    record = node.containers.live.get(held.container)
    if record is None:
        return start(node, held, now)
    record.kind = None
    if held.job in node.jobs:  # otherwise it is being stopped
        node.granting.queue(held, now, running=True)
    if held.profile is not None:
        record.profile_at = record.profile_at or at  # the agent ended after its start and before ContainerStarted
        _follow(node, held, record, held.profile, now - (at - record.profile_at))
    return []
