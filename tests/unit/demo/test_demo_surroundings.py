"""Progress, the other tenants of the host, the command line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import parse
from demo.progress import Progress
from demo.tenants import fill, tallied


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_without_a_terminal_is_a_line_per_quarter() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.phase("reading")
    for percent in range(101):
        progress.update(percent / 100)
    progress.done()
    lines = stream.getvalue().splitlines()
    assert [line.split(" after")[0] for line in lines] == [f"reading: {p}%" for p in (0, 25, 50, 75, 100)]
    assert "\r" not in stream.getvalue()


def test_progress_on_a_terminal_redraws_one_line() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.phase("reading")
    progress.update(0.5)
    progress.done()
    assert stream.getvalue().count("\n") == 1
    assert "100%" in stream.getvalue().rsplit("\r", 1)[1]


def test_memory_is_filled_with_text_repeated(tmp_path: Path) -> None:
    for name in ("part-1", "part-2"):
        (tmp_path / name).write_bytes(name.encode())
    assert fill(15, sorted(tmp_path.iterdir())) == b"part-1part-2par"
    with pytest.raises(ValueError, match="nothing"):
        fill(10, [])


def test_the_archive_tallies_its_work_however_it_ends(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(b"text " * 50_000)
    tally = tmp_path / "tally"
    assert tallied(tally) == 0
    command = [sys.executable, "-m", "demo.tenants", "archive", "--memory", "200000", "--yielding"]
    command += ["--text", str(tmp_path), "--tally", str(tally)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"archive: 200000 bytes\n"
        assert os.getsid(process.pid) == process.pid, (
            "the process that gives way is a session of its own, not its parent"
        )
        while not tallied(tally):
            assert process.poll() is None
        process.kill()
    assert tallied(tally) > 0


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--megabytes", "0"],
        ["--input", str(tmp_path / "none")],
        ["--megabytes", "x"],
        ["--http", "0.0.0.0:7421"],
        ["--http", "nowhere"],
    ):
        with pytest.raises(SystemExit) as caught:
            parse(arguments)
        assert caught.value.code == 2
        assert arguments[0] in capsys.readouterr().err
