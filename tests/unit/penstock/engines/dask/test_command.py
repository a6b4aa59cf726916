"""``penstock dask-worker`` is ``penstock run`` with a worker's command line."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("distributed")

from penstock.cli.errors import CommandError
from penstock.engines.dask import command


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []

    def run(argv: list[str]) -> int:
        found.append(argv)
        return 7

    monkeypatch.setattr(command.run, "main", run)
    return found


def test_limits_are_runs_and_the_rest_is_the_workers(ran: list[list[str]]) -> None:
    assert command.main(["--cpu", "2", "--", "tcp://10.0.0.1:8786", "--nthreads", "2"]) == 7
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "tcp://10.0.0.1:8786"]
    preload = ["--preload", "penstock.engines.dask.preload"]
    assert ran == [["--cpu", "2", "--", *worker, *preload, "--nthreads", "2"]]


@pytest.mark.parametrize("argv", [[], ["--cpu", "1"], ["--"]])
def test_a_worker_needs_a_scheduler(ran: list[list[str]], argv: list[str]) -> None:
    with pytest.raises(CommandError, match="no scheduler given"):
        command.main(argv)
    assert ran == []


def test_help_is_its_own(ran: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    assert "SCHEDULER" in capsys.readouterr().out
    assert ran == []
