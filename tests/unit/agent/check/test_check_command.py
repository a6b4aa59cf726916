"""The command's lines and exit statuses, and the optional libraries of the master."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from agent.check import command
from agent.check.facts import Fact, libraries
from penstock.cli.errors import CommandError

FACTS = {
    "cpu": Fact(True, "cpu.max, cpu.weight"),
    "disk": Fact(False, "the io controller is bound to cgroup v1", "boot otherwise"),
    "freeze": Fact(True, "cgroup.freeze"),
}
PATHS = {"/": Fact(False, "9p", "use ext4"), "/data": Fact(True, "ext4 on vda; io.max on vda")}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "probe_tree", lambda: contextlib.nullcontext(None))
    monkeypatch.setattr(command, "enforcement", lambda tree: FACTS)
    monkeypatch.setattr(command, "libraries", dict)
    monkeypatch.setattr(command, "paths", lambda asked, facts: {f"path {p}": PATHS[str(p)] for p in asked})
    monkeypatch.setattr(command, "_usual", lambda: [Path("/")])


def test_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "cpu     yes  cpu.max, cpu.weight",
        "disk    no   the io controller is bound to cgroup v1; remedy: boot otherwise",
        "freeze  yes  cgroup.freeze",
        "path /  no   9p; remedy: use ext4",
    ]


@pytest.mark.parametrize(("path", "status"), [("/data", 0), ("/", 1)])
def test_a_path_that_is_asked_for_counts(capsys: pytest.CaptureFixture[str], path: str, status: int) -> None:
    assert command.main(["--need", "cpu", "--path", path]) == status
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == ["cpu", f"path {path}"]


def test_the_usual_paths_do_not_count(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "enforcement", lambda tree: {"cpu": FACTS["cpu"]})
    assert command.main([]) == 0
    assert "path /  no" in capsys.readouterr().out


@pytest.mark.parametrize(("need", "status"), [("cpu", 0), ("cpu, freeze", 0), ("disk", 1), ("cpu,disk", 1)])
def test_the_status_reports_only_needed_limits(capsys: pytest.CaptureFixture[str], need: str, status: int) -> None:
    assert command.main(["--need", need]) == status
    assert len(capsys.readouterr().out.splitlines()) == len(need.split(","))


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["disk"] == {
        "ok": False, "why": "the io controller is bound to cgroup v1", "remedy": "boot otherwise",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("need", "hint"), [("frieze", "did you mean 'freeze'?"), ("quux", "one of cpu, disk, freeze"), ("", "one of cpu")]
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], need: str, hint: str) -> None:
    assert command.main(["--need", need]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"penstock check: --need: unknown {need!r}; {hint}")


def test_an_unknown_option_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="unknown argument '--nonsense'") as caught:
        command.main(["--nonsense"])
    assert caught.value.status == 2


# ---------------------------------------------------------------- libraries


def test_a_missing_library_is_named_with_the_remedy() -> None:
    why = "forecasts by neighbours only: scikit-learn is not installed"
    remedy = f"{sys.executable} -m pip install 'penstock[prediction]'"
    assert libraries(lambda module: module == "sqlalchemy") == {"prediction": Fact(False, why, remedy)}
    assert all(fact.ok and not fact.remedy for fact in libraries(lambda module: True).values())


def test_a_host_without_a_master_needs_none_of_them() -> None:
    assert libraries(lambda module: module != "sqlalchemy") == {}


@pytest.mark.parametrize(("argv", "status"), [([], 0), (["--need", "prediction"], 1), (["--need", "cpu"], 0)])
def test_a_missing_library_counts_where_it_is_needed(
    argv: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "enforcement", lambda tree: {"cpu": FACTS["cpu"]})
    monkeypatch.setattr(command, "libraries", lambda: {"prediction": Fact(False, "by neighbours only", "install it")})
    assert command.main(argv) == status
    line = "prediction  no   by neighbours only; remedy: install it"
    assert (line in capsys.readouterr().out.splitlines()) is ("cpu" not in argv)
