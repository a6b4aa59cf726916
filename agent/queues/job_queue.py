"""The queue of one job on a node, and the job's counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.queues.monotask import Monotask
from penstock.model import KINDS
from penstock.model.stages import StageRanks
from penstock.model.work import MonotaskId


@dataclass(eq=False, slots=True)
class JobQueue:
    """A job's waiting monotasks per resource, and its service so far.

    ``waiting``, ``swept_beyond`` and ``last_grant`` have an element for each of KINDS: a heap of (stage, size rank,
    submission, monotask), the length beyond which those that no longer wait are removed from it, and the monotonic time
    of the last grant, or of when the job began to wait. ``service_s`` is Σ slots ×
    time (LAS_MQ §3.2) up to the last change of ``running``; jobs with a change to report are in ``served``. ``by_cpu``
    counts the running commands that share processors beyond the slots: their service is the CPU time that their
    containers use (agent/core/attained_service.py), because a held slot does not tell how much CPU they got.
    ``command_s`` is the part of ``service_s`` during which ``commands`` held slots of disks or of the network.
    """

    id: str
    priority: float
    rank: int
    served: dict[JobQueue, None]
    user: str = ""
    kept_waits: dict[int, float] = field(default_factory=dict)  # index of KINDS → waiting since, from before a restart
    stages: StageRanks = field(default_factory=StageRanks)
    waiting: list[list[tuple[int, int, int, Monotask]]] = field(default_factory=lambda: [[] for _ in KINDS])
    swept_beyond: list[int] = field(default_factory=lambda: [64] * len(KINDS))
    last_grant: list[float] = field(default_factory=lambda: [0.0] * len(KINDS))
    live: dict[int, dict[MonotaskId, Monotask]] = field(default_factory=dict)  # by session
    running: int = 0
    by_cpu: int = 0
    commands: int = 0
    command_s: float = 0.0
    done: int = 0
    failed: int = 0
    service_s: float = 0.0
    since: float = 0.0  # time of the last change of `running`

    def __post_init__(self) -> None:
        self.served[self] = None

    def begins(self, now: float) -> None:
        """Count one more running monotask."""
        if not self.running:
            self.served[self] = None
            self.since = now
        elif now != self.since:  # once for all monotasks of a frame
            self.count(now)
        self.running += 1

    def ends(self, now: float) -> None:
        """Count one running monotask less."""
        if now != self.since:
            self.count(now)
        self.running -= 1

    def count(self, now: float) -> None:
        """Add the service, in container-seconds, of the slots held until now."""
        passed_s = now - self.since
        self.service_s += (self.running - self.by_cpu) * passed_s
        if self.commands:
            self.command_s += self.commands * passed_s
        self.since = now

    def counts(self) -> dict[str, int]:
        """Return the numbers of queued, running, done and failed monotasks."""
        queued = sum(map(len, self.live.values())) - self.running
        return {"queued": queued, "running": self.running, "done": self.done, "failed": self.failed}

    def outranks(self, other: JobQueue) -> bool:
        """Return whether this job's monotasks go before the other's."""
        return (-self.priority, self.rank) < (-other.priority, other.rank)
