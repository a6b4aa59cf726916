"""What takes one request to the agent and its answer: state, configuration, reservations, the cluster's jobs and nodes.

:class:`penstock.client.AgentClient` asks by asyncio, :func:`penstock.client.blocking_requests.asked` without an event
loop. The methods are the same.
"""

from __future__ import annotations

from typing import Any

from penstock.client.asks import Asks
from penstock.client.cluster import Jobs, Nodes
from penstock.wire import agent_api as api
from penstock.wire import agent_methods as m
from penstock.wire import relayed_methods as relayed
from penstock.wire.config_api import ConfigInForce, ConfigSet, Daemon, SetConfig, ShowConfig
from penstock.wire.overview_api import ClusterStatus
from penstock.wire.reservation_api import (
    DeleteReservation,
    ListReservations,
    Rdl,
    Reservations,
    Reserve,
    Reserved,
    UpdateReservation,
)


class Requests:
    """Requests to the agent over a connection; each returns with its answer."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        #: All jobs of this user, from any process: list, cancel, reorder.
        self.jobs = Jobs(asks)
        #: The cluster's nodes, including drained ones.
        self.nodes = Nodes(asks)

    async def pause(self, pause_s: float) -> None:
        """Let so many seconds pass, between one look and the next."""
        await self._asks.pause(pause_s)

    async def status(self) -> dict[str, Any]:
        """Return the agent's status document (docs/protocol.md lists its keys).

        Raises:
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return (await self._asks.ask(m.STATUS, api.Nothing())).status

    async def cluster_status(self) -> dict[str, Any]:
        """Return the master's status document with the jobs visible to this user (docs/scheduling.md lists its keys).

        Raises:
            RpcError: the host has no master, or the master is unreachable.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return (await self._asks.ask(relayed.CLUSTER_STATUS, ClusterStatus())).status

    async def set_config(self, values: dict[str, str], daemon: Daemon = "agent") -> ConfigSet:
        """Change keys of a running daemon until it next reads its file; values are written as after ``--set``.

        Raises:
            RpcError: ``bad_request`` lists every error; ``refused``: the user is not an operator.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return await self._asks.ask(relayed.SET_CONFIG, SetConfig(values=values, daemon=daemon))

    async def show_config(self, daemon: Daemon = "agent") -> ConfigInForce:
        """Return the configuration in force in a running daemon, with the source of each value.

        Raises:
            RpcError: ``refused``: the user is not an operator.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
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
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return await self._asks.ask(relayed.UPDATE_RESERVATION, UpdateReservation(reservation=reservation, rdl=rdl))

    async def delete_reservation(self, reservation: str) -> list[Reserved]:
        """Delete a reservation and return this user's remaining ones.

        Raises:
            RpcError: there is no such reservation, or it is another user's.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        asked = DeleteReservation(reservation=reservation)
        return (await self._asks.ask(relayed.DELETE_RESERVATION, asked)).reservations

    async def reservations(self, *, everybody: bool = False) -> list[Reserved]:
        """Return this user's reservations; with ``everybody`` (operators only) those of all users.

        Raises:
            RpcError: the user is not an operator, or there is no master.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return (await self._asks.ask(relayed.RESERVATIONS, ListReservations(everybody=everybody))).reservations

    async def reservations_at(self, at: float, *, everybody: bool = False) -> Reservations:
        """Return the reservations with an allocation at Unix time ``at``, and the free capacity from then on.

        Raises:
            RpcError: the user is not an operator, or there is no master.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return await self._asks.ask(relayed.RESERVATIONS, ListReservations(everybody=everybody, at=at))
