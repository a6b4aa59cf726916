"""`penstock profile` against the master's HTTP, as the fixture speaks it."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from tests.fakes.http_pages import http_pages
from tests.unit.penstock.cli.conftest import Fails

MIB = 1024.0**2


def _run(name: str, at: float, cores: list[float]) -> dict[str, Any]:
    slots = len(cores)
    mean = [cores, [MIB] * slots, [0.0] * slots, [512 * MIB] * slots]
    return {
        "run": name,
        "ended_at": at,
        "settings": {"input_bytes": 2**30, "cores": 2.0, "memory_bytes": 2**31},
        "stages": [slots // 2, slots],
        "mean": mean,
        "peak": [[2 * value for value in row] for row in mean],
    }


def _forecast(cores: list[float]) -> dict[str, Any]:
    run = _run("", 0.0, cores)
    del run["run"], run["ended_at"]
    low, high = ([[value * by for value in row] for row in run["mean"]] for by in (0.9, 1.1))
    return run | {"by": "mean of 3 runs", "error": 0.04, "low": low, "high": high}


SORT: dict[str, Any] = {
    "application": "sort",
    "user": "ann",
    "slot_s": 3.0,
    "resources": ["cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes"],
    "runs": [_run("job-2", 2e9, [1.0, 2.0, 0.5, 0.5]), _run("job-1", 1e9, [1.0, 2.0, 0.5, 0.5])],
    "forecasts": [_forecast([1.0, 2.0, 0.5, 0.5])],
    "history": [{"run": "job-1", "forecast": None}, {"run": "job-2", "forecast": _forecast([2.0, 2.0, 0.5, 0.5])}],
}
LIST: list[dict[str, Any]] = [
    {"application": "sort", "user": "ann", "runs": 2, "settings": [{}], "error": {"svr": 0.2}, "last_run_at": 2e9},
    {"application": "k/means", "user": "ann", "runs": 1, "settings": [{}], "error": {}, "last_run_at": 1e9},
    {"application": "k/means", "user": "bob", "runs": 1, "settings": [{}], "error": {}, "last_run_at": 1e9},
]


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Its pages, to be changed; the command finds it by the environment."""
    pages: dict[str, Any] = {"/profiles": LIST, "/profiles/ann/sort": SORT, "/profiles/bob/k%2Fmeans": SORT}

    def answer(path: str, _: object) -> tuple[int, bytes]:
        return (200 if path in pages else 404), json.dumps(pages.get(path, {"error": f"no {path}"})).encode()

    with http_pages(answer) as port:
        monkeypatch.setenv("PENSTOCK_MASTER_HTTP", f"127.0.0.1:{port}")
        yield pages


def out_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["profile", *argv]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_list(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split() for line in out_of(capsys, "list").splitlines()]
    assert rows[0] == ["application", "user", "runs", "settings", "last", "run", "error"]
    assert [row[:4] for row in rows[1:]] == [
        ["sort", "ann", "2", "1"],
        ["k/means", "ann", "1", "1"],
        ["k/means", "bob", "1", "1"],
    ]
    assert rows[1][-3:] == ["svr", "20", "%"]
    assert json.loads(out_of(capsys, "list", "--json")) == LIST


