"""A driver is found by the address at which it listens, if it runs here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from penstock.engines.spark.driver import find


@pytest.fixture(params=["IPv4", "IPv4 by IPv6", "IPv6"])
def listening(request: pytest.FixtureRequest) -> Iterator[str]:
    """Listen as a driver does; yield the address in its URL."""
    host, bound = {
        "IPv4": ("127.0.0.1", "127.0.0.1"), "IPv4 by IPv6": ("127.0.0.1", "::ffff:127.0.0.1"), "IPv6": ("[::1]", "::1"),
    }[request.param]  # fmt: skip
    with socket.socket(socket.AF_INET6 if ":" in bound else socket.AF_INET) as server:
        if ":" in bound:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            server.bind((bound, 0))
        except OSError as error:
            pytest.skip(f"{bound}: {error}")
        server.listen()
        yield f"{host}:{server.getsockname()[1]}"


def test_the_process_that_listens_there_is_found(listening: str) -> None:
    assert find(f"spark://CoarseGrainedScheduler@{listening}") == os.getpid()


def test_at_the_same_port_of_another_address_is_another_process(listening: str) -> None:
    port = listening.rpartition(":")[2]
    assert find(f"spark://CoarseGrainedScheduler@127.0.0.9:{port}") == 0


@pytest.mark.parametrize("url", ["", "spark://CoarseGrainedScheduler@127.0.0.1", "spark://x@host:port", "spark://[x"])
def test_an_invalid_address_is_no_driver(url: str) -> None:
    assert find(url) == 0


def test_a_process_that_connects_to_it_is_no_driver(listening: str) -> None:
    host, _, port = listening.strip("[").replace("]", "").rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        ours = client.getsockname()
        assert find(f"spark://x@[{ours[0]}]:{ours[1]}" if ":" in host else f"spark://x@{ours[0]}:{ours[1]}") == 0
