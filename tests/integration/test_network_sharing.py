"""A link whose rate is known, shared by containers with and without a promise, and by opportunistic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent.network import NetworkLimiter, Shape
from agent.network.htb import HANDLE
from agent.network.htb_parameters import LINK, OPPORTUNISTIC, RANKED
from tests.network_bed import UPLINK, Bed, Flow, beds, together

MBIT = 125_000  # bytes per second
#: No more than a UDP sender in Python comes up to on a busy machine.
LINK_MBIT = 100
COMMON = {HANDLE | minor for minor in (LINK, *RANKED, OPPORTUNISTIC)}

bed = pytest.fixture(beds)


@pytest.fixture
def limiter(bed: Bed) -> Iterator[NetworkLimiter]:
    made = NetworkLimiter(link_bytes_per_s=LINK_MBIT * MBIT)
    yield made
    made.close()


def promise(mbit: int) -> Shape:
    return Shape(rate_bytes_per_s=mbit * MBIT)


def shares(*flows: Flow, until: Callable[[list[float]], bool]) -> list[float]:
    """Return the part of the link that each flow gets, once they fill it and share it as expected.

    Senders and receivers have to share two processors with all other processes: hence not at the first try.
    """
    parts: list[float] = []
    for _ in range(20):
        parts = [rate / (LINK_MBIT * MBIT) for rate in together(0.5, *flows)]
        if sum(parts) > 0.9 and until(parts):
            break
    return parts


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_an_opportunistic_container_gets_the_remainder_of_a_promised_one(
    bed: Bed, limiter: NetworkLimiter, protocol: str
) -> None:
    assert limiter.attach(1, bed.cgroup("promised"), promise(60)).result() == {}
    assert limiter.attach(2, bed.cgroup("hog"), Shape(opportunistic=True)).result() == {}
    hog = bed.send(bed.cgroup("hog"), protocol)
    alone = hog.share_of(LINK_MBIT * MBIT)

    flows = [bed.send(bed.cgroup("promised"), protocol), hog]
    promised, left = shares(*flows, until=lambda parts: parts[1] < 0.05)

    assert alone > 0.9
    assert promised > 0.94 * (promised + left)
    assert promised + left == pytest.approx(1.0, abs=0.15)


def test_the_excess_goes_to_regular_containers_before_opportunistic_ones(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("promised"), promise(50)).result()
    limiter.attach(2, bed.cgroup("hog"), Shape(opportunistic=True)).result()
    limiter.attach(3, bed.cgroup("regular"), Shape()).result()
    flows = [bed.send(bed.cgroup(name), flows=2) for name in ("promised", "regular", "hog")]

    promised, regular, left = shares(*flows, until=lambda parts: parts[1] > 2 * parts[2])

    assert promised > 0.49
    assert regular > 2 * left
    assert bed.classes() == COMMON | {HANDLE | 1}  # the other two share classes, each with its like


def test_the_first_job_goes_before_the_others_and_they_change_places_on_open_sockets(
    bed: Bed, limiter: NetworkLimiter
) -> None:
    for slot, name in enumerate(("first", "second", "third")):
        limiter.attach(1 + slot, bed.cgroup(name), Shape(rank=slot)).result()
    flows = [bed.send(bed.cgroup(name), flows=2) for name in ("first", "second", "third")]
    before = shares(*flows, until=lambda parts: parts[1] + parts[2] < 0.05)

    limiter.change(1, Shape(rank=1)).result()
    limiter.change(2, Shape()).result()
    after = shares(*flows, until=lambda parts: parts[0] + parts[2] < 0.05)

    assert before[1] + before[2] < 0.05 < 0.9 < before[0]
    assert after[0] + after[2] < 0.05 < 0.9 < after[1]
    assert bed.classes() == COMMON


def test_a_promised_container_goes_before_the_second_job(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("promised"), promise(30)).result()
    limiter.attach(2, bed.cgroup("second"), Shape(rank=1)).result()
    limiter.attach(3, bed.cgroup("hog"), Shape(opportunistic=True)).result()
    flows = [bed.send(bed.cgroup(name), flows=2) for name in ("promised", "second", "hog")]
    promised, second, _ = shares(*flows, until=lambda parts: parts[0] > 0.9)
    assert promised > 0.9 and second < 0.05


def test_promotion_takes_effect_on_open_sockets(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("promised"), promise(50)).result()
    limiter.attach(2, bed.cgroup("other"), Shape(opportunistic=True)).result()
    flows = [bed.send(bed.cgroup(name), flows=2) for name in ("promised", "other")]
    starved = shares(*flows, until=lambda parts: parts[1] < 0.05)[1]

    limiter.change(2, promise(40)).result()
    promoted = shares(*flows, until=lambda parts: parts[1] > 0.38)[1]
    limiter.change(2, Shape(opportunistic=True)).result()
    demoted = shares(*flows, until=lambda parts: parts[1] < 0.05)[1]

    assert starved < 0.05
    assert promoted > 0.38
    assert demoted < 0.05
    limiter.sweep().result()  # in the meantime its class had gone empty
    assert bed.classes() == COMMON | {HANDLE | 1}


def test_a_class_of_its_own_changes_its_priority_too(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("promised"), promise(50)).result()
    limit = 25 * MBIT
    limiter.attach(2, bed.cgroup("other"), Shape(ceil_bytes_per_s=limit, opportunistic=True)).result()
    flows = [bed.send(bed.cgroup(name), flows=2) for name in ("promised", "other")]
    starved = shares(*flows, until=lambda parts: parts[1] < 0.05)[1]

    limiter.change(2, Shape(rate_bytes_per_s=limit, ceil_bytes_per_s=limit)).result()

    promoted = shares(*flows, until=lambda parts: abs(parts[1] - 0.25) < 0.02)[1]

    assert starved < 0.05
    assert promoted == pytest.approx(0.25, abs=0.02)
    limiter.sweep().result()
    assert bed.classes() == COMMON | {HANDLE | 1, HANDLE | 2}


def test_a_promise_beyond_the_link_is_cut_and_reported(bed: Bed, limiter: NetworkLimiter) -> None:
    assert limiter.attach(1, bed.cgroup("a"), promise(75)).result() == {}
    said = limiter.attach(2, bed.cgroup("b"), promise(50)).result()

    assert f"{25 * MBIT} of its {100 * MBIT} bytes/s left" in said[f"network_rate_bytes_per_s on {UPLINK}"]
    limiter.detach(1, bed.cgroup("a")).result()
    assert limiter.reconcile({2: (bed.cgroup("b"), promise(50))}).result() == []
    said = limiter.attach(1, bed.cgroup("a"), promise(75)).result()
    assert f"{50 * MBIT} of its {100 * MBIT} bytes/s left" in said[f"network_rate_bytes_per_s on {UPLINK}"]


def test_regular_containers_without_limit_or_promise_cost_no_tree(bed: Bed, limiter: NetworkLimiter) -> None:
    limiter.attach(1, bed.cgroup("a"), Shape()).result()
    limiter.attach(2, bed.cgroup("b"), Shape(ingress_bytes_per_s=10 * MBIT)).result()

    assert bed.qdiscs() == [] and bed.classes() == set()

    limiter.attach(3, bed.cgroup("hog"), Shape(opportunistic=True)).result()
    assert bed.classes() == COMMON
    limiter.detach(3, bed.cgroup("hog")).result()
    limiter.reconcile({1: (bed.cgroup("a"), Shape())}).result()
    assert bed.qdiscs() == []
