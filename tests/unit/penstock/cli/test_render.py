"""Parts of tables for people: the columns that stay where space is short, colours on terminals only, bars and
durations.
"""

from __future__ import annotations

import io
import re

import pytest
from rich.console import RenderableType

from penstock.cli.plain_text import duration
from penstock.cli.render import Column, Fitted, bar, console, field
from penstock.cli.render_cluster import cluster_view
from penstock.cli.render_host import host_view
from tests.unit.penstock.cli.render_bed import CLUSTER, NOW, STATUS, printed, promised, shown


@pytest.mark.parametrize("view", [host_view(STATUS), cluster_view(CLUSTER, [promised("now", (-1.0, 600.5))], NOW)])
def test_eighty_columns_show_the_important_ones_whole(view: RenderableType) -> None:
    text = printed(view, 80, terminal=True)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace("… and", "")
    for header in ("resource", "slack", "cores", "memory", "state"):
        assert header in text


def test_a_column_goes_before_another_is_squeezed_and_an_empty_one_always() -> None:
    columns = [
        Column("name", field("name")),
        Column("first to go", field("long"), rank=2),
        Column("second", field("long"), rank=1),
        Column("never said", field("nothing"), rank=1),
    ]
    table = Fitted(columns, [{"name": "x" * 10, "long": "y" * 20}])
    headers = {width: " ".join(printed(table, width).splitlines()[0].split()) for width in (80, 50, 20, 5)}
    assert headers == {80: "name first to go second", 50: "name second", 20: "name", 5: "name"}


def test_under_pressure_the_remarks_stay() -> None:
    """They name limits that are not enforced, and the reason why a job waits; they wrap, so they need little room."""
    busy = {"cpu_stalled": 0.9, "cpu_throttled": 0.8, "memory_stalled": 0.5, "disk_stalled": 0.4}
    container = {"container": "c-1", "name": "x" * 30, "user": "eve", "class": "regular", "state": "running"}
    rank = {"rank": 2, "of": 2, "cpu_s": 1.0, "queue": 1, "weight": 1, "why": "in the master's order"}
    text = shown({"containers": [{**container, "sample": busy, "rank": rank}]}, 120)
    assert "(in the master's" in text and "cpu 90 %" not in text


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("width", "letters"), [(100, 20), (120, 36), (160, 46)])
@pytest.mark.parametrize("pressure", [{}, {"cpu_throttled": 0.4, "memory_stalled": 0.1, "disk_stalled": 0.2}])
def test_a_long_name_is_on_one_line_although_remarks_wrap(
    pressure: dict[str, float], width: int, letters: int, terminal: bool
) -> None:
    name = "nightly-report-of-the-warehouse-in-two-languages"[:letters]
    container = {"container": "c-1", "name": name, "class": "regular", "state": "running"}
    limits = [f"disk_{which}_{unit}_per_s" for which in ("read", "write") for unit in ("bytes", "operations")]
    sample = {"cpu_cores": 12.25, "memory_bytes": 32 << 20, **pressure}
    row = {**container, "sample": sample, "not_enforced": dict.fromkeys(limits, "no io controller")}
    text = printed(host_view({"containers": [row]}), width, terminal=terminal)
    assert name in text and "not enforced: " in text


def test_on_a_terminal_one_row_is_one_line_and_elsewhere_nothing_is_lost() -> None:
    table = Fitted([Column("name", field("name"))], [{"name": "x" * 60}])
    assert len(printed(table, 40, terminal=True).splitlines()) == 2
    assert printed(table, 40).count("x") == 60


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_output_into_a_pipe_has_no_colours(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    console().print(host_view(STATUS))
    console(stderr=True).print(host_view(STATUS))
    captured = capsys.readouterr()
    assert "alpha" in captured.out
    assert "alpha" in captured.err
    assert "\x1b" not in captured.out + captured.err


class Screen(io.StringIO):
    """A terminal, as far as one can ask."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "colours"), [("", True), ("1", False)])
def test_a_terminal_has_colours_but_with_no_color(
    no_color: str, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    console().print(cluster_view(CLUSTER, now=NOW))
    found = set(re.findall(r"\x1b\[([0-9;]*)m", screen.getvalue()))
    assert bool(found & {"31", "32", "33"}) == colours
    assert found <= {"0", "1", "2", "31", "32", "33"}


def test_a_bar_is_as_long_as_its_share() -> None:
    assert [bar(share, 4).plain for share in (-1.0, 0.0, 0.125, 0.5, 1.0, 7.0, float("nan"))] == [
        "    ", "    ", "▌   ", "██  ", "████", "████", "    ",
    ]  # fmt: skip
    assert (bar(0.94).style, bar(0.95).style) == ("green", "red")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9.94, "9.9s"), (59.9, "60s"), (93, "1m33s"), (7260, "2h01m"), (90000, "1d01h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
