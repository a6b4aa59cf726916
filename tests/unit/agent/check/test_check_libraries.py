"""Optional libraries of the master: named with the remedy where they are missing, and no reason to fail."""

from __future__ import annotations

import contextlib
import sys

import pytest

from agent.check import command
from agent.check.facts import Fact, libraries


def _install(extra: str) -> str:
    return f"{sys.executable} -m pip install 'penstock[{extra}]'"


def test_a_missing_library_is_named_with_the_remedy() -> None:
    assert libraries(lambda module: module == "sqlalchemy") == {
        "prediction": Fact(
            False, "forecasts by neighbours only: scikit-learn is not installed", _install("prediction")
        ),
    }
    assert all(fact.ok and not fact.remedy for fact in libraries(lambda module: True).values())


def test_a_host_without_a_master_needs_none_of_them() -> None:
    assert libraries(lambda module: module != "sqlalchemy") == {}


@pytest.mark.parametrize(("argv", "status"), [([], 0), (["--need", "prediction"], 1), (["--need", "cpu"], 0)])
def test_a_missing_library_counts_where_it_is_needed(
    argv: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "probe_tree", lambda: contextlib.nullcontext(None))
    monkeypatch.setattr(command, "enforcement", lambda tree: {"cpu": Fact(True, "cpu.max")})
    monkeypatch.setattr(command, "libraries", lambda: {"prediction": Fact(False, "by neighbours only", "install it")})
    monkeypatch.setattr(command, "paths", lambda asked, facts: {})
    assert command.main(argv) == status
    line = "prediction  no   by neighbours only; remedy: install it"
    assert (line in capsys.readouterr().out.splitlines()) is ("cpu" not in argv)
