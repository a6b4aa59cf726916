"""These tests need root and a kernel whose cgroup v2 hierarchy has the controllers: the project's virtual machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Tests that need Debian's kernel, or drives that only QEMU emulates, have the mark ``emulated``. The tests of these
#: files run in both machines: the other tests rely on the same properties in both.
_BOTH = ("test_enforcement_contract", "test_machine", "test_units")
#: These files measure the processor time that processes get: no other tests run beside them. In other files single
#: tests have the mark ``measured``.
_MEASURED = (
    "test_devices_bind",
    "test_isolation",
    "test_observed_early",
    "test_promises_beside_ranks",
    "test_rank_traps",
    "test_ranks",
)
_NEEDED = {"cpu", "io", "memory", "pids"}
_CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")


def _refusal() -> str | None:
    have = set(_CONTROLLERS.read_text().split()) if _CONTROLLERS.exists() else set()
    if missing := _NEEDED - have:
        return f"this host's cgroup v2 has no controllers {', '.join(sorted(missing))}"
    return None if os.geteuid() == 0 else "they must run as root"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse with one line where the tests could only fail."""
    if not config.option.collectonly and (refusal := _refusal()):
        pytest.exit(f"tests/kernel: {refusal}; run them with: python -m tests.vm test", returncode=4)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under QEMU, where importing a file takes seconds, import those alone that have such a test."""
    if config.option.markexpr != "emulated" or not collection_path.match("test_*.py"):
        return None
    if collection_path.stem in _BOTH or "pytest.mark.emulated" in collection_path.read_text():
        return None
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the machines that it is for, before tests are selected by their marks."""
    for item in items:
        only_emulated = item.get_closest_marker("emulated") is not None
        only_native = item.get_closest_marker("native") is not None
        if not only_emulated:
            item.add_marker(pytest.mark.native)
        if only_emulated or (item.path.stem in _BOTH and not only_native):
            item.add_marker(pytest.mark.emulated)
        if item.path.stem in _MEASURED:
            item.add_marker(pytest.mark.measured)
