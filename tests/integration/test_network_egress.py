"""Egress limits on this very kernel, between network namespaces and in cgroups of the test's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest
import uvloop
from pyroute2 import IPRoute

from agent.network import EgressLimiter, bpf, probe
from agent.network.htb import HANDLE
from tests.network_bed import UPLINK, Bed

MBIT = 125_000  # bytes per second
OURS = [("htb", HANDLE)]


@pytest.fixture
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces, BPF programs, qdiscs")
    if refusal := probe():
        pytest.skip(refusal)
    made = Bed()
    yield made
    made.close()


@pytest.fixture
def limiter(bed: Bed) -> Iterator[EgressLimiter]:
    made = EgressLimiter([UPLINK])
    yield made
    made.close()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("mbit", [20, 100])
def test_what_is_sent_keeps_to_the_rate(bed: Bed, limiter: EgressLimiter, protocol: str, mbit: int) -> None:
    rate = mbit * MBIT
    assert limiter.attach(1, bed.cgroup("c"), rate) == {}

    sent = bed.send(bed.cgroup("c"), protocol).share_of(rate)

    assert sent == pytest.approx(1.0, abs=0.04)


def test_a_rate_can_change_while_a_socket_is_open_that_was_there_before_the_limit(
    bed: Bed, limiter: EgressLimiter
) -> None:
    flow = bed.send(bed.cgroup("c"))
    free = flow.wire_bytes_per_s(20 * MBIT)

    limiter.attach(1, bed.cgroup("c"), 20 * MBIT)
    first = flow.share_of(20 * MBIT)
    limiter.change(1, 5 * MBIT)
    second = flow.share_of(5 * MBIT)
    limiter.change(1, 40 * MBIT)
    third = flow.share_of(40 * MBIT)

    assert free > 3 * 20 * MBIT
    assert [first, second, third] == pytest.approx([1.0] * 3, abs=0.04)


def test_a_child_cgroup_shares_the_limit_of_its_container(bed: Bed, limiter: EgressLimiter) -> None:
    rate = 20 * MBIT
    limiter.attach(1, bed.cgroup("c"), rate)

    sent = bed.send(bed.cgroup("c/child")).share_of(rate)

    assert sent == pytest.approx(1.0, abs=0.04)


def test_ipv6_is_limited_too(bed: Bed, limiter: EgressLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), 20 * MBIT)

    assert bed.send(bed.cgroup("c"), "udp6").share_of(20 * MBIT) == pytest.approx(1.0, abs=0.04)


def test_a_container_cannot_choose_another_class_by_its_own_priority(bed: Bed, limiter: EgressLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), 20 * MBIT)
    limiter.attach(2, bed.cgroup("rich"), 200 * MBIT)

    sent = bed.send(bed.cgroup("c"), priority=HANDLE | 2).share_of(20 * MBIT)

    assert sent == pytest.approx(1.0, abs=0.04)
    assert limiter.counters()[2].sent_packets == 0


def test_others_are_not_limited(bed: Bed, limiter: EgressLimiter) -> None:
    rate = 5 * MBIT
    limiter.attach(1, bed.cgroup("limited"), rate)
    limited = bed.send(bed.cgroup("limited"))

    neighbour = bed.send(bed.cgroup("neighbour")).wire_bytes_per_s(20 * rate)

    assert neighbour > 8 * rate
    assert limited.share_of(rate) == pytest.approx(1.0, abs=0.04)


def test_two_containers_each_have_their_own_rate_and_counters(bed: Bed, limiter: EgressLimiter) -> None:
    limiter.attach(1, bed.cgroup("a"), 10 * MBIT)
    limiter.attach(2, bed.cgroup("b"), 20 * MBIT)
    slow, fast = bed.send(bed.cgroup("a")), bed.send(bed.cgroup("b"))

    shares = [slow.share_of(10 * MBIT), fast.share_of(20 * MBIT)]

    assert shares == pytest.approx([1.0, 1.0], abs=0.04)
    counters = limiter.counters()
    assert counters[1].sent_bytes >= 10 * MBIT and counters[2].sent_bytes >= 20 * MBIT
    assert counters[2].sent_bytes / counters[2].sent_packets == pytest.approx(1442, rel=0.02)


def test_to_attach_again_changes_the_rate_and_leaves_one_program(bed: Bed, limiter: EgressLimiter) -> None:
    cgroup = bed.cgroup("c")
    limiter.attach(1, cgroup, 50 * MBIT)
    limiter.attach(1, cgroup, 10 * MBIT)
    limiter.attach(1, cgroup, 10 * MBIT)

    assert len(bpf.attached(cgroup)) == 1
    assert bed.classes() == {HANDLE | 1}
    assert bed.send(cgroup).share_of(10 * MBIT) == pytest.approx(1.0, abs=0.04)


def test_a_cgroup_given_to_another_slot_is_limited_by_that_one(bed: Bed, limiter: EgressLimiter) -> None:
    cgroup = bed.cgroup("c")
    limiter.attach(1, cgroup, 50 * MBIT)
    limiter.attach(2, cgroup, 10 * MBIT)

    bed.send(cgroup).wire_bytes_per_s(1 * MBIT)

    assert len(bpf.attached(cgroup)) == 1
    assert limiter.counters()[1].sent_packets == 0
    assert limiter.counters()[2].sent_packets > 0


def test_after_detaching_nothing_is_left_of_it_and_it_is_free(bed: Bed, limiter: EgressLimiter) -> None:
    cgroup = bed.cgroup("c")
    limiter.attach(1, cgroup, 5 * MBIT)
    limiter.attach(2, bed.cgroup("other"), 5 * MBIT)
    flow = bed.send(cgroup)

    limiter.detach(1, cgroup)
    limiter.detach(1, cgroup)

    assert bpf.attached(cgroup) == []
    assert bed.classes() == {HANDLE | 2}
    assert flow.wire_bytes_per_s(100 * MBIT) > 8 * 5 * MBIT


def test_a_cgroup_that_is_gone_is_an_ordinary_result(bed: Bed, limiter: EgressLimiter) -> None:
    gone = bed.cgroup("c")
    limiter.attach(1, gone, 5 * MBIT)
    gone.rmdir()

    limiter.detach(1, gone)
    refused = limiter.attach(2, gone, 5 * MBIT)

    assert refused == {UPLINK: f"the cgroup {gone} is gone"}
    assert bed.classes() == set()


def test_what_cannot_be_enforced_is_said(bed: Bed) -> None:
    limiter = EgressLimiter([UPLINK, "nosuch0"])
    try:
        assert limiter.attach(1, bed.cgroup("c"), 5 * MBIT) == {"nosuch0": "there is no link nosuch0"}
        assert "at least 1250" in limiter.attach(2, bed.cgroup("c"), 100)[UPLINK]
        with pytest.raises(ValueError, match="at least 1250"):
            limiter.change(1, 100)
        with pytest.raises(KeyError):
            limiter.change(7, 5 * MBIT)
        with pytest.raises(ValueError, match="65000"):
            limiter.attach(65_001, bed.cgroup("c"), 5 * MBIT)
    finally:
        limiter.close()


def test_an_operators_own_root_qdisc_is_refused_and_left_as_it_is(bed: Bed, limiter: EgressLimiter) -> None:
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("add", "htb", index=index, handle=0x10000, default=0x10)
        ip.tc("add-class", "htb", index=index, handle=0x10010, parent=0x10000, rate=100 * MBIT, quantum=1514)

    failed = limiter.attach(1, bed.cgroup("c"), 5 * MBIT)
    limiter.reconcile({1: (bed.cgroup("c"), 5 * MBIT)})
    limiter.detach(1, bed.cgroup("c"))
    limiter.uninstall()

    assert "root qdisc of its own (htb 1:)" in failed[UPLINK]
    assert f"tc qdisc del dev {UPLINK} root" in failed[UPLINK]
    assert bed.qdiscs() == [("htb", 0x10000)]
    assert bed.classes() == {0x10010}


def test_a_root_that_somebody_took_away_is_put_back_with_all_classes(bed: Bed, limiter: EgressLimiter) -> None:
    limiter.attach(1, bed.cgroup("a"), 5 * MBIT)
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("del", index=index, handle=HANDLE, parent=0xFFFF_FFFF)

    assert limiter.attach(2, bed.cgroup("b"), 5 * MBIT) == {}

    assert bed.qdiscs() == OURS
    assert bed.classes() == {HANDLE | 1, HANDLE | 2}


def test_a_link_that_comes_later_is_limited_too(bed: Bed) -> None:
    limiter = EgressLimiter()
    try:
        assert limiter.attach(1, bed.cgroup("a"), 5 * MBIT) == {}
        assert bed.qdiscs() == []  # no route leads out by it yet
        with IPRoute() as ip:
            ip.link("add", ifname="late0", kind="veth", peer={"ifname": "late1"})
            (index,) = ip.link_lookup(ifname="late0")
            ip.addr("add", index=index, address="10.78.0.1", prefixlen=24)
            ip.link("set", index=index, state="up")
            ip.route("add", dst="0.0.0.0/0", gateway="10.78.0.2")

        assert limiter.attach(2, bed.cgroup("b"), 5 * MBIT) == {}

        assert bed.classes("late0") == {HANDLE | 1, HANDLE | 2}
        assert bed.qdiscs("lo") == []
    finally:
        limiter.close()


def test_uninstalling_leaves_nothing(bed: Bed, limiter: EgressLimiter) -> None:
    cgroups = [bed.cgroup(name) for name in ("a", "b")]
    for slot, cgroup in enumerate(cgroups, start=1):
        limiter.attach(slot, cgroup, 5 * MBIT)

    limiter.uninstall()

    assert bed.qdiscs() == [] and bed.classes() == set()
    assert [bpf.attached(cgroup) for cgroup in cgroups] == [[], []]
    assert limiter.counters() == {}


def test_closing_keeps_what_limits_and_removes_what_limits_nothing(bed: Bed) -> None:
    first = EgressLimiter([UPLINK])
    first.attach(1, bed.cgroup("c"), 5 * MBIT)
    first.close()
    assert bed.qdiscs() == OURS and bed.classes() == {HANDLE | 1}

    second = EgressLimiter([UPLINK])
    second.reconcile({1: (bed.cgroup("c"), 5 * MBIT)})
    second.detach(1, bed.cgroup("c"))
    second.close()
    assert bed.qdiscs() == []


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_can_be_used_where_an_event_loop_runs(bed: Bed, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def daemon() -> tuple[set[int], set[int]]:
        assert probe() is None
        limiter = EgressLimiter([UPLINK])
        try:
            limiter.reconcile({})
            limiter.attach(1, bed.cgroup("a"), 5 * MBIT)
            limiter.attach(2, bed.cgroup("b"), 5 * MBIT)
            limiter.change(1, 10 * MBIT)
            both = set(limiter.counters())
            limiter.detach(1, bed.cgroup("a"))
            return both, set(limiter.counters())
        finally:
            limiter.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(daemon()) == ({1, 2}, {2})
    assert bed.classes() == {HANDLE | 2}
