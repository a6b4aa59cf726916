"""The queues of all three resources of a node.

Order (Ursa §4.2.3): jobs by priority (larger first, then registered earlier); within a job, stages in the order in
which they first appeared; within a stage by size, see :func:`agent.queues.monotask.size_rank`; then by submission. Two
rules break this order, each for a bounded time: a job that has waited ``job_wait_max_s`` for its turn gets one grant
before all others, and a *lease* lets a job pass its slot on to its own next monotask for ``lease_s`` without asking,
until a job that outranks it waits (then the lease is recalled). While no monotask waits at all, the job may keep such a
slot idle; it is called back as soon as a monotask is queued.

Cancelling and changing a priority cost O(log n) and do not touch the monotasks queued behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.queues.counts import QueueCounts
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import BYPASS, BYPASSING, END, OVERDUE, QUEUED, Monotask
from agent.queues.resource import Resource
from agent.queues.validation import check_completions, check_fresh
from penstock.model import KINDS, Capacity, KindAmounts, MonotaskSpec, ResourceKind
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Completion, Leased
from penstock.wire.errors import bad_request

#: How long after its end a lease may be used before its session gets no leases for ``_NO_LEASES_S``.
_OVERRUN_S = 0.1
_NO_LEASES_S = 10.0
_CPU, _DISK, _NETWORK = KINDS


class Recalled(NamedTuple):
    """A job's leases of one kind end; with a ``session``, only those of slots that the session keeps idle."""

    job: str
    kind: ResourceKind
    session: int | None = None


