"""Limits, shares and counters of the network on the virtual machine's kernel, over veth.

More protocols, rates and numbers of flows: tests/integration/test_network_egress.py, and ingress, on the host's kernel.
Rates are low, and the best of some windows counts: the machine may run under QEMU.
"""

from __future__ import annotations

import pytest

from agent.network import NetworkLimiter, Shape, probe
from tests.network_bed import Bed, beds, together

MBIT = 125_000  # bytes per second
WINDOWS = 3

bed = pytest.fixture(beds)


def test_the_probe_reports_that_all_of_it_can_be_had() -> None:
    assert probe() is None


@pytest.mark.parametrize(
    ("protocol", "mbit", "flows"),
    [("udp", 1, 1), ("udp", 10, 10), ("tcp", 50, 1)],
)
def test_sending_is_limited_to_the_rate(bed: Bed, protocol: str, mbit: int, flows: int) -> None:
    rate = mbit * MBIT
    limiter = NetworkLimiter()
    try:
        assert limiter.attach(1, bed.cgroup("c"), Shape(ceil_bytes_per_s=rate)).result() == {}
        flow = bed.send(bed.cgroup("c"), protocol, flows=flows)
        assert flow.share_of(rate, seconds=2) == pytest.approx(1.0, abs=0.06)

        limiter.change(1, Shape(ceil_bytes_per_s=rate // 2)).result()
        assert flow.share_of(rate // 2, seconds=2) == pytest.approx(1.0, abs=0.06)

        limiter.reconcile({}).result()
        assert bed.qdiscs() == [] and bed.programs(bed.cgroup("c")) == 0
    finally:
        limiter.close()


def test_receiving_is_limited_to_the_rate_before_and_after_a_change(bed: Bed) -> None:
    limiter = NetworkLimiter()
    try:
        shape = Shape(ingress_bytes_per_s=10 * MBIT)
        assert limiter.attach(1, bed.cgroup("c"), shape).result() == {}
        flow = bed.receive(bed.cgroup("c"))
        assert flow.share_of(10 * MBIT, seconds=2) == pytest.approx(1.0, abs=0.12)

        limiter.change(1, Shape(ingress_bytes_per_s=5 * MBIT)).result()
        assert flow.share_of(5 * MBIT, seconds=2) == pytest.approx(1.0, abs=0.12)

        counted = limiter.counters()[1]
        assert counted.received_bytes > 15 * MBIT and counted.dropped_packets > 0
    finally:
        limiter.close()


def test_a_change_takes_effect_soon(bed: Bed) -> None:
    limiter = NetworkLimiter()
    try:
        limiter.attach(1, bed.cgroup("c"), Shape(ceil_bytes_per_s=20 * MBIT)).result()
        flow = bed.send(bed.cgroup("c"))
        lags_s = [
            flow.lag_s(lambda rate: limiter.change(1, Shape(ceil_bytes_per_s=rate)), before * MBIT, after * MBIT, 2)
            for before, after in ((20, 2), (2, 10))
        ]
        assert max(map(abs, lags_s)) < 0.3  # 0.1 on a machine that is not emulated
    finally:
        limiter.close()


def test_a_promise_holds_against_an_opportunistic_container_until_that_is_promoted(bed: Bed) -> None:
    limiter = NetworkLimiter(link_bytes_per_s=8 * MBIT)
    try:
        limiter.attach(1, bed.cgroup("promised"), Shape(rate_bytes_per_s=5 * MBIT)).result()
        limiter.attach(2, bed.cgroup("hog"), Shape(opportunistic=True)).result()
        flows = [bed.send(bed.cgroup(name)) for name in ("promised", "hog")]
        together(2.0, *flows)
        promised, left = (rate / MBIT for rate in together(3.0, *flows))
        limiter.change(2, Shape(rate_bytes_per_s=3 * MBIT)).result()
        together(2.0, *flows)
        assert promised > 0.94 * (promised + left)
        share = pytest.approx(3 / 8, rel=0.15)
        for _ in range(WINDOWS):  # a host that stops for a moment spoils one, as neither flow asks for its share then
            kept, promoted = together(3.0, *flows)
            if promoted / (kept + promoted) == share:
                break
        assert promoted / (kept + promoted) == share
    finally:
        limiter.close()


def test_the_next_agent_takes_everything_over_and_uninstalls_it(bed: Bed) -> None:
    cgroup, shape = bed.cgroup("c"), Shape(ceil_bytes_per_s=10 * MBIT)
    first = NetworkLimiter()
    first.attach(1, cgroup, shape).result()
    bed.send(cgroup).wire_bytes_per_s(1 * MBIT)
    first.close()

    second = NetworkLimiter()
    try:
        assert second.reconcile({3: (cgroup, shape)}, under=cgroup.parent).result() != []  # the class of slot 1
        assert second.counters()[3].sent_bytes > 1 * MBIT
        second.reconcile({}, under=cgroup.parent).result()
        assert bed.qdiscs() == [] and bed.programs(cgroup) == 0
    finally:
        second.close()
