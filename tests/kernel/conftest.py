"""These tests need root and a kernel whose cgroup v2 hierarchy has the controllers: the project's virtual machine."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

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


def _fail_where_skipped(report: Any) -> None:
    """A kernel test that silently does not run is worth nothing: in CI a skip is a failure."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests and fixtures that skip."""
    report = yield
    _fail_where_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Whole modules that skip."""
    report = yield
    _fail_where_skipped(report)
    return report
