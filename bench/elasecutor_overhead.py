"""The cost of following and watching executors: the rows of Elasecutor's Tables XII and XIII, and of other decisions.

python -m bench.elasecutor_overhead [--seconds 60]

Table XII is measured on a real agent with a master of the bench's own, which assigns it nothing, then 20 commands, then
20 executors whose profiles change in every slot (3 s). All of them sleep. The rest drives the daemons' own objects in
this process; the measured time begins with the received bytes and ends with the decision.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agent.core import Node
from agent.core import events as node_events
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from agent.core.surrogate import MonitorSurrogate
from bench._agent import agent_and_pid
from bench._executors import GIB, MIB, Master, assign, request, varying
from master.prediction import Predictor, Run, Settings
from penstock import __version__
from penstock.model import Capacity
from penstock.transport import RpcPeer
from penstock.wire import master_api
from penstock.wire.agent_api import Done
from penstock.wire.connection import read_params

EXECUTORS, NODES, HEARTBEATS = 20, 35, 100
#: A machine of the paper's testbed (§V-A): two processors of eight cores.
PAPER_CORES, PAPER_MEMORY_BYTES = 16, 64 * GIB
_SETTLE_S = 6.0


# ---------------------------------------------------------------- Table XII: an agent from outside


@dataclass
class Overseer:
    """A master that assigns the given work, and measures the size of its heartbeats."""

    heard: asyncio.Event = field(default_factory=asyncio.Event)
    loads: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)  # bytes of a heartbeat's reports on executors, where it has any
    peer: RpcPeer | None = None
    number: int = 0

    async def assign(self, decisions: list[Any]) -> None:
        """Raises RuntimeError: the agent refuses."""
        assert self.peer is not None
        self.number += 1
        asked = master_api.Decide(number=self.number, decisions=decisions)
        answer = await self.peer.request("decide", asked, master_api.Decided)
        if answer.refused:
            raise RuntimeError(answer.refused[0].reason)

    def connected(self, peer: RpcPeer) -> None:
        """Called by the peer."""

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Called by the peer."""
        if method != "register":
            return Done()
        self.peer = peer
        self.heard.set()
        return master_api.Registered(protocol=master_api.PROTOCOL, version=__version__, heartbeat_s=1.0)

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the peer."""
        if method == "heartbeat":
            uses = read_params(params, dict).get("executors", [])
            self.loads.append(len(memoryview(params)))
            if uses:
                self.uses.append(len(msgspec.msgpack.encode(uses)))

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Called by the peer."""

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Called by the peer."""
        raise error


@dataclass(frozen=True)
class AgentCost:
    """``cores`` is CPU time ÷ time; bytes are of the agent's heartbeats while it was measured."""

    cores: float
    memory_bytes: int
    heartbeat_bytes: float
    uses_bytes: list[int]


