"""Limits on a container's received data, and their counts, on this very kernel."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from agent.network import NetworkLimiter, Shape, bpf
from tests.network_bed import TIMEOUT_S, UDP_PAYLOAD_BYTES, Bed, beds

MBIT = 125_000  # bytes per second

bed = pytest.fixture(beds)


@pytest.fixture
def limiter(bed: Bed) -> Iterator[NetworkLimiter]:
    made = NetworkLimiter()
    yield made
    made.close()


def limit(rate_bytes_per_s: int) -> Shape:
    return Shape(ingress_bytes_per_s=rate_bytes_per_s)


@pytest.mark.parametrize(
    ("protocol", "mbit", "flows"),
    [("udp", 10, 1), ("udp6", 10, 1), ("udp", 100, 10), ("tcp", 100, 1)],
)
def test_receiving_is_limited_to_the_rate(
    bed: Bed, limiter: NetworkLimiter, protocol: str, mbit: int, flows: int
) -> None:
    rate = mbit * MBIT
    assert limiter.attach(1, bed.cgroup("c"), limit(rate)).result() == {}

    received = bed.receive(bed.cgroup("c"), protocol, flows=flows).share_of(rate, seconds=2)

    assert received == pytest.approx(1.0, abs=0.12)
    assert bed.qdiscs() == []


def test_it_changes_at_once_and_can_be_lifted_on_sockets_that_were_there_before(
    bed: Bed, limiter: NetworkLimiter
) -> None:
    flow = bed.receive(bed.cgroup("c"))
    free = flow.wire_bytes_per_s(20 * MBIT)
    limiter.attach(1, bed.cgroup("c"), limit(20 * MBIT)).result()
    first = flow.share_of(20 * MBIT)
    lags_s = [
        flow.lag_s(lambda rate: limiter.change(1, limit(rate)), before * MBIT, after * MBIT)
        for before, after in ((20, 5), (5, 40))
    ]
    limiter.change(1, Shape()).result()
    lifted = flow.wire_bytes_per_s(100 * MBIT)

    assert first == pytest.approx(1.0, abs=0.03)
    assert max(map(abs, lags_s)) < 0.1
    assert free > 60 * MBIT and lifted > 60 * MBIT


def test_children_share_the_limit_and_neighbours_do_not(bed: Bed, limiter: NetworkLimiter) -> None:
    rate = 5 * MBIT
    limiter.attach(1, bed.cgroup("c"), limit(rate)).result()
    inside = bed.receive(bed.cgroup("c/child"))

    neighbour = bed.receive(bed.cgroup("n")).wire_bytes_per_s(20 * rate)

    assert neighbour > 8 * rate
    assert inside.share_of(rate) == pytest.approx(1.0, abs=0.03)


def test_both_directions_are_counted_as_they_are_on_the_wire(bed: Bed, limiter: NetworkLimiter) -> None:
    for slot, name in enumerate(("sends", "receives"), start=1):
        limiter.attach(slot, bed.cgroup(name), Shape()).result()
    wire = UDP_PAYLOAD_BYTES + 42
    for _ in range(7):
        bed.exchange(bed.cgroup("sends"), bed.cgroup("receives"), UDP_PAYLOAD_BYTES)

    counted = limiter.counters()

    assert (counted[1].sent_packets, counted[1].sent_bytes) == (7, 7 * wire)
    assert (counted[2].received_packets, counted[2].received_bytes) == (7, 7 * wire)
    assert counted[1].received_packets == counted[2].sent_packets == counted[2].dropped_packets == 0


def test_merged_tcp_segments_are_counted_as_the_link_counts_them(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), Shape(ceil_bytes_per_s=50 * MBIT)).result()
    flow = bed.send(bed.cgroup("c"), "tcp")
    flow.wire_bytes_per_s(50 * MBIT)
    flow.stop()

    until = time.monotonic() + TIMEOUT_S
    while limiter.counters()[1].sent_bytes != pytest.approx(bed.class_bytes(1), rel=0.002):
        assert time.monotonic() < until  # packets still in the class are counted there when they leave


def test_packets_above_the_limit_are_counted_as_dropped(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(5 * MBIT)).result()
    bed.receive(bed.cgroup("c")).wire_bytes_per_s(5 * MBIT)

    assert limiter.counters()[1].dropped_packets > 0


def test_loopback_is_neither_limited_nor_counted(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(1250)).result()
    with bed.member(bed.cgroup("c")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(10)
        for _ in range(50):
            own.sendto(bytes(1000), own.getsockname())
            assert len(own.recv(2000)) == 1000

    counted = limiter.counters()[1]
    assert (counted.sent_bytes, counted.received_bytes, counted.dropped_packets) == (0, 0, 0)


def test_a_slot_that_is_given_to_another_container_counts_from_zero(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("a"), Shape()).result()
    bed.send(bed.cgroup("a")).wire_bytes_per_s(1 * MBIT)
    limiter.detach(1, bed.cgroup("a")).result()

    limiter.attach(1, bed.cgroup("b"), Shape()).result()

    assert limiter.counters()[1].sent_bytes == 0


@pytest.mark.parametrize(("slot", "the_same"), [(1, True), (500, False)])
def test_the_next_container_of_a_low_slot_gets_the_programs_that_are_loaded(
    bed: Bed, limiter: NetworkLimiter, slot: int, the_same: bool
) -> None:
    ids = []
    for cgroup in (bed.cgroup("first"), bed.cgroup("second")):
        assert limiter.attach(slot, cgroup, limit(MBIT)).result() == {}
        assert limiter.counters()[slot].received_bytes == 0
        ids.append(bpf.attached(cgroup))
        bed.receive(cgroup).wire_bytes_per_s(MBIT // 5)
        assert limiter.counters()[slot].received_bytes > 0
        limiter.detach(slot, cgroup).result()
        assert bed.programs(cgroup) == 0
    assert (ids[0] == ids[1]) is the_same


@pytest.mark.parametrize("found", [True, False], ids=["with", "without CAP_SYS_ADMIN"])
def test_a_program_that_another_program_has_detached_is_attached_beside_the_other(
    bed: Bed, limiter: NetworkLimiter, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CAP_SYS_ADMIN ours are not told from others', and the kernel attaches none twice."""
    cgroup = bed.cgroup("c")
    assert limiter.attach(1, cgroup, limit(MBIT)).result() == {}
    both = bpf.attached(cgroup)
    with bpf._opened(cgroup) as directory, bpf._ours(both[bpf.Direction.EGRESS]) as (program,):
        bpf._bpf(bpf._PROG_DETACH, struct.pack("=III", directory, program, bpf.Direction.EGRESS))
    if not found:
        monkeypatch.setattr(bpf, "_ours", lambda ids: contextlib.nullcontext([]))
    repaired = limiter.reconcile({1: (cgroup, limit(MBIT))}).result()
    assert repaired == [f"the egress program of {cgroup} was missing"]
    assert bpf.attached(cgroup) == both
