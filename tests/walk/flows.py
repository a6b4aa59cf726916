"""The three flows that show how much code is between a request and its effect."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from penstock.cli.main import main as penstock
from penstock.client.blocking import BlockingAgent, BlockingContainer, BlockingJob
from penstock.client.gate import Gate
from penstock.model.container import ContainerSpec
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import TaskRequest
from tests.walk.host import MEMORY_BYTES, Host, host
from tests.walk.tracer import Call, Tracer

#: A flow is recorded so often, and the record with the fewest calls is kept: others have a timer's work in it.
_RECORDS = 3
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Walk:
    """The functions that ran in a flow, in the order of the calls.

    ``hops``: functions from ``Cgroup.confine`` to the write.
    """

    calls: list[Call]
    hops: int | None = None

    def of(self, side: str) -> list[Call]:
        """Return the calls of one process."""
        return [call for call in self.calls if call.side == side]


def acquire(directory: Path) -> Walk:
    """Walk from a thread's ``Gate.acquire`` to its return with the grant; nothing else wants the slot."""
    tracer = Tracer()
    with tracer.installed(), host(directory) as on:

        def once() -> Walk:
            on.agent_loop.run(on.agent.settle())
            with Gate("walked", socket=on.socket) as gate:
                assert gate.wait_connected(_TIMEOUT_S)
                on.agent_loop.run(asyncio.sleep(0))  # its work for the connection is over
                tracer.start()
                slot = gate.acquire(ResourceKind.CPU, 1 << 20)
                granted = tracer.mark()
                calls = tracer.stop()
                assert slot.gated, "the agent did not grant the slot"
            first = _first(calls, "Gate.acquire")
            return Walk([call for call in calls if first.root <= call.root < granted])

        return _shortest(once)


def run(directory: Path) -> Walk:
    """Walk from ``penstock run --cpu 0.5 -- true`` to the write of the container's ``cpu.max``."""
    tracer = Tracer()
    with tracer.installed(), host(directory) as on:
        on.launcher.ends = True

        def once() -> Walk:
            on.agent_loop.run(on.agent.settle())
            written: list[int] = []
            on.cgroups.wrote = lambda path: written.append(tracer.mark()) if path.endswith("/cpu.max") else None
            with mock.patch.dict(os.environ, PENSTOCK_SOCKET=str(on.socket)):
                tracer.start()
                status = penstock(["run", "--cpu", "0.5", "--", "true"])
                calls = tracer.stop()
            assert status == 0
            ends = {"client": _last(calls, "Session._send", written[0]).number, "agent": written[0]}
            calls = [call for call in calls if call.number <= ends[call.side]]
            return Walk(calls, hops=_hops(calls, "Cgroup.confine"))

        return _shortest(once)


def heartbeat(directory: Path) -> Walk:
    """Walk from a heartbeat's arrival at the master to the launch of the command for which it reports memory."""
    tracer = Tracer()
    with tracer.installed(), host(directory, has_master=True) as on, BlockingAgent.connect(on.socket) as client:
        job = client.register_job("walked")
        job.admitted()
        tasks = (f"t-{number}" for number in itertools.count())

        def once() -> Walk:
            task = next(tasks)
            holding = _wait_for_memory(on, client, job, task)
            tracer.start()
            on.launcher.end(holding.id)
            holding.wait()
            on.agent_loop.run(on.agent.sample())
            on.agent_loop.run(on.agent.report())
            started = on.launcher.started.get(timeout=_TIMEOUT_S)
            calls = tracer.stop()
            on.launcher.end(started)
            job.ended(task)
            return Walk(_from_heartbeat_to_launch(calls))

        return _shortest(once)


FLOWS: dict[str, Callable[[Path], Walk]] = {"acquire": acquire, "run": run, "heartbeat": heartbeat}


def _wait_for_memory(on: Host, client: BlockingAgent, job: BlockingJob, task: str) -> BlockingContainer:
    """Request a task for which the node has too little memory; return the container that holds the memory."""
    holding = client.launch(ContainerSpec(argv=("true",), memory_bytes=MEMORY_BYTES * 3 // 4))
    on.launcher.started.get(timeout=_TIMEOUT_S)
    on.agent_loop.run(on.agent.report())  # it arrives before the request
    command = ContainerSpec(argv=("true",))
    needs = TaskRequest(task=task, usage=KindAmounts(cpu=1e6), memory_bytes=MEMORY_BYTES // 2, command=command)
    job.place("only", [needs])
    on.agent_loop.run(on.agent.report())
    return holding


def _shortest(once: Callable[[], Walk]) -> Walk:
    """Walk a flow several times; return the walk with the fewest calls, without the first one, which fills caches."""
    once()
    return min((once() for _ in range(_RECORDS)), key=lambda walk: len(walk.calls))


def _first(calls: list[Call], function: str) -> Call:
    found = next((call for call in calls if call.function == function), None)
    assert found is not None, f"{function} was not called"
    return found


def _last(calls: list[Call], function: str, before: int) -> Call:
    return _first([call for call in reversed(calls) if call.number < before], function)


def _from_heartbeat_to_launch(calls: list[Call]) -> list[Call]:
    """Return the master's calls up to the round that decided, and the agent's from the decision to the launch."""
    start = _first(calls, "Launcher.start")
    launch = _first([call for call in calls if call.parent == start.number], "Launcher._ask")
    rounds = {call.root for call in calls if call.function == "MasterService._run_round"}
    decided = _last([call for call in calls if call.root in rounds], "AgentConnection.send", launch.number)
    handled = _last(calls, "Cluster._heartbeat", decided.root)
    arrived = _last(calls, "AgentConnection.notification", handled.root)
    # Between these a round for an earlier message may run.
    steps = {arrived.root, handled.root, decided.root}
    return [
        call
        for call in calls
        if call.root in steps or (call.side == "agent" and decided.number < call.root and call.number <= launch.number)
    ]


def _hops(calls: list[Call], function: str) -> int:
    """Return how many calls lead from the call of ``function`` to the agent's last one."""
    by_number = {call.number: call for call in calls}
    last = [call for call in calls if call.side == "agent"][-1]
    call, hops = last, 0
    while call.function != function:
        assert call.parent is not None, f"{last.name} was not called by {function}"
        call, hops = by_number[call.parent], hops + 1
    return hops
