"""Settings of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The time of an example shows how busy the machine is, not whether the code is right. Each run draws other examples, so
# the number counts over many runs; tests of the cores, where events follow each other, set their own.
settings.register_profile("house", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

#: Not the cluster's: they build on each other, and the effect of one of them on it cannot be repeated.
_REAL = [Path(__file__).parent / room for room in ("integration", "kernel")]


_PROPERTY, _CONTRACT = (Path(__file__).parent / room for room in ("property", "contract"))
#: Hypothesis makes a failing example smaller for 300 s at most; ended before, it would not be shown.
_WITH_SHRINKING_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI tests of real processes get two more chances, reported as RERUN: the machine is shared with strangers.

    Elsewhere, and for tests of logic alone (unit, property, contract), one failure is a failure.
    """
    for item in items:
        if item.path.is_relative_to(_PROPERTY):
            item.add_marker(pytest.mark.timeout(_WITH_SHRINKING_S))
    if os.environ.get("CI") != "true":
        return
    for item in items:
        if any(item.path.is_relative_to(room) for room in _REAL):
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests of logic make objects by the million, and few that refer to each other: looking for these after every 700
    takes an eighth of the processor time. Tests of processes leave descriptors in such objects, which must be closed.
    """
    if not any(item.path.is_relative_to(room) for item in session.items for room in (*_REAL, _CONTRACT)):
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 1000)


#: So many characters of why a test failed at first are printed.
_SHOWN = 200


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each rerun: which test failed at first, and how."""
    reruns = terminalreporter.stats.get("rerun", [])
    if reruns:
        terminalreporter.write_sep("=", "rerun tests", yellow=True)
    for report in reruns:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash is not None else str(report.longrepr)
        terminalreporter.write_line(f"RERUN {report.nodeid} - {message.partition(chr(10))[0][:_SHOWN]}", yellow=True)


#: The beginning of a skip's reason where CI's machine cannot run the test, whatever is installed and as any user: its
#: kernel does not offer all that the virtual machine's does, or another target of `make` runs it. In the virtual
#: machine itself no skip begins like this.
_ELSEWHERE = "Skipped: elsewhere: "


def _fail_where_skipped(report: Any) -> None:
    """A test that silently does not run is worth nothing: in CI a skip is a failure, unless it had to be."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not why.startswith(_ELSEWHERE) or report.nodeid.startswith("tests/kernel/"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {why}"


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
