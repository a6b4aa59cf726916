"""How busy the network is: against what a link says of itself, or what the operator says of it."""

from __future__ import annotations

from types import SimpleNamespace

from agent.monitor.host import LinkFacts, _network_busy

MBIT = 125_000
LINKS: dict[str, LinkFacts] = {
    "lo": SimpleNamespace(isup=True, speed=0),
    "eth0": SimpleNamespace(isup=True, speed=100),
    "virtio": SimpleNamespace(isup=True, speed=0),
    "down": SimpleNamespace(isup=False, speed=10),
}


def test_a_link_that_tells_its_rate() -> None:
    assert _network_busy({"eth0": 0.0, "down": 0.0}, {"eth0": 50.0 * MBIT, "down": 9.0 * MBIT}, LINKS, 0) == 0.5


def test_one_that_does_not_is_believed_to_be_what_is_configured() -> None:
    rates = {"lo": 1000.0 * MBIT, "virtio": 20.0 * MBIT}
    assert _network_busy(rates, rates, LINKS, 0) is None
    assert _network_busy(rates, rates, LINKS, 40 * MBIT) == 0.5
