"""Views of jobs for their users, for operators, and for the list of finished jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from master.core.finished_jobs import FinishedJob, FinishedJobs, outcome
from master.core.job import Job
from master.core.membership import Membership
from master.core.node import Node
from master.core.order import NOWHERE, Order, Place
from master.core.unlearnt_jobs import UnlearntJobs
from penstock.model import KindAmounts
from penstock.wire.jobs_api import MOST_JOBS, MOST_NODES, JobView, ListJobs, NodeRank, StageView

#: Largest number of stages in a view of a job.
MOST_STAGES = 200
#: Bound on the named jobs before a job (the nearest).
MOST_BEFORE = 10


@dataclass(eq=False, repr=False)
class Listing:
    """The lists of jobs that users and operators ask for."""

    _members: Membership
    _past: FinishedJobs
    _order: Order
    _unlearnt: UnlearntJobs

    def listed(self, asked: ListJobs, user: str | None) -> list[JobView]:
        """List finished jobs, then current ones, the latest :data:`MOST_JOBS`; ``user`` None: of all users."""
        found: list[JobView] = []
        if asked.ended:
            leaving = self._leaving()
            found += [
                without_details(self._ended(leaving, past)) for past in self._past if user in {None, past.view.user}
            ]
        for job in self._members.jobs.values():
            if job.described and user in {None, job.user}:
                found.append(without_details(view(job, self._order.place_of(job.job))))
        return found[-MOST_JOBS:]

    def find(self, job: str) -> JobView | None:
        """Return one job, with its stages, its failures and its ranks on the nodes."""
        known = self._members.jobs.get(job)
        if known is not None and known.described:
            ranks = on_nodes(known, self._members.nodes.values())
            return msgspec.structs.replace(view(known, self._order.place_of(job)), ranks=ranks)
        past = self._past.get(job)
        return self._ended(self._leaving(), past) if past is not None else None

    def _leaving(self) -> dict[str, set[str]]:
        """Return, by job, the nodes that are still stopping tasks of it."""
        found: dict[str, set[str]] = {}
        for (job, _), nodes in self._members.leaving.items():
            found.setdefault(job, set()).update(nodes)
        return found

    def _ended(self, leaving: dict[str, set[str]], past: FinishedJob) -> JobView:
        """Return the view of a finished job; it is ``ending`` until the last node has released its tasks, and its
        origin has reported how it ended.
        """
        holding = leaving.get(past.view.job, set())
        if not holding and not self._unlearnt.awaits_outcome(past.view.job):
            return past.view
        return msgspec.structs.replace(past.view, state="ending", nodes=sorted(holding)[:MOST_NODES])


def past_of(job: Job, why: str, ended_at: float, *, lost: bool = False, reported: bool = True) -> FinishedJob:
    """Return a job that is over, as it is stored; ``ended_at`` is Unix time."""
    word, line = outcome(job, why, lost=lost, reported=reported)
    said = msgspec.structs.replace(
        view(job, NOWHERE, line), state="ended", ended_at=ended_at, outcome=word,
        tasks_ready=0, tasks_running=0, slots=0, nodes=[],
    )  # fmt: skip
    expected_reports_s = job.expected_reports_s if lost or not reported else {}
    return FinishedJob(said, job.cancelled_by, reported, expected_reports_s)


def view(job: Job, place: Place, why: str | None = None) -> JobView:
    """Return a job's present view; ``why`` None: the reason why it waits, which may take a search of the nodes."""
    if why is None:
        why = f"cancelled by {job.cancelled_by}" if job.cancelled_by else job.waits
    work, ready = job.work, job.ready_count
    progress = stages(job)
    to_come, waiting = work.to_come()
    left = [here + coming for here, coming in zip(work.left(), to_come, strict=True)]
    running = len(job.tasks) - ready
    nodes = {task.node for task in job.tasks.values() if task.node} | {
        node for node, use in work.seen.items() if use.running
    }
    return JobView(
        job=job.job,
        name=job.name,
        user=job.user,
        origin=job.origin,
        state=job.standing.value,
        submitted_at=job.submitted_at,
        why=why,
        stages=len(progress),
        stages_done=sum(stage.done >= stage.tasks for stage in progress),
        tasks_waiting=waiting,
        tasks_ready=ready,
        tasks_running=running,
        tasks_done=work.done,
        tasks_failed=job.failed_tasks,
        tasks_skipped=work.skipped,
        slots=work.slots,
        service_container_s=work.service_s,
        left=KindAmounts(cpu=left[0], disk=left[1], network=left[2]),
        nodes=sorted(nodes)[:MOST_NODES],
        reservation=job.reservation,
        rank=place.rank,
        of=place.of,
        reason=place.reason.said,
        queue=place.reason.queue,
        expected_left_s=place.reason.left_s,
        known_jobs=place.reason.known_jobs,
        progress=progress[:MOST_STAGES],
        failures=list(job.failures),
        ran_on=sorted(job.ran_on)[:MOST_NODES],
    )


def stages(job: Job) -> list[StageView]:
    """Return each stage's progress: the larger of the framework's report and the count of its tasks."""
    told = {stage.stage: stage for stage in job.work.told}
    merged: list[StageView] = []
    for name in dict.fromkeys([*told, *job.work.tallies]):
        said, came = told.get(name), job.work.tallies.get(name)
        tasks = max(said.tasks if said else 0, came.tasks if came else 0)
        done = max(said.done if said else 0, came.done if came else 0)
        done = min(done, tasks)
        after, skipped = (said.after, min(said.skipped, done)) if said else ([], 0)
        merged.append(StageView(stage=name, tasks=tasks, done=done, skipped=skipped, after=after))
    return merged


def without_details(of: JobView) -> JobView:
    """Return the view without details, for long lists."""
    return msgspec.structs.replace(of, progress=[], failures=[], ran_on=[])


def on_nodes(job: Job, nodes: Iterable[Node]) -> list[NodeRank]:
    """Return a job's rank on each node where its containers have one, as reported by the agents."""
    found: list[NodeRank] = []
    for node in nodes:
        if node.ranks is None:
            continue
        here = node.ranks.beside(job.job)
        ranks = here.jobs
        place = next((place for place, (name, _) in enumerate(ranks) if name == job.job), None)
        if place is None:
            continue
        use = job.work.seen.get(node.name)
        found.append(
            NodeRank(
                node=node.name,
                rank=place + 1,
                of=here.of,
                weight=ranks[place][1],
                service_container_s=use.service_s if use is not None else 0.0,
                before=[name for name, _ in ranks[:place]][-MOST_BEFORE:],
            )
        )
    return found[:MOST_NODES]
