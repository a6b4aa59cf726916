"""Counters of traffic are read while the limiter's worker changes what is attached."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agent.network import Counters, NetworkLimiter, limited_links


@contextmanager
def collected_at_each_allocation(callback: Any) -> Iterator[None]:
    """Collect garbage as often as possible: another thread may run meanwhile, and do what ``callback`` does."""
    usual = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(callback)


def test_counters_are_read_while_slots_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_links, "Htb", lambda: SimpleNamespace(close=lambda: None, links=list))
    made = NetworkLimiter()
    attached: dict[int, Any] = {slot: SimpleNamespace(programs=True) for slot in range(1, 9)}
    free = iter(range(100, 1000))
    made._table = SimpleNamespace(counters=lambda slot: Counters(slot, 0))  # type: ignore[assignment]
    made._containers = attached
    with collected_at_each_allocation(lambda phase, info: attached.update({next(free): attached[1]})):
        counters = made.counters()
    assert counters.keys() >= set(range(1, 9))
    made._table, made._containers = None, {}
    made.close()