class MonotaskQueues:
    """The node's queues. Methods that may free a slot return the resulting grants, in order."""

    def __init__(
        self, capacity: Capacity, *, network_bypass_bytes: int, rate_window_s: float, disk_small_bytes: int = 0,
        lease_s: float = 0.0, lease_kept_s: float = 0.0, job_wait_max_s: float = math.inf, ranked: bool = False,
    ) -> None:  # fmt: skip
        """Create empty queues. ``ranked``: the kernel schedules by job rank; nothing waits for slots of jobs behind."""
        self.ranked, self._bypass_bytes = ranked, network_bypass_bytes
        self.reconfigure(disk_small_bytes, lease_s, lease_kept_s, job_wait_max_s)
        self._jobs: dict[str, JobQueue] = {}
        self._served: dict[JobQueue, None] = {}  # jobs whose service may have changed since the last report
        self._resources = {kind: Resource(kind, capacity.slots(kind), rate_window_s, ranked=ranked) for kind in KINDS}
        self._sequence = 0
        self._recalled: list[Recalled] = []
        self._no_leases: dict[int, float] = {}  # session that overran a lease → end of its exclusion

    def reconfigure(self, disk_small_bytes: int, lease_s: float, lease_kept_s: float, job_wait_max_s: float) -> None:
        """Replace the settings; monotasks that are queued or leased keep those they came with."""
        self._small_bytes, self._lease_s, self._kept_s = disk_small_bytes, lease_s, lease_kept_s
        self._wait_max_s = job_wait_max_s

    # ------------------------------------------------------------ for the other modules of agent.queues

    def part(self, session: int, job: str, kind: ResourceKind) -> tuple[JobQueue, Resource, dict[MonotaskId, Monotask]]:
        """Return a job, a resource, and the live monotasks of the job from one session.

        Raises:
            RpcError: ``bad_request``: unknown job.
        """
        known = self._known(job)
        return known, self._resources[kind], known.live.setdefault(session, {})

    def jobs(self) -> Iterable[JobQueue]:
        """Return every job."""
        return self._jobs.values()

    def resources(self) -> Iterable[Resource]:
        """Return the resources, in the order of KINDS."""
        return self._resources.values()

    # ------------------------------------------------------------ jobs

    def add_job(self, job: str, priority: float, user: str = "") -> None:
        """Register a job; a known job keeps its place."""
        if job not in self._jobs:
            self._sequence += 1
            self._jobs[job] = JobQueue(job, priority, self._sequence, self._served, user)

    def set_priority(self, job: str, priority: float, now: float) -> None:
        """Move a job in the order; its grants remain. The caller then calls :meth:`reordered`, once for many jobs."""
        known = self._jobs.get(job)
        if known is None or known.priority == priority:
            return
        known.priority = priority
        for resource in self._resources.values():
            if resource.first(known) is not None:
                self._sequence += 1
                resource.line_up(known, self._sequence, len(self._jobs))
                self._recall(resource, known, now)

    def reordered(self, now: float) -> list[Monotask]:
        """Grant the monotasks that need not wait any more after a change of job priorities."""
        return self.grant_free(set(self.resources()), now)

    def remove_job(self, job: str, now: float) -> list[Monotask]:
        """Remove a job: cancel its queued monotasks and free its slots."""
        known = self._jobs.pop(job, None)
        if known is None:
            return []
        self._served.pop(known, None)
        freed = self._withdraw(known, [m for live in known.live.values() for m in live.values()], now)
        for resource in self._resources.values():
            resource.leases.pop(known, None)
            resource.keepers = dict.fromkeys(keeper for keeper in resource.keepers if keeper[1] is not known)
        return self.grant_free(freed, now)

    # ------------------------------------------------------------ monotasks

    def submit(self, session: int, job: str, specs: Sequence[MonotaskSpec], now: float) -> list[Monotask]:
        """Queue monotasks of a known job; all of them, or none.

        Raises:
            RpcError: ``bad_request``: unknown job, or an id that is live already (names the element at fault).
        """
        known = self._known(job)
        live = known.live.setdefault(session, {})
        check_fresh(live, specs)
        granted: list[Monotask] = []
        touched: set[Resource] = set()
        sequence, jobs = self._sequence, len(self._jobs)
        resource = self._resources[_CPU]
        for spec in specs:
            kind, size = spec.kind, spec.input_bytes
            small = size < self._small_bytes and kind is _DISK
            live[spec.id] = monotask = Monotask(session, job, spec.id, kind, size, spec.task, small)
            if kind is not resource.kind:
                resource = self._resources[kind]
            resource.pending_bytes += size
            if spec.running:
                resource.hold(known, monotask, now)  # already running: counted even above the limit, no grant is sent
                if small:
                    touched.add(resource)  # the other parts of its slot are free
            elif kind is _NETWORK and size < self._bypass_bytes:
                monotask.state = BYPASS[monotask.state]
                monotask.granted_at = now
                resource.bypassing += 1
                known.begins(now)
                granted.append(monotask)
            elif len(specs) == 1 and resource.free > 0 and not (resource.queued or small or resource.overdue):
                resource.grant_at_once(known, monotask, spec.stage, now, self._lease_s)
                granted.append(monotask)
                if monotask.lease_until:
                    self._lend(granted, now)
            else:
                sequence += 1
                resource.enqueue(known, monotask, spec.stage, sequence, now, jobs)
                touched.add(resource)
        self._sequence = sequence
        if touched:
            granted += self.grant_free(touched, now)
            for resource in self._resources.values():  # a fixed order keeps decisions deterministic
                if resource in touched:
                    self._recall(resource, known, now)
                    if resource.keepers:
                        self._recalled += [
                            Recalled(other.id, resource.kind, keeper) for keeper, other in resource.called_back()
                        ]
        return granted

    def complete(self, session: int, job: str, completions: Sequence[Completion], now: float) -> list[Monotask]:
        """End granted monotasks; all of them, or none. Those with ``then`` passed their slot on under a lease.

        Raises:
            RpcError: ``bad_request``: unknown job, a monotask that was not granted, a slot that may not be passed on.
        """
        known = self._known(job)
        live = known.live.get(session, {})
        check_completions(live, completions)
        if len(completions) == 1 and completions[0].then is None:
            return self._complete_one(known, live.pop(completions[0].id), completions[0], now)
        touched: set[Resource] = set()
        resource = self._resources[_CPU]
        done_bytes, done_s = 0, 0.0  # of consecutive monotasks of one resource
        for completion in completions:
            monotask = live.pop(completion.id)
            kind, failed = monotask.kind, completion.failed
            if kind is not resource.kind:
                resource.rate.completed(now, done_bytes, done_s)
                resource, done_bytes, done_s = self._resources[kind], 0, 0.0
            execution_s = self._end(known, resource, monotask, now, completion)
            if failed:
                known.failed += 1
            else:
                known.done += 1
                if monotask.input_bytes:  # else its time tells nothing of the rate
                    done_bytes += monotask.input_bytes
                    done_s += execution_s
            then = live[completion.then] if completion.then is not None else None
            if then is None or not self._pass_on(known, monotask, then, now) or then.small is not monotask.small:
                touched.add(resource)  # where only one of them is small, a part of a slot may be free
        resource.rate.completed(now, done_bytes, done_s)
        return self.grant_free(touched, now)

    def _complete_one(self, job: JobQueue, monotask: Monotask, completion: Completion, now: float) -> list[Monotask]:
        """Do :meth:`complete` for a single monotask, in half the time: the common case, for which jobs wait."""
        resource = self._resources[monotask.kind]
        execution_s = self._end(job, resource, monotask, now, completion)
        if completion.failed:
            job.failed += 1
        else:
            job.done += 1
            resource.rate.completed(now, monotask.input_bytes, execution_s)
        granted: list[Monotask] = []
        resource.fill(now, granted, self._lease_s)
        return self._lend(granted, now)

    def cancel(self, session: int, job: str, ids: Iterable[MonotaskId], now: float) -> list[Monotask]:
        """Withdraw monotasks, queued or granted. Unknown ids are ignored: they may have ended a moment ago."""
        known = self._known(job)
        live = known.live.get(session, {})
        ending = [live.pop(monotask_id) for monotask_id in ids if monotask_id in live]
        return self.grant_free(self._withdraw(known, ending, now), now)

    def drop_session(self, session: int, jobs: Iterable[str], now: float) -> list[Monotask]:
        """End all monotasks of a closed connection; its slots go to the next in order."""
        touched: set[Resource] = set()
        for job in jobs:
            if (known := self._jobs.get(job)) is not None:
                touched |= self._withdraw(known, known.live.pop(session, {}).values(), now)
        self._no_leases.pop(session, None)
        for resource in self._resources.values():
            resource.keepers = dict.fromkeys(keeper for keeper in resource.keepers if keeper[0] != session)
        return self.grant_free(touched, now)

    def tick(self, now: float) -> list[Monotask]:
        """Find starving jobs; grant what they may have beyond the slots, as no other event need follow that would."""
        for resource in self._resources.values():
            resource.find_starving(now, self._wait_max_s)
        return self.grant_free({resource for resource in self._resources.values() if resource.starving}, now)

    def take_recalled(self) -> list[Recalled]:
        """Return and clear the leases that end now and the kept slots that are called back."""
        recalled, self._recalled = self._recalled, []
        return recalled

    # ------------------------------------------------------------ figures for reports

    def rates(self, now: float) -> KindAmounts:
        """Return the processing rates in bytes/s; 0 while unknown (Ursa §4.2.2)."""
        return KindAmounts(*(resource.rate.bytes_per_s(now) for resource in self._resources.values()))

    def pending(self) -> KindAmounts:
        """Return the input bytes of the monotasks that are queued or running."""
        return KindAmounts(*(float(resource.pending_bytes) for resource in self._resources.values()))

    def queued(self) -> int:
        """Return the number of monotasks that wait for a slot."""
        cpu, disk, network = self._resources.values()
        return cpu.queued + disk.queued + network.queued

    def idle(self) -> KindAmounts:
        """Return the free slots."""
        return KindAmounts(*(float(max(0, resource.free)) for resource in self._resources.values()))

    def counts(self, kind: ResourceKind, now: float) -> QueueCounts:
        """Return one resource's numbers for the status document."""
        return self._resources[kind].counts(now, self._jobs.values())

    def job_counts(self, job: str) -> dict[str, int]:
        """Return the numbers of the job's queued, running, done and failed monotasks."""
        known = self._jobs.get(job)
        return known.counts() if known is not None else {"queued": 0, "running": 0, "done": 0, "failed": 0}

    def take_served(self, now: float) -> list[JobQueue]:
        """Return the jobs that held a slot since the last call, or are new, with their service up to now."""
        taken = list(self._served)
        for job in taken:
            job.count(now)
            if not job.running:
                del self._served[job]
        return taken

    def counted(self, job: str, now: float) -> JobQueue:
        """Return a known job with its service up to now."""
        known = self._known(job)
        known.count(now)
        return known

    def count_all(self) -> None:
        """Make the next :meth:`take_served` return every job."""
        self._served.update(dict.fromkeys(self._jobs.values()))

    # ------------------------------------------------------------ inside

    def _known(self, job: str) -> JobQueue:
        known = self._jobs.get(job)
        if known is None:
            raise bad_request(f"unknown job {job!r}", field="job", remedy="register_job first")
        return known

    def _pass_on(self, job: JobQueue, monotask: Monotask, then: Monotask, now: float) -> bool:
        """Pass a monotask's slot to another of its job; return False if that one got a slot of its own meanwhile."""
        if then.state is not QUEUED:
            return False
        resource = self._resources[then.kind]
        resource.queued -= 1  # its heap entry is dropped when it comes up
        resource.waits.waited(now - then.granted_at)
        resource.hold(job, then, now)
        then.granted_at = min(now, monotask.granted_at)
        then.lease_until = monotask.lease_until
        job.last_grant[resource.index] = now
        if then.granted_at > then.lease_until + _OVERRUN_S:
            self._no_leases[then.session] = now + _NO_LEASES_S
        return True

    def _withdraw(self, job: JobQueue, monotasks: Iterable[Monotask], now: float) -> set[Resource]:
        """End monotasks as neither done nor failed; return the resources that may have become free."""
        touched: set[Resource] = set()
        for monotask in monotasks:
            resource = self._resources[monotask.kind]
            self._end(job, resource, monotask, now, None)
            touched.add(resource)
        return touched

    def _end(
        self, job: JobQueue, resource: Resource, monotask: Monotask, now: float, completion: Completion | None
    ) -> float:
        """End a monotask in whichever state it is; return for how long it used its resource, in seconds.

        Sets ``granted_at`` to the time at which its slot was returned, when its successor under the lease began.
        """
        state = monotask.state
        monotask.state = END[state]
        resource.pending_bytes -= monotask.input_bytes
        if state is QUEUED:
            resource.queued -= 1  # its heap entry is dropped when it comes up
            return 0.0
        job.ends(now)
        held_s = now - monotask.granted_at
        execution_s = held_s if completion is None or completion.execution_s is None else completion.execution_s
        execution_s = min(execution_s, held_s)
        # With more commands than slots, each is charged a part of the slots: the part at this moment.
        part = resource.slots / resource.running if resource.free + resource.withheld < 0 else 1.0
        if completion is None or completion.leased is None:
            held_s = execution_s
        else:
            self._count_leased(job, resource, monotask, completion.leased, now, held_s - execution_s)
        monotask.granted_at += held_s
        if state is BYPASSING:
            resource.bypassing -= 1
        elif state is OVERDUE:
            resource.settle(job, monotask)
        else:
            resource.release(job, monotask, part * held_s)
        return part * execution_s

    def _count_leased(
        self, job: JobQueue, resource: Resource, monotask: Monotask, leased: Leased, now: float, left_s: float
    ) -> None:
        """Count the other monotasks that ran in its slot, within the ``left_s`` seconds left of its time."""
        job.done += leased.monotasks - leased.failed
        job.failed += leased.failed
        resource.rate.completed(now, leased.input_bytes, min(leased.execution_s, left_s))
        if now - leased.began_s > monotask.lease_until + _OVERRUN_S:
            self._no_leases[monotask.session] = now + _NO_LEASES_S

    def grant_free(self, touched: set[Resource], now: float) -> list[Monotask]:
        """Grant as much as these resources have room for."""
        granted: list[Monotask] = []
        if len(touched) == 1:
            for resource in touched:
                resource.fill(now, granted, self._lease_s)
        elif touched:
            for resource in self._resources.values():  # a fixed order: the same events give the same grants
                if resource in touched:
                    resource.fill(now, granted, self._lease_s)
        return self._lend(granted, now)

    def _lend(self, granted: list[Monotask], now: float) -> list[Monotask]:
        """Withhold leases from sessions that overran one; let the rest keep their slots while nothing is queued."""
        if self._no_leases:
            self._no_leases = {session: until for session, until in self._no_leases.items() if until > now}
            for monotask in granted:
                if monotask.session in self._no_leases:
                    monotask.lease_until = 0.0
        if self._kept_s and granted:
            resource = self._resources[granted[0].kind]
            for monotask in granted:
                if monotask.kind is not resource.kind:
                    resource = self._resources[monotask.kind]
                if monotask.lease_until and not resource.queued and not monotask.small:
                    resource.keep(self._jobs[monotask.job], monotask, now + self._kept_s)
        return granted

    def _recall(self, resource: Resource, job: JobQueue, now: float) -> None:
        self._recalled += [Recalled(other.id, resource.kind) for other in resource.recalled_for(job, now)]