async def agent_cost(seconds: float, commands: int, *, executors: bool) -> AgentCost:
    """Of an agent with so many containers."""
    overseer = Overseer()
    with contextlib.ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        listen = directory / "master.sock"
        server = await asyncio.get_running_loop().create_unix_server(lambda: RpcPeer(overseer), listen)
        settings = {"cores": EXECUTORS, "memory_bytes": "8GiB", "master": str(listen)}
        _, pid = opened.enter_context(agent_and_pid(directory, **settings))
        await asyncio.wait_for(overseer.heard.wait(), 30)
        for number in range(commands):
            asked = request(f"e{number}", executor=executors)
            profile = varying(400, number) if executors else None
            await overseer.assign([assign(asked, profile)])
        await asyncio.sleep(_SETTLE_S)
        overseer.loads.clear()
        overseer.uses.clear()
        cpu_s, start = _cpu_s(pid), time.monotonic()
        await asyncio.sleep(seconds)
        cores = (_cpu_s(pid) - cpu_s) / (time.monotonic() - start)
        cost = AgentCost(cores, _memory_bytes(pid), statistics.mean(overseer.loads), list(overseer.uses))
        done = [master_api.Withdraw(job="job", task=f"e{number}") for number in range(commands)]
        if done:
            await overseer.assign(done)
            await asyncio.sleep(1.0)
        server.close()
    return cost


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def table_xii(seconds: float) -> None:
    """Print it."""
    nothing = await agent_cost(seconds, 0, executors=False)
    commands = await agent_cost(seconds, EXECUTORS, executors=False)
    executors = await agent_cost(seconds, EXECUTORS, executors=True)
    print(f"Table XII, over {seconds:g} s each{'CPU of one core':>26}{'memory':>12}{'a heartbeat':>16}")
    for what, cost in (
        ("no container", nothing),
        (f"{EXECUTORS} commands", commands),
        (f"{EXECUTORS} executors", executors),
    ):
        _cost(f"the agent with {what}", cost.cores, cost.memory_bytes, f"{cost.heartbeat_bytes:9.0f} bytes")
    more, more_bytes = executors.cores - commands.cores, executors.memory_bytes - commands.memory_bytes
    _cost("what following and watching add", more, more_bytes)
    _cost("the monitor surrogate's part", surrogate_s())
    print(
        "of the paper's machine (16 cores, 64 GiB); the paper's monitor surrogate takes 0.3 % of CPU, 0.1 % of memory"
    )
    for what, cores, size in (
        ("what they add", more, more_bytes),
        ("the agent", executors.cores, executors.memory_bytes),
    ):
        print(f"  {what:34}{cores / PAPER_CORES:14.3%}{size / PAPER_MEMORY_BYTES:15.3%}")
    sizes = executors.uses_bytes
    print(
        f"profiles: {statistics.mean(sizes):.0f} bytes a heartbeat that has any, at most {max(sizes)}, "
        f"{sum(sizes) / seconds:.0f} bytes/s; the paper's: 12.1 KB every 3 s"
    )


def _cost(what: str, cores: float, size_bytes: int | None = None, more: str = "") -> None:
    memory = f"{size_bytes / MIB:11.1f} MiB" if size_bytes is not None else ""
    print(f"  {what:34}{cores:14.2%}{memory} {more}")


def surrogate_s(seconds: int = 300) -> float:
    """CPU time that a second of 20 executors takes of the surrogate alone."""
    surrogate = MonitorSurrogate(3.0)
    for number in range(EXECUTORS):
        surrogate.began(f"c{number}", "job", f"e{number}", 0.0)
    use = ContainerUse(
        cpu_cores=1.5, memory_bytes=900 * MIB, memory_unreclaimable_bytes=900 * MIB, disk_bytes_per_s=3e7,
        network_send_bytes_per_s=2e6,
    )  # fmt: skip
    uses = {f"c{number}": use for number in range(EXECUTORS)}
    start = time.process_time()
    for second in range(1, seconds + 1):
        surrogate.sampled(Snapshot(float(second), 1.0, containers=uses))
        for _, recorded in surrogate.to_journal():
            msgspec.msgpack.encode(recorded)
        msgspec.msgpack.encode(surrogate.report(lambda container: (0.0, False), 12_000))
    return (time.process_time() - start) / seconds


# ---------------------------------------------------------------- Table XIII: a master with reports


def table_xiii() -> None:
    """Print it."""
    print(f"Table XIII: {NODES} nodes with {EXECUTORS} executors each; ms, mean (median)")
    print(f"  {'':24}{'without executors':>20}{'with':>20}   the paper")
    rows: tuple[tuple[str, Callable[[Master], list[float]], str], ...] = (
        ("a node's heartbeat", lambda one: one.heartbeats(3 * HEARTBEATS), "0.031 without, 0.035 with"),
        ("a driver's progress", lambda one: one.drivers(HEARTBEATS), "0.153 without, 0.155 with"),
    )
    for name, measure, paper in rows:
        without, having = (measure(Master(NODES, executors)) for executors in (0, EXECUTORS))
        print(f"  {name:24}{_ms(without):>20}{_ms(having):>20}   {paper}")


def _ms(took_s: Sequence[float]) -> str:
    return f"{statistics.mean(took_s) * 1000:.3f} ({statistics.median(took_s) * 1000:.3f})"


