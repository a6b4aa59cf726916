"""What a client asks of the whole cluster: the jobs of its user, from any process, and the draining of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.client.asks import Asks
from penstock.wire import jobs_api as api
from penstock.wire import relayed_methods as m
from penstock.wire.cluster_api import AskDrains, DrainNodes, Drains, UndrainNodes


class Jobs:
    """``agent.jobs`` of :class:`~penstock.client.requests.Requests`: the jobs as the master knows them.

    Every method also raises RpcError (``unavailable``) if the host has no master or the master is unreachable, and
    AgentUnavailable."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    async def list(self, *, everybody: bool = False, ended: bool = True) -> list[api.JobView]:
        """Return this user's jobs, ended ones first; with ``everybody`` (operators only) those of all users.

        Raises:
            RpcError: ``refused``: ``everybody`` without being an operator.
        """
        return (await self._asks.ask(m.JOBS, api.ListJobs(everybody=everybody, ended=ended))).jobs

    async def find(self, jobs: Sequence[str]) -> api.Jobs:
        """Return these jobs with their stages and failures; also the ids that are unknown or another user's."""
        return await self._asks.ask(m.JOBS, api.ListJobs(jobs=list(dict.fromkeys(jobs))))

    async def cancel(self, job: str) -> api.Cancellation:
        """Stop a job with all its running tasks; its clients get :class:`~penstock.client.JobCancelled`.

        Raises:
            RpcError: ``bad_request``: unknown job; ``refused``: it is another user's, or has ended.
        """
        return await self._asks.ask(m.CANCEL_JOB, api.CancelJob(job=job))

    async def order(self, jobs: Sequence[str]) -> api.JobsOrdered:
        """Put jobs first, in this order, among this user's jobs (an operator's call: among all); [] resets that.

        Raises:
            RpcError: ``bad_request``: an id is unknown; ``refused``: a job is another user's, or has ended. Nothing is
                changed then.
        """
        return await self._asks.ask(m.ORDER_JOBS, api.OrderJobs(jobs=list(dict.fromkeys(jobs))))

    async def explain(self, job: str) -> dict[str, Any]:
        """Return why a job waits, and where and why its tasks were placed (docs/jobs.md lists the keys).

        Raises:
            RpcError: ``bad_request``: unknown job; ``refused``: it is another user's.
        """
        return (await self._asks.ask(m.EXPLAIN_JOB, api.ExplainJob(job=job))).explained


class Nodes:
    """``agent.nodes`` of :class:`~penstock.client.requests.Requests`.

    An empty list of names means this host's own node.

    Every method raises RpcError (``bad_request`` for ``nodes``: unknown node; ``refused``: operators only;
    ``unavailable``: no master, or it is unreachable) and AgentUnavailable."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    async def drain(self, nodes: Iterable[str] = (), *, stop: bool = False) -> Drains:
        """Stop placing work on the nodes; with ``stop``, end the work that the master placed there and rerun it."""
        return await self._asks.ask(m.DRAIN, DrainNodes(nodes=list(nodes), stop=stop))

    async def undrain(self, nodes: Iterable[str] = ()) -> Drains:
        """Allow new work on the nodes again."""
        return await self._asks.ask(m.UNDRAIN, UndrainNodes(nodes=list(nodes)))

    async def drains(self, nodes: Iterable[str] = ()) -> Drains:
        """Return the progress of drains; any user may ask."""
        return await self._asks.ask(m.DRAINS, AskDrains(nodes=list(nodes)))
