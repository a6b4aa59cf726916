"""Egress limits on this very kernel, between network namespaces and in cgroups of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop
from pyroute2 import IPRoute

from agent.network import NetworkLimiter, Shape, links_out, probe
from agent.network.htb import HANDLE
from tests.network_bed import TIMEOUT_S, UPLINK, Bed, beds

MBIT = 125_000  # bytes per second
OURS = [("htb", HANDLE)]

bed = pytest.fixture(beds)


@pytest.fixture
def limiter(bed: Bed) -> Iterator[NetworkLimiter]:
    made = NetworkLimiter()
    yield made
    made.close()


def settle(bed: Bed, limiter: NetworkLimiter, classes: set[int]) -> None:
    """Poll until only these classes are left: a class first sends its packets, and is removed at the next sweep."""
    until = time.monotonic() + TIMEOUT_S
    while bed.classes() != classes:
        assert time.monotonic() < until
        limiter.sweep().result()


def limit(rate_bytes_per_s: int) -> Shape:
    return Shape(ceil_bytes_per_s=rate_bytes_per_s)


@pytest.mark.parametrize(
    ("protocol", "mbit", "flows"),
    [("udp", 1, 1), ("udp", 100, 1), ("udp", 10, 10), ("tcp", 10, 1), ("tcp", 100, 10), ("tcp", 500, 1)],
)
def test_sending_is_limited_to_the_rate(
    bed: Bed, limiter: NetworkLimiter, protocol: str, mbit: int, flows: int
) -> None:
    rate = mbit * MBIT
    assert limiter.attach(1, bed.cgroup("c"), limit(rate)).result() == {}

    sent = bed.send(bed.cgroup("c"), protocol, flows=flows).share_of(rate)

    assert sent == pytest.approx(1.0, abs=0.03)


def test_a_rate_can_change_while_a_socket_is_open_that_was_there_before_the_limit(
    bed: Bed, limiter: NetworkLimiter
) -> None:
    flow = bed.send(bed.cgroup("c"))
    free = flow.wire_bytes_per_s(20 * MBIT)

    limiter.attach(1, bed.cgroup("c"), limit(20 * MBIT)).result()
    first = flow.share_of(20 * MBIT)
    limiter.change(1, limit(5 * MBIT)).result()
    second = flow.share_of(5 * MBIT)
    limiter.change(1, limit(40 * MBIT)).result()
    third = flow.share_of(40 * MBIT)

    assert free > 3 * 20 * MBIT
    assert [first, second, third] == pytest.approx([1.0] * 3, abs=0.03)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize(("before", "after"), [(100, 10), (20, 60)])
def test_a_change_takes_effect_within_a_tenth_of_a_second(
    bed: Bed, limiter: NetworkLimiter, protocol: str, before: int, after: int
) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(before * MBIT)).result()
    flow = bed.send(bed.cgroup("c"), protocol)

    lag_s = flow.lag_s(lambda rate: limiter.change(1, limit(rate)), before * MBIT, after * MBIT)

    assert abs(lag_s) < 0.1


def test_a_limit_can_be_lifted_and_set_again_on_an_open_connection(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(20 * MBIT)).result()
    flow = bed.send(bed.cgroup("c"), "tcp")
    assert flow.share_of(20 * MBIT) == pytest.approx(1.0, abs=0.04)

    limiter.change(1, Shape()).result()
    free = flow.wire_bytes_per_s(400 * MBIT)
    settle(bed, limiter, set())
    limiter.change(1, limit(20 * MBIT)).result()

    assert free > 8 * 20 * MBIT
    flow.wire_bytes_per_s(20 * MBIT)
    assert flow.share_of(20 * MBIT) == pytest.approx(1.0, abs=0.04)


def test_a_child_cgroup_shares_the_limit_of_its_container(bed: Bed, limiter: NetworkLimiter) -> None:
    rate = 20 * MBIT
    limiter.attach(1, bed.cgroup("c"), limit(rate)).result()

    sent = bed.send(bed.cgroup("c/child")).share_of(rate)

    assert sent == pytest.approx(1.0, abs=0.03)


def test_ipv6_is_limited_too(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(20 * MBIT)).result()

    assert bed.send(bed.cgroup("c"), "udp6").share_of(20 * MBIT) == pytest.approx(1.0, abs=0.03)


def test_a_container_cannot_choose_another_class_by_its_own_priority(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("c"), limit(20 * MBIT)).result()
    limiter.attach(2, bed.cgroup("rich"), limit(200 * MBIT)).result()

    sent = bed.send(bed.cgroup("c"), priority=HANDLE | 2).share_of(20 * MBIT)

    assert sent == pytest.approx(1.0, abs=0.03)
    assert limiter.counters()[2].sent_packets == 0


def test_others_are_not_limited(bed: Bed, limiter: NetworkLimiter) -> None:
    rate = 5 * MBIT
    limiter.attach(1, bed.cgroup("limited"), limit(rate)).result()
    limited = bed.send(bed.cgroup("limited"))

    neighbour = bed.send(bed.cgroup("neighbour")).wire_bytes_per_s(20 * rate)

    assert neighbour > 8 * rate
    assert limited.share_of(rate) == pytest.approx(1.0, abs=0.03)


def test_to_attach_again_changes_the_rate_and_leaves_one_program_each_way(bed: Bed, limiter: NetworkLimiter) -> None:
    cgroup = bed.cgroup("c")
    for mbit in (50, 10, 10):
        limiter.attach(1, cgroup, limit(mbit * MBIT)).result()

    assert bed.programs(cgroup) == 2
    assert bed.classes() == {HANDLE | 1}
    assert bed.send(cgroup).share_of(10 * MBIT) == pytest.approx(1.0, abs=0.03)


def test_a_cgroup_given_to_another_slot_is_limited_by_that_one(bed: Bed, limiter: NetworkLimiter) -> None:
    cgroup = bed.cgroup("c")
    limiter.attach(1, cgroup, limit(50 * MBIT)).result()
    limiter.attach(2, cgroup, limit(10 * MBIT)).result()

    bed.send(cgroup).wire_bytes_per_s(1 * MBIT)

    assert bed.programs(cgroup) == 2
    assert limiter.counters()[1].sent_packets == 0
    assert limiter.counters()[2].sent_packets > 0


def test_after_detaching_nothing_is_left_of_it_and_it_is_free(bed: Bed, limiter: NetworkLimiter) -> None:
    cgroup = bed.cgroup("c")
    limiter.attach(1, cgroup, limit(5 * MBIT)).result()
    limiter.attach(2, bed.cgroup("other"), limit(5 * MBIT)).result()
    flow = bed.send(cgroup)

    limiter.detach(1, cgroup).result()
    limiter.detach(1, cgroup).result()

    assert bed.programs(cgroup) == 0
    assert flow.wire_bytes_per_s(100 * MBIT) > 8 * 5 * MBIT
    assert set(limiter.counters()) == {2}
    settle(bed, limiter, {HANDLE | 2})


def test_the_next_container_in_a_slot_does_not_wait_for_the_packets_of_the_one_before(
    bed: Bed, limiter: NetworkLimiter
) -> None:
    limiter.attach(1, bed.cgroup("first"), limit(1 * MBIT)).result()
    first = bed.send(bed.cgroup("first"), flows=5)  # leaves more than half a megabyte, which would take 5 s
    first.during(0.5)
    first.stop()
    limiter.detach(1, bed.cgroup("first")).result()
    limiter.attach(1, bed.cgroup("next"), limit(1 * MBIT)).result()

    bed.exchange(bed.cgroup("next"), bed.cgroup("other"), 1400, timeout_s=2)


def test_a_cgroup_that_is_gone_is_an_ordinary_result(bed: Bed, limiter: NetworkLimiter) -> None:
    gone = bed.cgroup("c")
    limiter.attach(1, gone, limit(5 * MBIT)).result()
    gone.rmdir()

    limiter.detach(1, gone).result()
    asked = Shape(ceil_bytes_per_s=5 * MBIT, ingress_bytes_per_s=5 * MBIT)
    refused = limiter.attach(2, gone, asked).result()

    why = f"the cgroup {gone} is gone"
    assert refused == {f"network_egress_bytes_per_s on {UPLINK}": why, "network_ingress_bytes_per_s": why}
    assert bed.classes() == set()
    assert limiter.attach(3, gone, Shape()).result() == {}


def test_a_limit_that_cannot_be_enforced_is_reported(bed: Bed) -> None:
    with contextlib.closing(NetworkLimiter()) as limiter:
        assert limiter.attach(1, bed.cgroup("c"), limit(5 * MBIT)).result() == {}
        slow = limiter.change(1, Shape(ceil_bytes_per_s=100, ingress_bytes_per_s=100)).result()
        assert "at least 1250" in slow["network_egress_bytes_per_s"]
        assert "at least 1250" in slow["network_ingress_bytes_per_s"]
        promised = limiter.change(1, Shape(rate_bytes_per_s=5 * MBIT)).result()
        assert "set network_link_bytes_per_s" in promised[f"network_rate_bytes_per_s on {UPLINK}"]
        with pytest.raises(KeyError):
            limiter.change(7, limit(5 * MBIT)).result()
        with pytest.raises(ValueError, match="8191"):
            limiter.attach(8192, bed.cgroup("c"), limit(5 * MBIT)).result()


def test_an_operators_own_root_qdisc_is_refused_and_left_as_it_is(bed: Bed, limiter: NetworkLimiter) -> None:
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("add", "htb", index=index, handle=0x10000, default=0x10)
        ip.tc("add-class", "htb", index=index, handle=0x10010, parent=0x10000, rate=100 * MBIT, quantum=1514)

    failed = limiter.attach(1, bed.cgroup("c"), limit(5 * MBIT)).result()
    limiter.reconcile({1: (bed.cgroup("c"), limit(5 * MBIT))}).result()
    limiter.detach(1, bed.cgroup("c")).result()
    limiter.reconcile({}).result()

    why = failed[f"network_egress_bytes_per_s on {UPLINK}"]
    assert [(link.name, link.why_not) for link in links_out()] == [(UPLINK, why)]
    assert "root qdisc of its own (htb 1:)" in why and f"tc qdisc del dev {UPLINK} root" in why
    assert bed.qdiscs() == [("htb", 0x10000)]
    with IPRoute() as ip:
        assert [message["handle"] for message in ip.get_classes(index=index)] == [0x10010]


def test_a_link_that_an_operator_freed_is_limited_at_the_next_reconciliation(bed: Bed, limiter: NetworkLimiter) -> None:
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("add", "htb", index=index, handle=0x10000, default=0x10)
        assert limiter.attach(1, bed.cgroup("c"), limit(5 * MBIT)).result() != {}
        ip.tc("del", index=index, handle=0x10000, parent=0xFFFF_FFFF)

    limiter.reconcile({1: (bed.cgroup("c"), limit(5 * MBIT))}).result()

    assert bed.classes() == {HANDLE | 1}


def test_a_root_that_a_program_removed_is_restored_with_all_classes(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("a"), limit(5 * MBIT)).result()
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("del", index=index, handle=HANDLE, parent=0xFFFF_FFFF)

    assert limiter.attach(2, bed.cgroup("b"), limit(5 * MBIT)).result() == {}

    assert bed.qdiscs() == OURS
    assert bed.classes() == {HANDLE | 1, HANDLE | 2}


def test_drift_is_repaired_and_reported(bed: Bed, limiter: NetworkLimiter) -> None:
    known = {slot: (bed.cgroup(name), limit(5 * MBIT)) for slot, name in enumerate("abc", start=1)}
    for slot, (cgroup, shape) in known.items():
        limiter.attach(slot, cgroup, shape).result()
    assert limiter.reconcile(known).result() == []
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("del-class", index=index, handle=HANDLE | 1, parent=HANDLE)
        ip.tc("replace-class", "htb", index=index, handle=HANDLE | 2, parent=HANDLE, rate=50 * MBIT, quantum=1514)
        ip.tc("add-class", "htb", index=index, handle=HANDLE | 9, parent=HANDLE, rate=50 * MBIT, quantum=1514)
    bed.take_programs_off(bed.cgroup("c"))

    repaired = limiter.reconcile(known).result()

    assert sorted(repaired) == sorted(
        [
            f"the egress program of {bed.cgroup('c')} was missing",
            f"the ingress program of {bed.cgroup('c')} was missing",
            f"class 9 on {UPLINK}, which has no owner, was removed",
            f"class 1 on {UPLINK} was wrong and was restored",
            f"class 2 on {UPLINK} was wrong and was restored",
        ]
    )
    assert bed.classes() == {HANDLE | 1, HANDLE | 2, HANDLE | 3}
    assert bed.programs(bed.cgroup("c")) == 2
    assert limiter.reconcile(known).result() == []


def test_a_limit_that_another_root_takes_away_is_reported_until_it_is_back(bed: Bed, limiter: NetworkLimiter) -> None:
    known = {1: (bed.cgroup("c"), limit(5 * MBIT))}
    limiter.attach(1, *known[1]).result()
    assert limiter.not_enforced().result() == {1: {}}
    with IPRoute() as ip:
        (index,) = ip.link_lookup(ifname=UPLINK)
        ip.tc("del", "htb", index=index, handle=HANDLE)
        ip.tc("add", "pfifo", index=index, handle=0x20000)
        limiter.reconcile(known).result()
        ((what, why),) = limiter.not_enforced().result()[1].items()
        assert what == f"network_egress_bytes_per_s on {UPLINK}" and "pfifo" in why
        second = NetworkLimiter()  # of the agent's next start
        second.reconcile(known).result()
        assert second.change(1, known[1][1]).result() == {what: why}
        ip.tc("del", "pfifo", index=index, handle=0x20000)
    assert second.reconcile(known).result() == []
    assert second.not_enforced().result() == {1: {}}
    assert bed.qdiscs() == OURS
    second.close()


def test_classes_of_a_known_rate_go_where_it_is_not_known_any_more(bed: Bed) -> None:
    """The classes that share a link come after their parent by number, and it cannot go before them."""
    known = {1: (bed.cgroup("c"), limit(5 * MBIT))}
    first = NetworkLimiter(link_bytes_per_s=100 * MBIT)
    first.attach(1, *known[1]).result()
    first.close()
    assert len(bed.classes()) > 1

    second = NetworkLimiter()
    second.reconcile(known).result()
    assert bed.classes() == {HANDLE | 1}
    assert second.reconcile(known).result() == []
    second.close()


def test_a_link_that_comes_later_is_limited_too(bed: Bed) -> None:
    bed.lead_nowhere()
    with contextlib.closing(NetworkLimiter()) as limiter:
        assert limiter.attach(1, bed.cgroup("a"), limit(5 * MBIT)).result() == {}
        assert bed.qdiscs() == []  # no route leads out by it yet
        with IPRoute() as ip:
            ip.link("add", ifname="late0", kind="veth", peer={"ifname": "late1"})
            (index,) = ip.link_lookup(ifname="late0")
            ip.addr("add", index=index, address="10.78.0.1", prefixlen=24)
            ip.link("set", index=index, state="up")
            ip.route("add", dst="0.0.0.0/0", gateway="10.78.0.2")

        assert limiter.attach(2, bed.cgroup("b"), limit(5 * MBIT)).result() == {}

        assert bed.classes("late0") == {HANDLE | 1, HANDLE | 2}
        assert bed.qdiscs("lo") == []


def test_uninstalling_leaves_nothing(bed: Bed, limiter: NetworkLimiter) -> None:
    cgroups = [bed.cgroup(name) for name in ("a", "b")]
    for slot, cgroup in enumerate(cgroups, start=1):
        limiter.attach(slot, cgroup, limit(5 * MBIT)).result()

    limiter.reconcile({}).result()

    assert bed.qdiscs() == [] and bed.classes() == set()
    assert [bed.programs(cgroup) for cgroup in cgroups] == [0, 0]
    assert limiter.counters() == {}


def test_closing_keeps_classes_with_a_limit_and_removes_those_without(bed: Bed) -> None:
    first = NetworkLimiter()
    first.attach(1, bed.cgroup("c"), limit(5 * MBIT)).result()
    first.close()
    assert bed.qdiscs() == OURS and bed.classes() == {HANDLE | 1}

    second = NetworkLimiter()
    second.reconcile({1: (bed.cgroup("c"), limit(5 * MBIT))}).result()
    second.detach(1, bed.cgroup("c")).result()
    second.close()
    assert bed.qdiscs() == []


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_can_be_used_where_an_event_loop_runs(bed: Bed, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def daemon() -> tuple[set[int], set[int]]:
        assert probe() is None
        with contextlib.closing(NetworkLimiter()) as limiter:
            await asyncio.wrap_future(limiter.reconcile({}))
            await asyncio.wrap_future(limiter.attach(1, bed.cgroup("a"), limit(5 * MBIT)))
            await asyncio.wrap_future(limiter.attach(2, bed.cgroup("b"), limit(5 * MBIT)))
            await asyncio.wrap_future(limiter.change(1, limit(10 * MBIT)))
            both = limiter.counters()
            await asyncio.wrap_future(limiter.detach(1, bed.cgroup("a")))
            one = limiter.counters()
            return set(both), set(one)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(daemon()) == ({1, 2}, {2})
    assert bed.classes() == {HANDLE | 2}
