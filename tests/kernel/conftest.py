"""These tests need root and a kernel whose cgroup v2 hierarchy has the controllers: the project's virtual machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: What these say does not depend on what else the host does, however long they take: they may run beside anything. So
#: may those that are marked themselves.
_PATIENT = (
    "test_cgroup_behaviours", "test_enforcement_contract", "test_faults_memory", "test_launcher_cgroups",
    "test_machine", "test_units",
)  # fmt: skip
_NEEDED = {"cpu", "io", "memory", "pids"}
_CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")


def _refusal() -> str | None:
    have = set(_CONTROLLERS.read_text().split()) if _CONTROLLERS.exists() else set()
    if missing := _NEEDED - have:
        return f"this host's cgroup v2 has no controllers {', '.join(sorted(missing))}"
    return None if os.geteuid() == 0 else "they must run as root"


def pytest_configure() -> None:
    """Refuse with one line where the tests could only fail."""
    if refusal := _refusal():
        pytest.exit(f"tests/kernel: {refusal}; run them with: python -m tests.vm test", returncode=4)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before they are chosen by their marks."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem in _PATIENT:
            item.add_marker(pytest.mark.patient)