def test_list_of_nothing_explains_how_to_begin(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    master["/profiles"] = []
    assert "penstock submit --executors" in out_of(capsys, "list")


def test_the_page_of_an_agent_is_no_master_s(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    del master["/profiles"]
    url = f"http://{os.environ['PENSTOCK_MASTER_HTTP']}"
    assert main(["profile", "list", "--master", f"{url}/"]) == 1
    why = (
        "this page is no master's, whose port is 7422 unless it is configured; give the master's address with --master"
    )
    assert capsys.readouterr().err == f"penstock profile: {url}: {why}\n"


def test_show(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "show", "sort")
    runs, expected = said.split("\n\n")[1:]
    assert [line.split()[0] for line in runs.splitlines()[1:]] == ["job-1", "job-2"], "oldest first"
    for number in ("1 GiB", "2 cores, 2 GiB", "12s", "1.00 / 4.00", "1 MiB/s / 2 MiB/s", "512 MiB / 1 GiB"):
        assert number in runs
    assert "mean of 3 runs" in expected
    assert "4 %" in expected
    assert json.loads(out_of(capsys, "show", "sort", "--json")) == SORT


def test_a_run_that_ended_within_a_slot_is_shown_as_long_as_it_was(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short = _run("short", 1.0, [1.0, 3.0]) | {"last_part": 0.5}
    expected = _forecast([1.0, 3.0]) | {"last_part": 0.25}
    history = [{"run": "short", "forecast": expected}]
    master["/profiles/ann/sort"] = SORT | {"runs": [short], "forecasts": [expected], "history": history}
    shown = out_of(capsys, "show", "sort")
    assert "4.5s" in shown and "3.8s" in shown
    assert "1.67 / 6.00" in shown, "the mean over 4.5 s"
    (line,) = {line for line in out_of(capsys, "plot", "sort").splitlines() if line.endswith("s") and "└" in line}
    assert line.endswith("┴ 4.5s")
    lines = out_of(capsys, "plot", "sort").splitlines()
    cpu = lines.index("cpu, mean of each slot")
    assert lines[cpu + 6][14:] == 60 * "█"
    assert lines[cpu + 2][14:] == 40 * " " + 20 * "█", "half a slot is half as wide"
    assert "-17 %" in out_of(capsys, "compare", "sort")
    file = tmp_path / "sort.svg"
    out_of(capsys, "plot", "sort", "--svg", str(file))
    points = ET.parse(file).getroot().find(".//{http://www.w3.org/2000/svg}polygon[@stroke]")
    assert points is not None
    right = max(float(point.split(",")[0]) for point in points.attrib["points"].split())
    assert right == pytest.approx(836), "the run's end is the picture's"


def test_plot_draws_the_use_and_a_line_for_the_forecast(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = out_of(capsys, "plot", "sort").splitlines()
    assert lines[0] == "sort of ann, run job-2: █ used, ━ expected by mean of 3 runs"
    cpu = lines.index("cpu, mean of each slot")
    assert all(len(line) == 14 + 4 * 15 for line in lines[cpu + 1 : cpu + 7]), "four slots, each as wide as fits"
    chart = [line[14::15] for line in lines[cpu + 1 : cpu + 7]]
    assert lines[cpu + 1][:14] == "        2.00 ┤"
    # 1, 2, ½, ½ of 2 cores in six rows; 2, 2, ½, ½ were expected
    assert chart == ["━━  ", " █  ", " █  ", "██  ", "██━━", "████"]
    assert lines[cpu + 7].split() == ["0", f"└{29 * '─'}┴{29 * '─'}┴", "12s"], "its stages"
    assert "network: none used, or not counted on its hosts; none expected" in lines
    assert "memory, peak of each slot" in out_of(capsys, "plot", "sort", "--of", "peak")


def test_a_run_of_which_nothing_was_expected_is_drawn_alone(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    said = out_of(capsys, "plot", "sort", "--run", "job-1")
    assert said.splitlines()[0] == "sort of ann, run job-1: █ used, without a forecast"
    assert "━" not in said


def test_a_long_run_fits_the_width(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    master["/profiles/ann/sort"] = SORT | {"runs": [_run("long", 1.0, [1.0, 3.0] * 500)], "history": []}
    lines = out_of(capsys, "plot", "sort").splitlines()
    assert max(map(len, lines)) <= 14 + 100 + 8
    assert {len(line) for line in lines if line.endswith("█")} == {14 + 100}


def test_plot_as_a_picture(master: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "sort.svg"
    assert out_of(capsys, "plot", "sort", "--svg", str(file)) == ""
    picture = ET.parse(file).getroot()
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in picture.iter(f"{name}text")]
    assert {"used", "expected by mean of 3 runs", "cpu", "disk", "network", "memory"} <= set(texts)
    assert len(list(picture.iter(f"{name}polyline"))) == 4, "the forecast of each resource"
    assert len(list(picture.iter(f"{name}polygon"))) == 8, "the use, and the band"


def _with_gaps() -> dict[str, Any]:
    """A run of which the second slot has no sample, and the network none at all."""
    run = _run("gaps", 3e9, [1.0, 2.0, 0.5, 0.5])
    for series in (run["mean"], run["peak"]):
        series[0], series[2] = [1.0, None, 2.0, 0.0], [None] * 4
    return SORT | {"runs": [run], "history": []}


def test_slots_that_were_not_measured_are_gaps_in_a_plot(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    master["/profiles/ann/sort"] = _with_gaps()
    lines = out_of(capsys, "plot", "sort").splitlines()
    assert lines[0].endswith("█ used, without a forecast, · not measured")
    cpu = lines.index("cpu, mean of each slot")
    chart = [line[14::15] for line in lines[cpu + 1 : cpu + 7]]
    assert chart == ["  █ ", "  █ ", "  █ ", "█ █ ", "█ █ ", "█·█ "], "the fourth was measured: nothing was used"
    assert "network: not measured" in lines
    assert json.loads(out_of(capsys, "plot", "sort", "--json"))["run"]["mean"][0] == [1.0, None, 2.0, 0.0]


def test_a_picture_has_no_area_where_nothing_was_measured(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    master["/profiles/ann/sort"] = _with_gaps()
    file = tmp_path / "sort.svg"
    assert out_of(capsys, "plot", "sort", "--svg", str(file)) == ""
    picture = file.read_text()
    assert "nan" not in picture
    assert picture.count("<polygon") == 4, "two of cores around the gap, disk, memory"
    assert "network: not measured" in picture


def test_tables_count_the_slots_that_were_measured(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    page = _with_gaps()
    master["/profiles/ann/sort"] = page | {"history": [{"run": "gaps", "forecast": _forecast([1.0, 2.0, 0.5, 0.5])}]}
    shown = out_of(capsys, "show", "sort")
    assert "1.00 / 2.00" in shown
    assert "– / –" in shown
    [one] = json.loads(out_of(capsys, "compare", "sort", "--json"))
    assert one["errors"]["cores"]["total"] == 0.0, "4 core-slots were expected; three slots of 1 on average"
    assert one["errors"]["network_bytes_per_s"] == {"total": None, "peak": None, "within": None}


def test_compare(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    lines = out_of(capsys, "compare", "sort").splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("job-2")
    assert "+25 % / +0 % / 75 %" in lines[1], "5 core-slots were expected, 4 came; three of four in the band"
    assert "– / – / 100 %" in lines[1], "nothing was sent, and nothing was expected"
    document = json.loads(out_of(capsys, "compare", "sort", "--json"))
    assert [(one["run"], one["errors"]["cores"]["total"]) for one in document] == [("job-2", 0.25)]


def test_compare_without_a_forecast_has_the_reason(master: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    master["/profiles/ann/sort"] = SORT | {"history": SORT["history"][:1], "runs": SORT["runs"][:1]}
    said = out_of(capsys, "compare", "sort")
    assert "from earlier runs with its settings: too few runs have been recorded; forecasts of models are not" in said


def test_an_application_of_several_users_is_chosen_by_user(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str], fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = fails(2, "profile", "show", "k/means")
    assert line == "penstock profile: 'k/means' is of several users: ann, bob; give --user"
    assert "sort of ann" in out_of(capsys, "show", "k/means", "--user", "bob")
    monkeypatch.setattr("penstock.cli.profile._own_name", lambda: "bob")
    assert "sort of ann" in out_of(capsys, "show", "k/means"), "one's own comes first"


def test_text_from_the_master_cannot_steer_the_terminal(
    master: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    master["/profiles/ann/sort"] = SORT | {"user": "ann\x1b[2J[red]"}
    assert "\x1b" not in out_of(capsys, "show", "sort")
    assert "[red]" in out_of(capsys, "plot", "sort")


@pytest.mark.parametrize(
    ("status", "argv", "line"),
    [
        (2, ("show",), "show: name an application; `penstock profile list` lists them"),
        (2, ("list", "sort"), "list: it takes no application; `penstock profile show sort` shows one"),
        (2, ("draw", "sort"), "list|show|plot|compare: invalid choice: 'draw'"),
        (2, ("show", "sort", "--svg", "x"), "--svg and --run are for plot, not for show"),
        (4, ("show", "srot"), "no run of 'srot' has been recorded; known: sort, k/means"),
        (4, ("show", "sort", "--user", "eve"), "127.0.0.1:"),
        (4, ("plot", "sort", "--run", "x"), "--run: no run 'x'; known: job-1, job-2"),
        (2, ("plot", "sort", "--svg", "/nowhere/x.svg"), "--svg: /nowhere/x.svg: No such file or directory"),
        (2, ("list", "--master", "ftp://x"), "--master: 'ftp://x' is not an address; write for example http://127"),
        (2, ("list", "--master", "http://x:y"), "--master: 'http://x:y' is not an address"),
    ],
)
def test_bad_input_is_one_line(
    master: dict[str, Any], fails: Fails, status: int, argv: tuple[str, ...], line: str
) -> None:
    assert fails(status, "profile", *argv).startswith(f"penstock profile: {line}")


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"application": "sort"}, "its answer about the application is invalid: the key 'user' is missing"),
        (SORT | {"resources": ["cores"]}, "is invalid: series are one row for each resource"),
    ],
)
def test_an_answer_that_cannot_be_used_is_one_line(
    master: dict[str, Any], fails: Fails, page: object, why: str
) -> None:
    master["/profiles/ann/sort"] = page
    assert why in fails(1, "profile", "show", "sort", "--user", "ann")


def test_without_a_master_the_remedy_is_named(fails: Fails) -> None:
    line = fails(1, "profile", "list", "--master", "http://127.0.0.1:1")
    assert line == (
        "penstock profile: no master at http://127.0.0.1:1: Connection refused; give its HTTP address with --master"
    )
