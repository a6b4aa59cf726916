"""The lists of claims, the help, and files that cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.papers.catalogue import all_claims
from research.papers.command import main


def test_the_list_has_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [claim.name for claim in all_claims()]
    assert main(["--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name", "where", "needs"} == set(rows[0])
    assert {row["needs"] for row in rows} > {None}


def test_the_help_has_the_exit_statuses_of_this_command_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert out.startswith("usage: python -m research ")
    assert out.count("exit status:") == 1
    assert "  0  every claim was checked, whether it holds or not\n" in out


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["las_mq/fig1"], "unknown claim 'las_mq/fig1'; did you mean 'las_mq/fig01'?"),
        (["las_mq/fig01", "--traces", "absent"], "--traces: absent: no such directory"),
        (["--lst"], "unknown argument '--lst'; did you mean '--list'?"),
        ([], "--out: docs/benchmarks: no such directory; make it, or name a file elsewhere"),
    ],
)
def test_a_wrong_request_for_claims_is_one_line(
    argv: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert capsys.readouterr() == ("", f"python -m research: {complaint}\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [("absent/file", "absent: no such directory; make it, or name"), ("", " is a directory; name a file")],
)
def test_a_page_that_cannot_be_written_is_an_error_before_any_claim_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str, why: str
) -> None:
    assert main(["--out", str(tmp_path / path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"python -m research: --out: {tmp_path}") and why in captured.err
    assert captured.err.count("\n") == 1
