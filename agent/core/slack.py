"""Slack on the node: resources in use, and whether opportunistic work fits into the rest (UBIS).

Slack is T_alloc × capacity minus the resources in use (§IV.A).
"""

from __future__ import annotations

from collections import Counter

from agent.core.containers import Containers
from agent.core.ledger import Ledger
from agent.core.node_resources import NodeResources
from agent.core.preemption import AllocationThreshold
from agent.core.settings import NodeSettings
from agent.core.tasks import HeldTasks
from agent.queues import MonotaskQueues
from penstock.documents import Resource, Resources, Unit
from penstock.model import KINDS, KindAmounts, ResourceKind


class Slack:
    """Keeps T_alloc; reads the queues, containers, tasks and samples."""

    def __init__(
        self,
        settings: NodeSettings,
        queues: MonotaskQueues,
        containers: Containers,
        held: HeldTasks,
        resources: NodeResources,
    ) -> None:
        self._settings = settings
        self._threshold = AllocationThreshold(settings.t_alloc, settings.t_alloc_tuning)
        self._moves = settings.t_alloc_tuning is not None
        self._queues = queues
        self._containers = containers
        self._held = held
        self._resources = resources

    @property
    def t_alloc(self) -> float:
        """The present T_alloc."""
        return self._threshold.t_alloc

    @property
    def moved_t_alloc(self) -> float | None:
        """The present T_alloc if the master has to be told: it is tuned, or was changed since the start."""
        return self._threshold.t_alloc if self._moves else None

    def reconfigure(self, settings: NodeSettings) -> None:
        """Replace the settings. Running opportunistic work continues: T_preempt alone decides when it gives way."""
        before, self._settings = self._settings, settings
        if (before.t_alloc, before.t_alloc_tuning) != (settings.t_alloc, settings.t_alloc_tuning):
            self._threshold.reconfigure(settings.t_alloc, settings.t_alloc_tuning)
            self._moves = True

    def tune(self, preemptions: int, now: float) -> None:
        """Tune T_alloc, if it is tuned, by the utilization and the number of preemptions so far.

        They are counted even if it is not tuned: else the first sample after a reload that tunes it would take all of
        them for new ones.
        """
        used = 0.0
        if self._settings.t_alloc_tuning is not None:
            ledger, capacity = self._resources.ledger(now), self._settings.capacity
            used = max(ledger.used_cores / capacity.cores, ledger.used_memory_bytes / capacity.memory_bytes)
        self._threshold.sampled(used, preemptions, now)

    # ------------------------------------------------------------ resources in use

    def of_frameworks(self) -> KindAmounts:
        """Return the slots per kind that frameworks hold. Commands' use is measured, so their slots do not count."""
        running = {each.kind: float(each.running) for each in self._queues.resources()}
        for record in self._containers.live.values():
            if record.kind is not None:
                running[record.kind] -= 1
        return KindAmounts(*running.values())

    def in_use(self, ledger: Ledger) -> KindAmounts:
        """Return the cores in use, and the fractions of the disks and of the link, from 0 to above 1.

        Slots that frameworks hold count as used even if no use is measured: their processes need not be in containers.
        A command that has not been sampled yet counts as a whole slot of its kind, in addition to its cores.
        """
        frameworks, capacity, snapshot = self.of_frameworks(), self._settings.capacity, self._resources.snapshot
        host = snapshot.host if snapshot is not None else None
        disk_busy, network_busy = (host.disk_busy, host.network_busy) if host is not None else (None, None)
        cpu, disk, network = self._unseen().values()
        return KindAmounts(
            max(ledger.used_cores + cpu, frameworks.cpu),
            max(disk_busy or 0.0, frameworks.disk / capacity.disk_slots) + disk / capacity.disk_slots,
            max(network_busy or 0.0, frameworks.network / capacity.network_slots) + network / capacity.network_slots,
        )

    def by_resource(self, ledger: Ledger) -> Resources:
        """Return the amounts of each resource for the status."""
        used, capacity, link = self.in_use(ledger), self._settings.capacity, self._settings.link_bytes_per_s
        sent = ledger.promised_network_bytes_per_s / link if link else None
        return {
            "cpu": self._of("cores", capacity.cores, ledger.promised_cores, used.cpu),
            "memory": self._of("bytes", capacity.memory_bytes, ledger.promised_memory_bytes, ledger.used_memory_bytes),
            "disk": self._of("share", 1.0, None, used.disk),
            "network": self._of("share", 1.0, sent, used.network),
        }

    def _of(self, unit: Unit, capacity: float, promised: float | None, used: float) -> Resource:
        slack = max(0.0, self.t_alloc * capacity - used)
        return Resource(unit=unit, capacity=capacity, promised=promised, used=used, slack=slack)

    def _unseen(self) -> dict[ResourceKind, int]:
        """Count the placed commands started since the last sample, by kind; the ledger counts those with cores."""
        seen = self._resources.snapshot.containers if self._resources.snapshot is not None else {}
        unseen = dict.fromkeys(KINDS, 0)
        for held in self._held:
            kind = held.request.command_kind
            if held.container and held.container not in seen and not (kind is ResourceKind.CPU and held.cores):
                unseen[kind] += 1
        return unseen

    # ------------------------------------------------------------ commands that wait for slack

    def claimed(self) -> tuple[KindAmounts, int]:
        """Return the resources reserved for waiting commands, in cores, fractions and bytes."""
        if not self._held.waiting:
            return KindAmounts(), 0
        waiting = [self._held.by_key[key] for key in self._held.waiting]
        cores = sum(held.cores or float(held.request.command_kind is ResourceKind.CPU) for held in waiting)
        kinds = Counter(held.request.command_kind for held in waiting)
        disk, network = (
            kinds[kind] / self._settings.capacity.slots(kind) for kind in (ResourceKind.DISK, ResourceKind.NETWORK)
        )
        return KindAmounts(cores, disk, network), sum(held.request.memory_bytes for held in waiting)

    def refuse(self, cores: float, memory_bytes: int, now: float) -> str:
        """Return why a command does not fit into the present slack, or ""."""
        ledger, t_alloc = self._resources.ledger(now), self.t_alloc
        used = self.in_use(ledger)
        full = used.cpu >= t_alloc * self._settings.capacity.cores or max(used.disk, used.network) >= t_alloc
        why = ledger.refuse_opportunistic(cores, memory_bytes, t_alloc)
        return why or ("T_alloc is used up for cpu, disk or network" if full else "")

    def queue_free(self) -> int:
        """Return how many more commands may wait."""
        return max(0, self._settings.opportunistic_queue - len(self._held.waiting)) if self.t_alloc else 0
