"""Due promises are kept: with any best-effort work, the promised bundles are placed a few rounds later."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import events as e
from master.core.guarantees import Promised
from penstock.model import Capacity, Ended, EndedBy, KindAmounts
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import MB, Bed, command, task

CORES = 4
BEGINS = 3.0
STOPPED = Ended(by=EndedBy.CANCELLED)


class Plan:
    """One core and 50 MB for each of so many bundles, from ``BEGINS`` on."""

    def __init__(self, bundles: int) -> None:
        self._promised = Promised(float(bundles), 50.0 * MB * bundles, bundles)

    def promised(self, at: float) -> Mapping[str, Promised]:
        return {"r": self._promised} if at >= BEGINS else {}

    def later(self, at: float) -> Collection[str]:
        return {"r"} if at < BEGINS else ()

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Learns nothing."""


class Hosts(Bed):
    """Agents that start their assigned work, and end their stopped work one step later."""

    def __init__(self, nodes: int, bundles: int) -> None:
        super().__init__(ordering="fifo", node_timeout_s=100.0)
        self.cluster.guarantees.plan = Plan(bundles)
        self.names = [f"n{index}" for index in range(nodes)]
        for name in self.names:
            self.node(name, capacity=Capacity(cores=CORES, memory_bytes=1000 * MB))
        self.stopped: list[tuple[str, str]] = []

    def step(self) -> None:
        """Run a round; stopped work ends; every node reports."""
        before = len(self.sent)
        self.round()
        told = [(node, d) for node, d in self.sent[before:] if isinstance(d, api.Withdraw)]
        self.stopped += [(decision.job, decision.task) for _, decision in told]
        for node, decision in told:
            ended = api.CommandEnded(job=decision.job, task=decision.task, origin="n0", ended=STOPPED)
            self.serve(e.Received(node, ended))
        for name in self.names:
            held = list(self.cluster.nodes[name].held.values())
            self.heartbeat(
                name,
                promised_cores=sum(one.cores for one in held),
                promised_memory_bytes=sum(one.memory_bytes for one in held),
                idle=(max(0, CORES - len(held)), 1, 2),
                pending=KindAmounts(cpu=float(sum(one.usage.cpu for one in held))),
            )

    def placed(self, job: str) -> int:
        return sum(1 for one in self.cluster.jobs[job].tasks.values() if one.node)


others = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.0, 2.0, 4.0]), st.integers(0, 400)), max_size=14)


@given(st.integers(1, 3), others, st.integers(0, 5), st.data())
@settings(max_examples=60)
def test_due_bundles_are_placed(
    nodes: int, best: list[tuple[float, int]], frameworks: int, data: st.DataObject
) -> None:
    bundles = data.draw(st.integers(1, nodes * CORES), "bundles")
    wanted = data.draw(st.integers(0, nodes * CORES + 2), "wanted")
    hosts = Hosts(nodes, bundles)
    for at, (job, reservation) in enumerate((("best", ""), ("framework", ""), ("prod", "r"))):
        hosts.job("n0", job, at=float(at), reservation=reservation)
    hosts.ready("n0", *[task(f"f{i}", 50) for i in range(frameworks)], job="framework")
    hosts.ready("n0", *[command(f"b{i}", memory, cores) for i, (cores, memory) in enumerate(best)], job="best")
    while hosts.now < BEGINS - 0.5:
        hosts.step()
    assert hosts.stopped == [], "nothing was due"
    busy = hosts.placed("best")
    hosts.ready("n0", *[command(f"p{i}", 50, 1.0) for i in range(wanted)], job="prod")
    hosts.now = BEGINS
    for _ in range(4):
        hosts.step()
    assert hosts.placed("prod") >= min(bundles, wanted)
    assert all(job == "best" for job, _ in hosts.stopped), "neither promised work nor a framework's"
    if not wanted:
        assert hosts.stopped == []
    assert len(set(hosts.stopped)) <= busy
    stopped = len(hosts.stopped)
    for _ in range(3):
        hosts.step()
    assert len(hosts.stopped) == stopped, "it comes to rest"
    assert hosts.placed("prod") >= min(bundles, wanted)
