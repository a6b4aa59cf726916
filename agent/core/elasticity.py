"""Limits that move while a container runs: resized on request, or following a profile slot by slot (Elasecutor §III).

What is decided here is what shall hold; how memory gets there without killing anybody is the cgroup's business
(agent.cgroups.shrink).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agent.core import events as e
from agent.core.confinement import confine
from agent.core.containers import ROOM
from agent.core.instructions import Confine, Instruction, Record, Reply
from agent.core.records import ContainerRecord, ContainerState
from agent.core.running import container_of
from penstock.model import Limits, Profile
from penstock.wire.agent_api import Done
from penstock.wire.errors import bad_request, refused

if TYPE_CHECKING:
    from agent.core.node import Node

#: What a profile's resource limits.
_LIMITS_OF = {
    "cpu_cores": ("cpu_cores",),
    "disk_bytes_per_s": ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
    "network_bytes_per_s": ("network_egress_bytes_per_s",),
}


@dataclass(slots=True)
class _Following:
    profile: Profile
    started: float  # as ``now``


class Elasticity:
    """Which containers follow which profile, and when the next one changes."""

    def __init__(self) -> None:
        self._following: dict[str, _Following] = {}

    def follow(self, record: ContainerRecord, started: float) -> None:
        """From ``started`` (as ``now``) on."""
        assert record.profile is not None
        self._following[record.container] = _Following(record.profile, started)

    def forget(self, container: str) -> None:
        """It ended, or follows no longer."""
        self._following.pop(container, None)

    def due(self, now: float) -> float | None:
        """When the next slot begins whose limits may differ."""
        times = [
            one.started + after
            for one in self._following.values()
            if (after := one.profile.next_change_s(now - one.started)) is not None
        ]
        return min(times, default=None)

    def limits(self, record: ContainerRecord, now: float) -> Limits:
        """What the profile asks for in this slot; the limits as they are where it asks for nothing."""
        one = self._following.get(record.container)
        if one is None:
            return record.limits
        wanted: dict[str, int | float | str | None] = {}
        for name, value in one.profile.demand(one.profile.slot(now - one.started)).items():
            for limit in _LIMITS_OF.get(name) or (_memory_limit(record),):
                wanted[limit] = value
        return record.limits.changed(wanted)

    def changes(self, node: Node, now: float) -> list[Instruction]:
        """For every container whose slot is another one now."""
        instructions: list[Instruction] = []
        for container in list(self._following):
            record = node.containers.live.get(container)
            if record is None:
                self.forget(container)
                continue
            instructions += change(record, self.limits(record, now))
        return instructions


def _memory_limit(record: ContainerRecord) -> str:
    """A container that is throttled rather than killed stays so."""
    throttled = record.limits.memory_high_bytes is not None and record.limits.memory_max_bytes is None
    return "memory_high_bytes" if throttled else "memory_max_bytes"


def change(record: ContainerRecord, limits: Limits) -> list[Instruction]:
    """Tell the kernel, unless nothing changes; one that is only being started is told when it has started."""
    if limits == record.limits:
        return []
    record.limits = limits
    if record.state in (ContainerState.STARTING, ContainerState.STOPPING):
        return []
    return [Confine(record.container, confine(record.spec, limits, opportunistic=record.opportunistic))]


def resize_requested(node: Node, event: e.ResizeRequested, now: float) -> list[Instruction]:
    """Other limits from now on. One that follows a profile has to be let go first: two masters are none."""
    record = container_of(node, event.session, event.container)
    _must_live(record)
    if record.profile is not None:
        raise refused(f"{record.container} follows a profile", field="container", remedy="follow with null first")
    try:
        limits = record.limits.changed(event.limits)
    except msgspec.ValidationError as error:
        raise bad_request(str(error), field="limits") from None
    instructions = change(record, limits)
    if instructions:
        instructions.insert(0, Record(ROOM, record.container, record))
    return [Reply(record.container), *instructions]


def follow_requested(node: Node, event: e.FollowRequested, now: float) -> list[Instruction]:
    """Limits follow the profile from now on; None: they stay as they are now."""
    record = container_of(node, event.session, event.container)
    _must_live(record)
    record.profile, record.profile_at = event.profile, event.at
    if event.profile is None:
        node.elasticity.forget(record.container)
        return [Reply(Done()), Record(ROOM, record.container, record)]
    node.elasticity.follow(record, now)
    instructions = change(record, node.elasticity.limits(record, now))
    return [Reply(Done()), Record(ROOM, record.container, record), *instructions]


def confined(node: Node, event: e.Confined, now: float) -> list[Instruction]:
    """The kernel has it, as far as it goes."""
    node.containers.confined(event.container, event.not_enforced)
    return []


def _must_live(record: ContainerRecord) -> None:
    if record.ended is not None or record.state is ContainerState.STOPPING:
        raise refused(f"container {record.container} has ended", field="container")
