"""A master of a test's own, to which real agents connect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.transport import RpcPeer
from penstock.wire import master_api as api
from penstock.wire.agent_api import Done
from penstock.wire.connection import read_params


class FakeMaster:
    """Registers each agent, keeps its messages in order, and sends the test's decisions."""

    def __init__(self, directory: Path) -> None:
        self.order: list[tuple[str, Any]] = []  # of the present connection
        self.connections = 0
        self.left = False  # the present connection is closed
        self.profile_gaps = self.last_parts = self.job_lasts = self.job_failed = False
        self._number = 0
        self._peer: RpcPeer | None = None
        self._fresh = asyncio.Event()
        self._server: asyncio.Server
        self.listen = f"{directory}/master.sock"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: RpcPeer(self), self.listen)

    async def close(self) -> None:
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def decide(self, *decisions: Any) -> list[api.Refusal]:
        assert self._peer is not None
        self._number += 1
        asked = api.Decide(number=self._number, decisions=list(decisions))
        return (await asyncio.wait_for(self._peer.request("decide", asked, api.Decided), 60)).refused

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._fresh.clear()
                await self._fresh.wait()

    def uses(self) -> list[api.ExecutorUse]:
        return [use for _, said in self.order if isinstance(said, api.Heartbeat) for use in said.executors]

    def availabilities(self) -> list[api.Availability]:
        loads = [said.load for _, said in self.order if isinstance(said, (api.Heartbeat, api.Register))]
        return [load.availability for load in loads if load.availability is not None]

    def ended(self) -> list[api.CommandEnded]:
        return [said for _, said in self.order if isinstance(said, api.CommandEnded)]

    # ------------------------------------------------------------ Handler

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        if method != "register":
            assert method in {"command_ended", "job_ended"}
            self.notification(peer, method, params)
            return Done()
        self._peer, self._number, self.order, self.left = peer, 0, [], False
        self.connections += 1
        self.notification(peer, method, params)
        return api.Registered(
            protocol=api.PROTOCOL, version="0", heartbeat_s=0.1, profile_gaps=self.profile_gaps,
            last_parts=self.last_parts, job_lasts=self.job_lasts, job_failed=self.job_failed,
        )  # fmt: skip

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        if peer is self._peer:
            self.order.append((method, read_params(params, api.REQUESTS[method].params)))
            self._fresh.set()

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.left = peer is self._peer
        self._fresh.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error
