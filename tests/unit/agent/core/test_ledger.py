"""Admission: the resources that can be promised still, and the room of the slack."""

from __future__ import annotations

from agent.core.ledger import compute_ledger
from agent.core.records import ContainerRecord
from penstock.model import Capacity, ContainerSpec

CAPACITY = Capacity(cores=4, memory_bytes=1000)


def test_a_share_of_the_link_is_promised_once() -> None:
    spec = ContainerSpec(argv=("x",), network_bytes_per_s=60)
    record = ContainerRecord(container="c", user="u", spec=spec, opportunistic=False)
    ledger = compute_ledger(CAPACITY, [record], [], None)
    assert ledger.refuse_network(40, 100) == ""
    assert "50 B/s asked, 40 B/s of 100 B/s not promised" in ledger.refuse_network(50, 100)
    assert "set network_link_bytes_per_s" in ledger.refuse_network(1, 0)
    assert ledger.refuse_network(0, 0) == ""
