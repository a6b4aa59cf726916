"""The network over ten seconds, in namespaces of our own: natively on any host, and in the virtual machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from agent.network.htb import HANDLE
from bench.enforcement.bed import Bed, Work
from bench.enforcement.figures import Accuracy, Figure, Isolation, percentile
from bench.enforcement.isolation import HOGS
from penstock.model import Limits
from tests.network_bed import UPLINK, Flow
from tests.network_bed import Bed as Namespaces

SECONDS, WARM_UP_S = 10.0, 1.0
EGRESS_BAR, INGRESS_BAR = 0.03, 0.12
BYTES_PER_MBIT = 125_000
#: Of an agent whose link carries 100 Mbit/s.
SETTINGS: dict[str, object] = {"preempt_dry_run": True, "t_alloc": 2, "network_link_bytes_per_s": 100 * BYTES_PER_MBIT}
_LOADS = (("tcp", 1), ("tcp", 10), ("udp", 1), ("udp", 10))


class Network:
    """Two namespaces joined by a link (``spaces``), and an agent that lives in the near one (``bed``)."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.spaces = Namespaces()
        try:
            self.bed = Bed(directory, **settings).__enter__()
        except BaseException:
            self.spaces.close()
            raise

    def close(self) -> None:
        """Back to where we were."""
        try:
            self.bed.__exit__(None, None, None)
        finally:
            self.spaces.close()

    def egress(self, megabits: Sequence[int], seconds: float = SECONDS) -> Iterator[Figure]:
        """Measure the traffic on the wire at each rate, for each protocol, by one connection and by ten."""
        for mbit in megabits:
            for protocol, flows in _LOADS:
                with self.bed.cleared():
                    work = self.holder(limits=Limits(network_egress_bytes_per_s=mbit * BYTES_PER_MBIT))
                    flow = self.spaces.send(work.cgroup, protocol, flows=flows)
                    try:
                        yield self._sent(flow, f"egress, {protocol}, {_connections(flows)}", mbit, seconds)
                    finally:
                        flow.stop()

    def changed(self, before: int, after: int, seconds: float = SECONDS) -> Iterator[Figure]:
        """A rate that is changed while the connection is open."""
        for protocol in ("tcp", "udp"):
            with self.bed.cleared():
                work = self.holder(limits=Limits(network_egress_bytes_per_s=before * BYTES_PER_MBIT))
                flow = self.spaces.send(work.cgroup, protocol)
                try:
                    yield self._sent(flow, f"egress, {protocol}, before a change", before, seconds)
                    work.container.resize(network_egress_bytes_per_s=after * BYTES_PER_MBIT)
                    yield self._sent(flow, f"egress, {protocol}, after it", after, seconds)
                finally:
                    flow.stop()

    def ingress(self, megabits: Sequence[int], seconds: float = SECONDS) -> Iterator[Figure]:
        """Measure the data that arrives in the container: packets that are dropped have come over the wire already."""
        for mbit in megabits:
            for protocol in ("tcp", "udp"):
                with self.bed.cleared():
                    work = self.holder(limits=Limits(network_ingress_bytes_per_s=mbit * BYTES_PER_MBIT))
                    flow = self.spaces.receive(work.cgroup, protocol)
                    try:
                        flow.during(WARM_UP_S)
                        got = flow.during(seconds) / BYTES_PER_MBIT
                    finally:
                        flow.stop()
                yield Accuracy(
                    what=f"ingress, {protocol}", unit="Mbit/s", asked=mbit, charged=got, counted=None, bar=INGRESS_BAR
                )

    def shared(self, seconds: int = 10) -> Iterator[Figure]:
        """A promise on a link beside ten that send all they can; the agent must know the link's rate (SETTINGS)."""
        for protocol in ("tcp", "udp"):
            with self.bed.cleared():
                flows = [self.spaces.send(self.holder(network_bytes_per_s=60 * BYTES_PER_MBIT).cgroup, protocol)]
                try:
                    alone = _windows(flows[0], seconds)
                    flows += [self.spaces.send(self.holder(opportunistic=True).cgroup, protocol) for _ in range(HOGS)]
                    beside = _windows(flows[0], seconds)
                finally:
                    for flow in flows:
                        flow.stop()
            yield Isolation(
                what=f"{protocol}, 60 of 100 Mbit/s promised", hogs=f"{protocol} senders", unit="Mbit/s",
                alone=sum(alone) / len(alone), alone_p1=percentile(alone, 1),
                beside=sum(beside) / len(beside), beside_p1=percentile(beside, 1),
            )  # fmt: skip

    def holder(self, **spec: Any) -> Work:
        """A container for sockets to belong to."""
        work = self.bed.start("hold", 1, **spec)
        work.line("held")
        return work

    def _sent(self, flow: Flow, what: str, mbit: int, seconds: float) -> Accuracy:
        """The kernel's count is that of the class's root; the receiver's is turned into bytes on the wire."""
        flow.during(WARM_UP_S)
        before, began = self._link_bytes(), time.monotonic()
        arrived = flow.during(seconds)
        charged = (self._link_bytes() - before) / (time.monotonic() - began)
        return Accuracy(
            what=what, unit="Mbit/s", asked=mbit, charged=charged / BYTES_PER_MBIT, counted=arrived / BYTES_PER_MBIT,
            bar=EGRESS_BAR,
        )  # fmt: skip

    @staticmethod
    def _link_bytes() -> int:
        """Return the bytes that have left by the link, as its root counts them: headers included, of each packet on the
        wire.
        """
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=UPLINK)
            (root,) = (each for each in ip.get_qdiscs(index=index) if each["handle"] == HANDLE)
            return int(root.get_attr("TCA_STATS")["bytes"])


def _windows(flow: Flow, seconds: int) -> list[float]:
    flow.during(WARM_UP_S)
    return [flow.during(1.0) / BYTES_PER_MBIT for _ in range(seconds)]


def _connections(flows: int) -> str:
    return "one flow" if flows == 1 else f"{flows} flows"
