"""What takes one request to the agent and its answer: state, configuration, reservations, the cluster's jobs and nodes.

:class:`penstock.client.AgentClient` asks by asyncio, :func:`penstock.client.blocking_requests.asked` without an event
loop. The methods are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from penstock.wire import agent_api, jobs_api
from penstock.wire import agent_methods as m
from penstock.wire import relayed_methods as relayed
from penstock.wire.cluster_api import AskDrains, ClusterStatus, DrainNodes, Drains, UndrainNodes
from penstock.wire.config_api import ConfigInForce, ConfigSet, Daemon, SetConfig, ShowConfig
from penstock.wire.method import Method, P, R
from penstock.wire.reservation_api import (
    DeleteReservation,
    ListReservations,
    Rdl,
    Reservations,
    Reserve,
    Reserved,
    UpdateReservation,
)


class Asks(Protocol):
    """A connection that carries declared methods."""

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Call until an answer comes."""

    async def ask_once(self, method: Method[P, R], params: P, lost: str) -> R:
        """Call once, as a repeated request could be executed twice.

        Raises:
            AgentUnavailable: the connection was lost during this call; ``lost`` is the message.
        """


async def whole_output(asks: Asks, container: str, stream: str) -> bytes:
    """Return the output (``stdout`` or ``stderr``) of a container that its agent still stores."""
    data, offset = bytearray(), 0
    while True:
        part = await asks.ask(m.OUTPUT, agent_api.ReadOutput(container=container, stream=stream, offset=offset))
        data += part.data
        offset = part.offset + len(part.data)
        if not part.data or offset >= part.size:
            return bytes(data)


class Jobs:
    """``agent.jobs`` of :class:`~penstock.client.requests.Requests`: the jobs as the master knows them.

    Every method also raises RpcError (``unavailable``) if the host has no master or the master is unreachable, and
    AgentUnavailable."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    async def list(self, *, everybody: bool = False, ended: bool = True) -> list[jobs_api.JobView]:
        """Return this user's jobs, ended ones first; with ``everybody`` (operators only) those of all users.

        Raises:
            RpcError: ``refused``: ``everybody`` without being an operator.
        """
        return (await self._asks.ask(relayed.JOBS, jobs_api.ListJobs(everybody=everybody, ended=ended))).jobs

    async def find(self, jobs: Sequence[str]) -> jobs_api.Jobs:
        """Return these jobs with their stages and failures; also the ids that are unknown or another user's."""
        return await self._asks.ask(relayed.JOBS, jobs_api.ListJobs(jobs=list(dict.fromkeys(jobs))))

    async def cancel(self, job: str) -> jobs_api.Cancellation:
        """Stop a job with all its running tasks; its clients get :class:`~penstock.client.JobCancelled`.

        Raises:
            RpcError: ``bad_request``: unknown job; ``refused``: it is another user's, or has ended.
        """
        return await self._asks.ask(relayed.CANCEL_JOB, jobs_api.CancelJob(job=job))

    async def order(self, jobs: Sequence[str]) -> jobs_api.JobsOrdered:
        """Put jobs first, in this order, among this user's jobs (an operator's call: among all); [] resets that.

        Raises:
            RpcError: ``bad_request``: an id is unknown; ``refused``: a job is another user's, or has ended. Nothing is
                changed then.
        """
        return await self._asks.ask(relayed.ORDER_JOBS, jobs_api.OrderJobs(jobs=list(dict.fromkeys(jobs))))

    async def explain(self, job: str) -> dict[str, Any]:
        """Return why a job waits, and where and why its tasks were placed (docs/jobs.md lists the keys).

        Raises:
            RpcError: ``bad_request``: unknown job; ``refused``: it is another user's.
        """
        return (await self._asks.ask(relayed.EXPLAIN_JOB, jobs_api.ExplainJob(job=job))).explained


