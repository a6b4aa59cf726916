"""Egress limits on the virtual machine's kernel, over veth, with cgroups that have controllers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.network import EgressLimiter, bpf, probe
from tests.network_bed import UPLINK, Bed

MBIT = 125_000  # bytes per second


@pytest.fixture
def bed() -> Iterator[Bed]:
    assert probe() is None
    made = Bed()
    yield made
    made.close()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_container_sends_no_more_and_not_much_less_than_its_rate(bed: Bed, protocol: str) -> None:
    rate = 20 * MBIT
    container = bed.cgroup("container")
    limiter = EgressLimiter([UPLINK])
    try:
        assert limiter.attach(1, container, rate) == {}
        flow = bed.send(container, protocol)
        assert flow.share_of(rate, windows=12) == pytest.approx(1.0, abs=0.1)

        limiter.change(1, rate // 4)
        assert flow.share_of(rate // 4, windows=12) == pytest.approx(1.0, abs=0.1)

        limiter.uninstall()
        assert bed.qdiscs() == []
        assert bpf.attached(container) == []
        assert flow.wire_bytes_per_s(rate) > 1.2 * rate
    finally:
        limiter.close()
