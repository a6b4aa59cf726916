"""The queues of all three resources of a node.

Order (Ursa §4.2.3): among jobs by job priority (larger first, then earlier registered); within a job, stages in the
order in which they first appeared; within a stage by size, see :func:`agent.queues.monotask.size_rank`; then as
submitted.

Each resource has a heap of the jobs that wait for it, and each job a heap of its waiting monotasks per resource. Both
delete lazily: cancelling and re-prioritizing cost O(log n) and never touch what is queued behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from agent.queues.monotask import Monotask, State, size_rank
from agent.queues.rates import ProcessingRate
from penstock.model import KINDS, Capacity, KindAmounts, MonotaskSpec, ResourceKind
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Completion
from penstock.wire.errors import bad_request

_InJob = list[tuple[int, int, int, Monotask]]


class _Job:
    """A job's waiting monotasks per resource, and what it did so far."""

    __slots__ = ("done", "failed", "id", "live", "priority", "rank", "running", "stages", "waiting")

    def __init__(self, job: str, priority: float, rank: int) -> None:
        self.id = job
        self.priority = priority
        self.rank = rank
        self.stages: dict[str, int] = {}
        self.waiting: dict[ResourceKind, _InJob] = {kind: [] for kind in KINDS}
        self.live: dict[tuple[int, MonotaskId], Monotask] = {}
        self.running = 0
        self.done = 0
        self.failed = 0


class _Resource:
    """One resource: its concurrency limit, who runs, which jobs wait."""

    __slots__ = ("bypassing", "jobs", "pending_bytes", "queued", "rate", "running", "slot_seconds", "slots")

    def __init__(self, slots: int, rate: ProcessingRate) -> None:
        self.slots = slots
        self.rate = rate
        self.running = 0
        self.bypassing = 0
        self.queued = 0
        self.pending_bytes = 0
        self.slot_seconds = 0.0  # slot-time of the monotasks that ended: X of the scheduling efficiency (Ursa §5)
        self.jobs: list[tuple[float, int, int, _Job]] = []