class Nodes:
    """``agent.nodes`` of :class:`~penstock.client.requests.Requests`.

    An empty list of names means this host's own node.

    Every method raises RpcError (``bad_request`` for ``nodes``: unknown node; ``refused``: operators only;
    ``unavailable``: no master, or it is unreachable) and AgentUnavailable."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    async def drain(self, nodes: Iterable[str] = (), *, stop: bool = False) -> Drains:
        """Stop placing work on the nodes; with ``stop``, end the work that the master placed there and rerun it."""
        return await self._asks.ask(relayed.DRAIN, DrainNodes(nodes=list(nodes), stop=stop))

    async def undrain(self, nodes: Iterable[str] = ()) -> Drains:
        """Allow new work on the nodes again."""
        return await self._asks.ask(relayed.UNDRAIN, UndrainNodes(nodes=list(nodes)))

    async def drains(self, nodes: Iterable[str] = ()) -> Drains:
        """Return the progress of drains; any user may ask."""
        return await self._asks.ask(relayed.DRAINS, AskDrains(nodes=list(nodes)))


class Requests:
    """Requests to the agent over a connection; each returns with its answer.

    Every method raises AgentUnavailable if the agent was away for longer than ``reconnect_s``.
    """

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        #: All jobs of this user, from any process: list, cancel, reorder.
        self.jobs = Jobs(asks)
        #: The cluster's nodes, including drained ones.
        self.nodes = Nodes(asks)

    async def status(self) -> dict[str, Any]:
        """Return the agent's status document (docs/protocol.md lists its keys)."""
        return (await self._asks.ask(m.STATUS, agent_api.Nothing())).status

    async def cluster_status(self) -> dict[str, Any]:
        """Return the master's status document with the jobs visible to this user (keys: docs/master-status.md).

        Raises:
            RpcError: the host has no master, or the master is unreachable.
        """
        return (await self._asks.ask(relayed.CLUSTER_STATUS, ClusterStatus())).status

    async def set_config(self, values: dict[str, str], daemon: Daemon = "agent") -> ConfigSet:
        """Change keys of a running daemon until it next reads its file; values are written as after ``--set``.

        Raises:
            RpcError: ``bad_request`` lists every error; ``refused``: the user is not an operator.
        """
        return await self._asks.ask(relayed.SET_CONFIG, SetConfig(values=values, daemon=daemon))

    async def show_config(self, daemon: Daemon = "agent") -> ConfigInForce:
        """Return the configuration in force in a running daemon, with the source of each value.

        Raises:
            RpcError: ``refused``: the user is not an operator.
        """
        return await self._asks.ask(relayed.SHOW_CONFIG, ShowConfig(daemon=daemon))

    async def reserve(self, rdl: Rdl, name: str = "") -> Reserved:
        """Reserve resources of the cluster ahead of time; the answer contains the allocation over time (Rayon §5.1).

        Raises:
            RpcError: ``bad_request``: invalid RDL; ``refused``: the request does not fit, with the reason.
            AgentUnavailable: the connection was lost during this call.
        """
        lost = "the agent went away while it was asked; `penstock reservations` tells what was promised"
        return await self._asks.ask_once(relayed.RESERVE, Reserve(rdl=rdl, name=name), lost)

    async def update_reservation(self, reservation: str, rdl: Rdl) -> Reserved:
        """Replace a reservation's request.

        Raises:
            RpcError: as :meth:`reserve`, or the reservation is another user's; the old allocation is kept.
        """
        return await self._asks.ask(relayed.UPDATE_RESERVATION, UpdateReservation(reservation=reservation, rdl=rdl))

    async def delete_reservation(self, reservation: str) -> list[Reserved]:
        """Delete a reservation and return this user's remaining ones.

        Raises:
            RpcError: there is no such reservation, or it is another user's.
        """
        left = await self._asks.ask(relayed.DELETE_RESERVATION, DeleteReservation(reservation=reservation))
        return await self.reservations() if left.more else left.reservations

    async def reservations(self, *, everybody: bool = False) -> list[Reserved]:
        """Return this user's reservations; with ``everybody`` (operators only) those of all users.

        Raises:
            RpcError: the user is not an operator, or there is no master.
        """
        return (await self._listed(ListReservations(everybody=everybody))).reservations

    async def reservations_at(self, at: float, *, everybody: bool = False) -> Reservations:
        """Return the reservations with an allocation at Unix time ``at``, and the free capacity from then on.

        Raises:
            RpcError: the user is not an operator, or there is no master.
        """
        return await self._listed(ListReservations(everybody=everybody, at=at))

    async def _listed(self, asked: ListReservations) -> Reservations:
        """Return all reservations, message by message."""
        found = await self._asks.ask(relayed.RESERVATIONS, asked)
        while found.more:
            after = await self._asks.ask(relayed.RESERVATIONS, replace(asked, skip=len(found.reservations)))
            found = replace(after, reservations=found.reservations + after.reservations)
        return found
