"""Sums of promised, requested and used resources of the node, for every admission and preemption."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from agent.core.records import ContainerRecord, ContainerState, HeldTask
from agent.core.snapshot import Snapshot
from penstock.model import Capacity
from penstock.model.resource_vector import NOTHING, ResourceVector
from penstock.model.units import counted, format_bytes

#: Tolerance in comparisons of sums of fractional cores (0.1 + 0.2 > 0.3).
CORES_EPSILON = 1e-6
#: Why no sending rate can be promised on a link of unknown rate, and the remedy.
LINK_UNKNOWN = "network: the link's rate is unknown, so no part of it can be promised"
LINK_REMEDY = "set network_link_bytes_per_s in the agent's configuration, or promise no rate"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Cores and bytes: ``promised`` to regular work, ``asked`` by opportunistic work, ``used`` by all containers.

    Executors with a profile count as promised with the most that they will hold together;
    ``promised_without_profile`` is the rest.
    """

    capacity: Capacity
    promised_cores: float
    promised_memory_bytes: int
    asked_cores: float
    asked_memory_bytes: int
    used_cores: float
    used_memory_bytes: int
    promised_network_bytes_per_s: int = 0
    promised_without_profile: ResourceVector = NOTHING

    def refuse_network(self, bytes_per_s: int, link_bytes_per_s: int) -> str:
        """Return why a promised sending rate cannot be kept, or ""; ``link_bytes_per_s`` 0: unknown."""
        if not bytes_per_s:
            return ""
        if not link_bytes_per_s:
            return f"{LINK_UNKNOWN} ({LINK_REMEDY})"
        free = link_bytes_per_s - self.promised_network_bytes_per_s
        if bytes_per_s > free:
            return (
                f"network: {format_bytes(bytes_per_s)}/s asked, {format_bytes(max(0, free))}/s of "
                f"{format_bytes(link_bytes_per_s)}/s not promised yet"
            )
        return ""

    def refuse_ever(
        self, cores: float, memory_bytes: int, share: float, network_bytes_per_s: int = 0, link_bytes_per_s: int = 0
    ) -> str:
        """Return why even an empty node does not have this much, ``share`` of its cores and memory being available to
        work; "" if it has. ``link_bytes_per_s`` 0: unknown.
        """
        whole = f"{share:g} × " if share != 1.0 else ""
        if memory_bytes > share * self.capacity.memory_bytes:
            has = f"{whole}{format_bytes(self.capacity.memory_bytes)}"
            return f"memory: {format_bytes(memory_bytes)} asked, this host has {has}"
        if cores > share * self.capacity.cores + CORES_EPSILON:
            return f"cpu: {counted(cores, 'core')} asked, this host has {whole}{self.capacity.cores:g}"
        if link_bytes_per_s and network_bytes_per_s > link_bytes_per_s:
            has = f"the link has {format_bytes(link_bytes_per_s)}/s"
            return f"network: {format_bytes(network_bytes_per_s)}/s asked, {has}"
        return ""

    def refuse_regular(self, cores: float, memory_bytes: int) -> str:
        """Return why a promise of this size cannot be kept, or ""."""
        free_memory = self.capacity.memory_bytes - self.promised_memory_bytes
        if memory_bytes > free_memory:
            return (
                f"memory: {format_bytes(memory_bytes)} asked, {format_bytes(max(0, free_memory))} of "
                f"{format_bytes(self.capacity.memory_bytes)} not promised yet"
            )
        free_cores = self.capacity.cores - self.promised_cores
        if cores > free_cores + CORES_EPSILON:
            free = f"{max(0.0, free_cores):g} of {self.capacity.cores:g}"
            return f"cpu: {counted(cores, 'core')} asked, {free} not promised yet"
        return ""

    def refuse_opportunistic(self, cores: float, memory_bytes: int, t_alloc: float) -> str:
        """Return why this exceeds the slack, T_alloc × capacity − utilization (UBIS Algorithm 1, line 21), or ""."""
        if not t_alloc:
            return "T_alloc is 0 here: nothing runs on slack"
        slack_bytes = t_alloc * self.capacity.memory_bytes - self.used_memory_bytes
        if memory_bytes > slack_bytes or slack_bytes <= 0:
            return (
                f"memory: {format_bytes(memory_bytes)} asked, slack is {format_bytes(max(0.0, slack_bytes))} "
                f"(T_alloc {t_alloc:g} × {format_bytes(self.capacity.memory_bytes)} − "
                f"{format_bytes(self.used_memory_bytes)} used)"
            )
        slack_cores = t_alloc * self.capacity.cores - self.used_cores
        if cores > slack_cores + CORES_EPSILON:
            return f"cpu: {counted(cores, 'core')} asked, slack is {max(0.0, slack_cores):g} (T_alloc {t_alloc:g})"
        return ""


def compute_ledger(
    capacity: Capacity,
    containers: Iterable[ContainerRecord],
    tasks: Iterable[HeldTask],
    snapshot: Snapshot | None,
    planned: Container[str] = (),
    peak: ResourceVector = NOTHING,
) -> Ledger:
    """Sum up. A container that has not been sampled yet counts as using all that it asked for (UBIS §IV.B).

    The containers in ``planned`` have no promise of their own but ``peak``, together.
    """
    promised_cores = asked_cores = used_cores = 0.0
    promised_memory = asked_memory = used_memory = promised_network = 0
    seen = snapshot.containers if snapshot is not None else {}
    for record in containers:
        if record.state is ContainerState.ENDED:
            continue
        spec = record.spec
        memory_bytes = 0 if record.task else spec.memory_bytes  # a task's memory is counted with the task
        if record.opportunistic:
            asked_cores += spec.cpu_cores
            asked_memory += memory_bytes
        elif record.container not in planned:
            promised_cores += spec.cpu_cores
            promised_network += spec.network_bytes_per_s
            promised_memory += memory_bytes
        use = seen.get(record.container)
        if use is not None:
            used_cores += use.cpu_cores
            used_memory += use.memory_bytes
        elif record.state is not ContainerState.STOPPING:
            used_cores += spec.cpu_cores
            used_memory += memory_bytes
    for task in tasks:
        if task.opportunistic and task.request.command is not None and not task.container:
            continue  # it waits for slack and holds none
        if task.opportunistic:
            asked_memory += task.request.memory_bytes
        elif not task.container or task.container not in planned:
            promised_memory += task.request.memory_bytes
        if task.request.command is not None and (not task.container or task.container not in seen):
            used_memory += task.request.memory_bytes
    cores, _, network, memory = peak
    return Ledger(
        capacity=capacity,
        promised_cores=promised_cores + cores,
        promised_memory_bytes=promised_memory + int(memory),
        asked_cores=asked_cores,
        asked_memory_bytes=asked_memory,
        used_cores=used_cores,
        used_memory_bytes=used_memory,
        promised_network_bytes_per_s=promised_network + int(network),
        promised_without_profile=ResourceVector(promised_cores, 0.0, float(promised_network), float(promised_memory)),
    )
