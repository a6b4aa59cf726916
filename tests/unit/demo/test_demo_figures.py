"""The figures of a run in the documentation, and where they come from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from demo import figures, origin
from demo.__main__ import main as demonstrate
from demo.picture import main as draw

ROOT = Path(__file__).parents[3]
REPORT: dict[str, Any] = {
    "printed": ["", "  makespan    1.25 s", "", "all runs wrote the same bytes in every output file"],
    "date": "2026-01-31",
    "commit": "0123456789",
    "machine": "user-mode Linux on a processor",
    "input_bytes": 60_100_000,
    "plan": {"cores": 2.0},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two pages with old figures, and a report of new ones."""
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    old = figures.block({**REPORT, "printed": ["old figures"]})
    for page in ("README.md", "docs/benchmarks/demo.md"):
        (tmp_path / page).write_text(f"before\n{old}\nafter\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/report.json").write_text(json.dumps(REPORT))
    (tmp_path / "out/timeline.png").write_bytes(b"picture")
    return tmp_path


@pytest.mark.parametrize(
    ("option", "page", "other"),
    [([], "README.md", "docs/benchmarks/demo.md"), (["--host"], "docs/benchmarks/demo.md", "README.md")],
)
def test_the_figures_of_a_page_are_replaced(project: Path, option: list[str], page: str, other: str) -> None:
    for _ in range(2):  # the second time changes nothing
        assert figures.main([*option, "--out", str(project / "out")], project) == 0
        text = (project / page).read_text()
        assert text.startswith("before\n<!--")
        assert text.endswith("-->\nafter\n")
        assert "2026-01-31 at commit 0123456789\n(processors: 2; text: 60 MB; user-mode Linux on" in text
        assert "```text\n  makespan    1.25 s\n\nall runs" in text
        assert "old figures" not in text
    assert "old figures" in (project / other).read_text()
    assert (project / "docs/demo-timeline.png").exists() == (page == "README.md")


@pytest.mark.parametrize("spoilt", ["report.json", "timeline.png", "README.md", "commit"])
def test_a_missing_file_is_one_line_and_changes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], spoilt: str
) -> None:
    if spoilt == "README.md":
        (project / spoilt).write_text("no figures")
    elif spoilt == "commit":
        (project / "out/report.json").write_text(json.dumps({**REPORT, "plan": {}}))
    else:
        (project / "out" / spoilt).unlink()
    before = (project / "README.md").read_text()
    assert figures.main(["--out", str(project / "out")], project) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (project / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (None, "No such file or directory; run `make demo` first, or name the directory with its report"),
        ("[]", "is not what the demo writes; run `make demo` again"),
        ("{", "is no JSON: Expecting property name"),
        ('{"plan": {}}', "has no 'printed'; run `make demo` again"),
    ],
)
def test_a_report_that_is_none_names_the_option_and_the_remedy(
    project: Path, capsys: pytest.CaptureFixture[str], report: str | None, says: str
) -> None:
    path = project / "nope/report.json"
    if report is not None:
        path.parent.mkdir()
        path.write_text(report)
    assert figures.main(["--out", str(path.parent)], project) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"demo.figures: --out: {path}") and says in line


@pytest.mark.parametrize(
    ("timeline", "says"),
    [
        (None, "timeline.json: No such file or directory; `make demo` writes a timeline.json"),
        ("{}", "timeline.json: not a timeline of the demo; run `make demo` again"),
        ("[]", "timeline.json: not a timeline of the demo; run `make demo` again"),
        ("{", "timeline.json: no JSON: Expecting property name"),
    ],
)
def test_figures_that_cannot_be_drawn_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], timeline: str | None, says: str
) -> None:
    pytest.importorskip("matplotlib")
    source = tmp_path / "timeline.json"
    if timeline is not None:
        source.write_text(timeline)
    assert draw([str(source), str(tmp_path / "timeline.png")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("demo.picture: ") and says in line


def test_a_directory_for_the_report_that_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert demonstrate(["--out", str(tmp_path / "file/out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"demo: --out: {tmp_path}/file/out: Not a directory; name a directory that can be written"


def test_pages_have_a_place_for_the_figures() -> None:
    for page in ("README.md", "docs/benchmarks/demo.md"):
        assert figures.replaced((ROOT / page).read_text(encoding="utf-8"), "new")


def test_the_commit_and_whether_files_were_changed(tmp_path: Path) -> None:
    assert origin.commit(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("one")
    for step in (["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *step], check=True)
    commit = origin.commit(tmp_path)
    assert len(commit) == 10
    (tmp_path / "file").write_text("two")
    assert origin.commit(tmp_path) == f"{commit}-dirty"


def test_the_processor_is_named_where_the_kernel_names_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n")
    assert origin.machine(tmp_path / "cpuinfo").startswith("Some CPU @ 2 GHz, Linux ")
    assert ", Linux " in origin.machine(tmp_path / "none")