class MonotaskQueues:
    """See the module's docstring. Methods that may free a slot return what was granted because of it, in order."""

    def __init__(self, capacity: Capacity, *, network_bypass_bytes: int, rate_window_s: float) -> None:
        self._bypass_bytes = network_bypass_bytes
        self._jobs: dict[str, _Job] = {}
        self._resources = {
            kind: _Resource(
                capacity.slots(kind),
                ProcessingRate(rate_window_s, capacity.cpu_slots if kind is ResourceKind.CPU else 1.0),
            )
            for kind in KINDS
        }
        self._sequence = 0

    # ------------------------------------------------------------ jobs

    def add_job(self, job: str, priority: float) -> None:
        """Make a job known; a known one keeps its place."""
        if job not in self._jobs:
            self._sequence += 1
            self._jobs[job] = _Job(job, priority, self._sequence)

    def set_priority(self, job: str, priority: float) -> None:
        """Move a job among the others; what it has been granted stays granted."""
        known = self._jobs.get(job)
        if known is None or known.priority == priority:
            return
        known.priority = priority
        for kind in KINDS:
            if known.waiting[kind]:
                self._line_up(self._resources[kind], known)

    def remove_job(self, job: str, now: float) -> list[Monotask]:
        """Forget a job: what it queued is cancelled, what it holds is given back."""
        known = self._jobs.pop(job, None)
        if known is None:
            return []
        freed = {self._end(known, monotask, now) for monotask in list(known.live.values())}
        return self._fill_all(freed, now)

    # ------------------------------------------------------------ monotasks

    def submit(self, session: int, job: str, specs: Sequence[MonotaskSpec], now: float) -> list[Monotask]:
        """Queue monotasks of a known job; all of them, or none.

        Raises:
            RpcError: ``bad_request``: unknown job, or an id that is live already (names the element at fault).
        """
        known = self._known(job)
        live = known.live
        seen: set[MonotaskId] = set()
        for index, spec in enumerate(specs):
            if (session, spec.id) in live or spec.id in seen:
                raise bad_request(
                    f"{spec.id!r} is in use by a live monotask of this job", field=f"monotasks[{index}].id"
                )
            seen.add(spec.id)
        granted: list[Monotask] = []
        touched: set[ResourceKind] = set()
        for spec in specs:
            monotask = Monotask(session, job, spec.id, spec.kind, spec.input_bytes, spec.task)
            live[session, spec.id] = monotask
            resource = self._resources[spec.kind]
            resource.pending_bytes += spec.input_bytes
            if spec.running:
                self._grant(known, monotask, now)  # a fact to be counted, even above the limit; no new grant is sent
            elif spec.kind is ResourceKind.NETWORK and spec.input_bytes < self._bypass_bytes:
                monotask.state = State.BYPASSING
                monotask.granted_at = now
                resource.bypassing += 1
                known.running += 1
                granted.append(monotask)
            else:
                self._enqueue(known, monotask, spec.stage)
                touched.add(spec.kind)
        return granted + self._fill_all(touched, now)

    def complete(self, session: int, job: str, completions: Sequence[Completion], now: float) -> list[Monotask]:
        """Granted monotasks ended; all of them, or none.

        Raises:
            RpcError: ``bad_request``: unknown job, or a monotask that was not granted.
        """
        known = self._known(job)
        ending: list[tuple[Monotask, bool]] = []
        seen: set[MonotaskId] = set()
        for index, completion in enumerate(completions):
            monotask = known.live.get((session, completion.id))
            if monotask is None or monotask.state is State.QUEUED or completion.id in seen:
                raise bad_request(
                    f"{completion.id!r} is no granted monotask of this job", field=f"monotasks[{index}].id"
                )
            seen.add(completion.id)
            ending.append((monotask, completion.failed))
        touched: set[ResourceKind] = set()
        for monotask, failed in ending:
            touched.add(self._end(known, monotask, now, completed=not failed, failed=failed))
        return self._fill_all(touched, now)

    def cancel(self, session: int, job: str, ids: Iterable[MonotaskId], now: float) -> list[Monotask]:
        """Withdraw monotasks, queued or granted. Unknown ids are ignored: they may have ended a moment ago."""
        known = self._known(job)
        touched: set[ResourceKind] = set()
        for monotask_id in ids:
            monotask = known.live.get((session, monotask_id))
            if monotask is not None:
                touched.add(self._end(known, monotask, now))
        return self._fill_all(touched, now)

    def drop_session(self, session: int, jobs: Iterable[str], now: float) -> list[Monotask]:
        """A connection is gone: all its monotasks end, and its slots go to who is next."""
        touched: set[ResourceKind] = set()
        for job in jobs:
            known = self._jobs.get(job)
            if known is None:
                continue
            for monotask in [m for m in known.live.values() if m.session == session]:
                touched.add(self._end(known, monotask, now))
        return self._fill_all(touched, now)

    # ------------------------------------------------------------ what the node reports

    def rates(self, now: float) -> KindAmounts:
        """Processing rates in bytes/s; 0 while unknown (Ursa §4.2.2)."""
        return KindAmounts(*(self._resources[kind].rate.bytes_per_s(now) for kind in KINDS))

    def pending(self) -> KindAmounts:
        """Input bytes of the monotasks that are queued or running."""
        return KindAmounts(*(float(self._resources[kind].pending_bytes) for kind in KINDS))

    def idle(self) -> KindAmounts:
        """Free slots."""
        return KindAmounts(*(float(max(0, r.slots - r.running)) for r in self._resources.values()))

    def running(self, kind: ResourceKind) -> int:
        """Slots in use."""
        return self._resources[kind].running

    def counts(self, kind: ResourceKind, now: float) -> dict[str, float]:
        """One resource as the status page shows it."""
        resource = self._resources[kind]
        return {
            "slots": resource.slots,
            "running": resource.running,
            "bypassing": resource.bypassing,
            "queued": resource.queued,
            "pending_bytes": resource.pending_bytes,
            "rate_bytes_per_s": resource.rate.bytes_per_s(now),
            "slot_seconds": resource.slot_seconds,
        }

    def job_counts(self, job: str) -> dict[str, int]:
        """A job's monotasks: queued, running, done, failed."""
        known = self._jobs.get(job)
        if known is None:
            return {"queued": 0, "running": 0, "done": 0, "failed": 0}
        queued = len(known.live) - known.running
        return {"queued": queued, "running": known.running, "done": known.done, "failed": known.failed}

    # ------------------------------------------------------------ inside

    def _known(self, job: str) -> _Job:
        known = self._jobs.get(job)
        if known is None:
            raise bad_request(f"unknown job {job!r}", field="job", remedy="register_job first")
        return known

    def _enqueue(self, job: _Job, monotask: Monotask, stage: str) -> None:
        resource = self._resources[monotask.kind]
        resource.queued += 1
        waiting = job.waiting[monotask.kind]
        if not waiting:
            self._line_up(resource, job)
        self._sequence += 1
        stage_rank = job.stages.setdefault(stage, len(job.stages))
        heappush(waiting, (stage_rank, size_rank(monotask.kind, monotask.input_bytes), self._sequence, monotask))

    def _line_up(self, resource: _Resource, job: _Job) -> None:
        """Enter a job that waits for a resource; entries from before a priority changed are dropped as they come up."""
        self._sequence += 1
        if len(resource.jobs) > 64 + 2 * len(self._jobs):  # many changes, nothing granted: shed the outdated ones
            resource.jobs = [entry for entry in resource.jobs if -entry[0] == entry[3].priority and entry[3] is not job]
            heapify(resource.jobs)
        heappush(resource.jobs, (-job.priority, job.rank, self._sequence, job))

    def _grant(self, job: _Job, monotask: Monotask, now: float) -> None:
        monotask.state = State.GRANTED
        monotask.granted_at = now
        self._resources[monotask.kind].running += 1
        job.running += 1

    def _end(
        self, job: _Job, monotask: Monotask, now: float, *, completed: bool = False, failed: bool = False
    ) -> ResourceKind:
        """A monotask ends in whatever state it is; returns the resource that may have become free."""
        resource = self._resources[monotask.kind]
        state, monotask.state = monotask.state, State.ENDED
        del job.live[monotask.session, monotask.id]
        resource.pending_bytes -= monotask.input_bytes
        if state is State.QUEUED:
            resource.queued -= 1  # its heap entry is dropped when it comes up
            return monotask.kind
        job.running -= 1
        execution_s = now - monotask.granted_at
        if state is State.GRANTED:
            resource.running -= 1
            resource.slot_seconds += execution_s
        else:
            resource.bypassing -= 1
        if completed:
            job.done += 1
            resource.rate.completed(now, monotask.input_bytes, execution_s)
        elif failed:
            job.failed += 1
        return monotask.kind

    def _fill_all(self, touched: set[ResourceKind], now: float) -> list[Monotask]:
        granted: list[Monotask] = []
        for kind in KINDS:  # in a fixed order: the same events give the same grants
            if kind in touched:
                self._fill(self._resources[kind], kind, now, granted)
        return granted

    def _fill(self, resource: _Resource, kind: ResourceKind, now: float, granted: list[Monotask]) -> None:
        jobs = resource.jobs
        while jobs and resource.running < resource.slots:
            negative_priority, _, _, job = jobs[0]
            waiting = job.waiting[kind]
            while waiting and waiting[0][3].state is not State.QUEUED:
                heappop(waiting)
            if not waiting or -negative_priority != job.priority:
                heappop(jobs)  # nothing left to run, or an entry from before its priority changed
                continue
            monotask = heappop(waiting)[3]
            resource.queued -= 1
            self._grant(job, monotask, now)
            granted.append(monotask)
            if not waiting:
                heappop(jobs)
