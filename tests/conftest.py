"""Settings of all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

_REAL = [Path(__file__).parent / room for room in ("integration", "kernel", "vm", "cluster")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI what runs real processes gets a second chance, reported as RERUN: the machine is shared with strangers.

    Elsewhere, and for tests that decide nothing but logic (unit, property, contract), one failure is a failure.
    """
    if os.environ.get("CI") != "true":
        return
    for item in items:
        if any(item.path.is_relative_to(room) for room in _REAL):
            item.add_marker(pytest.mark.flaky(reruns=1))