# ---------------------------------------------------------------- other decisions


def decisions() -> None:
    """Print how long each takes."""
    print("Other decisions, ms: median (worst)")
    rng = np.random.default_rng(1)
    runs = [_run(Settings(size * GIB, 3.0, 8 * GIB), rng) for size in (1, 2, 4, 8, 16, 32) for _ in range(3)]
    predictor = Predictor()
    _say(
        "prediction, same settings: 3 of 18 runs of 400 slots",
        _repeat(lambda: predictor.predict(runs[0].settings, runs), 30),
    )
    start = time.thread_time()
    predictor.learn(runs)
    learnt_s = time.thread_time() - start
    fresh = Settings(6 * GIB, 3.0, 8 * GIB)
    by = predictor.predict(fresh, runs).by
    _say(
        f"prediction, new settings, by {by} (learnt in {learnt_s:.1f} s)",
        _repeat(lambda: predictor.predict(fresh, runs), 30),
    )
    placed = [Master(NODES, EXECUTORS) for _ in range(5)]
    launched = [sum(map(len, one.held.values())) for one in placed]
    _say(f"a round that places {min(launched)} executors on {NODES} nodes", [one.round_s for one in placed])
    samples, turns = following(100)
    _say(f"a node's sample with {EXECUTORS} executors on time", samples)
    _say(f"a node's change of all {EXECUTORS} limits", turns)
    _say(f"a node's sample with {EXECUTORS} executors that are all late", following(10)[0][40:])


def following(slots: int) -> tuple[list[float], list[float]]:
    """Seconds that an agent's node takes for a sample, and for waking when a slot is about to begin or has ended."""
    capacity = Capacity(cores=16, memory_bytes=64 * GIB)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True))
    for number in range(EXECUTORS):
        asked = request(f"e{number}")
        node.handle(node_events.Decided(number + 1, [assign(asked, varying(slots, number))], 0.0), 0.0)
    for container in list(node.containers.live):
        node.handle(node_events.ContainerStarted(container, 7, {}, 0.0), 0.0)
    use = ContainerUse(cpu_cores=0.3, memory_bytes=60 * MIB, memory_unreclaimable_bytes=60 * MIB)
    uses = dict.fromkeys(node.containers.live, use)
    samples: list[float] = []
    turns: list[float] = []
    now = sampled = 0.0
    while now < 250.0:
        due = node.elasticity.due(now)
        now = min(sampled + 1.0, due if due is not None else sampled + 1.0)
        event: Any = node_events.Woken(now)
        if now == sampled + 1.0:
            sampled, event = now, node_events.Sampled(Snapshot(now, 1.0, containers=uses), now)
        start = time.thread_time()
        node.handle(event, now)
        (samples if isinstance(event, node_events.Sampled) else turns).append(time.thread_time() - start)
    return samples, turns


def _run(settings: Settings, rng: np.random.Generator) -> Run:
    """400 slots, more used of everything by larger inputs."""
    scale = (settings.input_bytes / GIB) ** 0.3
    shape = 0.5 + 0.5 * np.sin(np.arange(400) / 20.0)
    mean = np.array([2.0, 5e7, 1e7, 4e9])[:, None] * scale * shape * rng.uniform(0.95, 1.05, size=(4, 400)) + 0.1
    return Run(settings, mean, mean * 1.2)


def _repeat(what: Callable[[], object], count: int) -> list[float]:
    took_s = []
    for _ in range(count):
        start = time.thread_time()
        what()
        took_s.append(time.thread_time() - start)
    return took_s


def _say(name: str, took_s: Sequence[float]) -> None:
    print(f"  {name:70}{statistics.median(took_s) * 1000:9.3f} ({max(took_s) * 1000:.3f})")


def main(argv: list[str] | None = None) -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.elasecutor_overhead")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each agent is watched")
    options = parser.parse_args(argv)
    table_xiii()
    decisions()
    asyncio.run(table_xii(options.seconds))


if __name__ == "__main__":
    main()
