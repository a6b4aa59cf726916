"""Users' requests about jobs, relayed by agents: list, explain, cancel, and order by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from master.core.events import CancelRequested, OrderRequested
from master.core.listing import Listing
from master.core.node import Node
from master.explain.why import JobExplainer
from penstock.wire import jobs_api as api
from penstock.wire.agent_api import Result
from penstock.wire.errors import bad_request, refused
from penstock.wire.relayed_methods import OF_JOBS
from penstock.wire.reservation_api import OnBehalf


def answer(
    listing: Listing,
    explainer: JobExplainer,
    nodes: Mapping[str, Node],
    dispatch: Callable[[CancelRequested | OrderRequested], object],
    asked: OnBehalf,
    now: float,
) -> Result:
    """Answer a request. ``dispatch`` carries an event out; ``now`` is monotonic time.

    Raises: RpcError: ``bad_request``: the request is invalid, or the job unknown; ``refused``: it is another user's
    job.
    """
    match OF_JOBS.read(asked):
        case api.ListJobs() as wanted:
            return _list(listing, wanted, asked)
        case api.CancelJob(job):
            found = _own(listing, job, asked)
            if found.ended_at is not None:
                raise refused(f"job {job!r} has ended: {found.outcome}", field="job")
            dispatch(CancelRequested(job, asked.user))
            origin = nodes.get(found.origin)
            return api.Cancellation(job=job, away="" if origin is not None and origin.connected else found.origin)
        case api.OrderJobs(wanted_jobs):
            return _order(listing, dispatch, tuple(dict.fromkeys(wanted_jobs)), asked)
        case api.ExplainJob(job):
            _own(listing, job, asked)
            return api.Explained(explained=structs.asdict(explainer.for_owner(job, now)))
    raise AssertionError(asked.call)


def _order(
    listing: Listing, dispatch: Callable[[OrderRequested], object], jobs: tuple[str, ...], asked: OnBehalf
) -> api.JobsOrdered:
    """Order all of the jobs, or raise an error and order none."""
    for job in jobs:
        if (found := _own(listing, job, asked)).ended_at is not None:
            raise refused(f"job {job!r} has ended: {found.outcome}", field="job")
    dispatch(OrderRequested(jobs, asked.user, asked.operator))
    return api.JobsOrdered(jobs=list(jobs), of_all=asked.operator)


def _list(listing: Listing, wanted: api.ListJobs, asked: OnBehalf) -> api.Jobs:
    if not wanted.jobs:
        if wanted.everybody and not asked.operator:
            raise refused(
                "only operators see everybody's jobs", field="everybody", remedy="ask for your own, without --all"
            )
        return api.Jobs(jobs=listing.listed(wanted, None if wanted.everybody else asked.user))
    found = {job: listing.find(job) for job in wanted.jobs}
    known = [view for view in found.values() if view is not None]
    return api.Jobs(
        jobs=[view for view in known if asked.operator or view.user == asked.user],
        unknown=[job for job, view in found.items() if view is None],
        foreign={view.job: view.user for view in known if not asked.operator and view.user != asked.user},
    )


def _own(listing: Listing, job: str, asked: OnBehalf) -> api.JobView:
    """Return a job. Raises: RpcError: it is unknown, or belongs to another user."""
    found = listing.find(job)
    if found is None:
        raise bad_request(f"there is no job {job!r}", field="job", remedy="see `penstock jobs`")
    if found.user != asked.user and not asked.operator:
        raise refused(f"job {job!r} belongs to {found.user}", field="job")
    return found
