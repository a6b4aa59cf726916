"""The jobs of this user, as the cluster's master knows them, whichever process registered them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client.link import Link
from penstock.wire import jobs_api as api


class Jobs:
    """``agent.jobs`` of an :class:`~penstock.client.AgentClient`. Everything here raises RpcError (``unavailable``)
    where the master is away, or this host has none; and AgentUnavailable."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self, *, everybody: bool = False, ended: bool = True) -> list[api.JobView]:
        """This user's, those that ended first; to operators also everybody's.

        Raises:
            RpcError: ``refused``: no operator asks for everybody's.
        """
        asked = api.ListJobs(everybody=everybody, ended=ended)
        return (await self._link.call("jobs", lambda: asked, api.Jobs)).jobs

    async def find(self, jobs: Sequence[str]) -> api.Jobs:
        """These jobs, with their stages and failures; which of the ids nobody knows, and which are somebody else's."""
        asked = api.ListJobs(jobs=list(dict.fromkeys(jobs)))
        return await self._link.call("jobs", lambda: asked, api.Jobs)

    async def cancel(self, job: str) -> api.Cancelling:
        """Stop a job with everything that runs of it; its clients get :class:`~penstock.client.JobCancelled`.

        Raises:
            RpcError: ``bad_request``: there is none; ``refused``: it is somebody else's, or has ended.
        """
        asked = api.CancelJob(job=job)
        return await self._link.call("cancel_job", lambda: asked, api.Cancelling)

    async def order(self, jobs: Sequence[str]) -> api.JobsOrdered:
        """Put jobs first, in this order: of this user's (asked by an operator: of all). Without jobs none is any more.

        Raises:
            RpcError: ``bad_request``: there is none of an id; ``refused``: it is somebody else's, or has ended. Then
                nothing has changed.
        """
        asked = api.OrderJobs(jobs=list(dict.fromkeys(jobs)))
        return await self._link.call("order_jobs", lambda: asked, api.JobsOrdered)

    async def explain(self, job: str) -> dict[str, Any]:
        """Why a job waits, and where its tasks were placed, and why (docs/jobs.md lists the keys).

        Raises:
            RpcError: ``bad_request``: there is none; ``refused``: it is somebody else's.
        """
        asked = api.ExplainJob(job=job)
        return (await self._link.call("explain_job", lambda: asked, api.Explained)).explained
