"""The status document as tables: every fact shown, every key optional, nothing that steers a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from penstock.cli.plain_text import duration
from penstock.cli.render import Column, Fitted, bar, console, field
from penstock.cli.render_cluster import cluster_view
from penstock.cli.render_host import host_view
from penstock.wire.reservation_api import PromisedPiece, Reserved

STATUS: dict[str, Any] = {
    "node": "alpha",
    "version": "0.1.0",
    "uptime_s": 93.4,
    "kinds": {
        "cpu": {
            "slots": 2,
            "running": 1,
            "queued": 7,
            "bypassing": 0,
            "rate_bytes_per_s": 2048,
            "pending_bytes": 4096,
            "head": {"job": "j-1", "task": "m-1", "waits_s": 3.2},
        },
        "disk": {"slots": 1, "running": 0, "queued": 0},
    },
    "resources": {
        "memory": {"unit": "bytes", "capacity": 1 << 30, "promised": 1 << 20, "used": 1 << 19, "slack": 1 << 29},
        "disk": {"unit": "share", "capacity": 1.0, "promised": None, "used": 0.97, "slack": 0.0},
    },
    "host": {
        "cpu_percent": 42.0,
        "memory_used_bytes": 1 << 29,
        "memory_total_bytes": 1 << 30,
        "disk_read_bytes_per_s": 1e7,
        "disk_write_bytes_per_s": 2e7,
    },
    "jobs": [
        {
            "job": "j-1",
            "name": "wordcount",
            "user": "eve",
            "admitted": False,
            "queued": 3,
            "running": 1,
            "cpu_s": 41.0,
            "rank": {"rank": 2, "of": 3, "cpu_s": 41.0, "queue": 8, "weight": 12, "why": "in the master's order"},
        }
    ],
    "containers": [
        {
            "container": "c-1",
            "name": "hog",
            "class": "opportunistic",
            "state": "running",
            "limits": {"cpu_cores": 0.5, "memory_max_bytes": 64 << 20},
            "sample": {
                "cpu_cores": 0.49,
                "memory_bytes": 32 << 20,
                "cpu_stalled": 0.3,
                "cpu_throttled": 0.4,
                "network_send_bytes_per_s": 1000.0,
            },
            "not_enforced": {"disk_read_bytes_per_s": "no io controller"},
        },
        {
            "container": "c-3",
            "class": "regular",
            "state": "running",
            "rank": {
                "job": "j-2",
                "rank": 3,
                "of": 3,
                "cpu_s": 7.0,
                "queue": 5,
                "weight": 1,
                "nice": 19,
                "why": "by priority",
            },
        },
        {"container": "c-2", "ended": {"by": "oom", "exit_status": 137, "wall_seconds": 3.0}, "note": "memory.max"},
    ],
    "preemptions": [{"at": 0.0, "container": "c-9", "resource": "memory", "reason": "92 % used, T_preempt 90 %"}],
    "enforcement": {"io.max": {"ok": False, "why": "cgroup v1", "remedy": "boot with v2"}, "cpu.max": {"ok": True}},
    "master": {"address": "127.0.0.1:7420", "linked": True},
}


def printed(view: RenderableType, width: int = 200, *, terminal: bool = False) -> str:
    to = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=terminal, color_system=None)
    to.print(view)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def shown(status: dict[str, Any], width: int = 200) -> str:
    return printed(host_view(status), width)


@pytest.fixture(scope="module")
def whole() -> str:
    return shown(STATUS)


@pytest.mark.parametrize(
    "fact",
    [
        "alpha, penstock 0.1.0 · up 1m33s · master 127.0.0.1:7420 (linked) · host CPU 42 %",
        "2 KiB/s",
        "wordcount, task m-1, waits 3.2s",
        "1 GiB     1 MiB  512 KiB",
        "█████████▊",
        "9.54 MiB/s read, 19.1 MiB/s written",
        "cpu 30 %, limit 40 %",
        "1000 B/s, 0 B/s",
        "waits",
        "0.49 / 0.5",
        "32 MiB / 64 MiB",
        "not enforced: disk_read_bytes_per_s",
        " 2/3      12       41s ",
        " 3/3       1 ",
        "rank 3 of 3 (by priority): 7.0s of CPU so far, queue 5",
        "oom 137",
        "92 % used, T_preempt 90 %",
        "not enforced here: io.max (`penstock check` says",
    ],
)
def test_every_fact_is_shown(whole: str, fact: str) -> None:
    assert fact in whole


def test_what_is_enforced_is_not_complained_about() -> None:
    assert "cpu.max" not in shown(STATUS)
    assert "not enforced here" not in shown({"enforcement": {"cpu.max": {"ok": True}}})


def test_of_many_things_that_are_not_enforced_some_are_named() -> None:
    text = shown({"enforcement": {f"thing{n}": {"ok": False} for n in range(7)}})
    assert "not enforced here: thing0, thing1, thing2 and 4 more (`penstock check` says why)" in text


def test_a_drained_node_says_so() -> None:
    text = shown({"node": "alpha", "drain": {"state": "draining", "by": "eve", "count": 3}})
    assert "· draining by eve, 3 left" in text
    assert "· drained by eve" in shown({"drain": {"state": "drained", "by": "eve", "count": 0}})


def test_an_empty_document_is_shown() -> None:
    assert shown({}).strip() == "?, penstock ?"


def test_names_cannot_steer_the_terminal_or_use_markup() -> None:
    text = shown({"jobs": [{"job": "j", "name": "\x1b[2J[bold]x[/bold]\r\n"}]})
    assert "\x1b" not in text
    assert "\r" not in text
    assert "[bold]x[/bold]" in text


def test_long_lists_are_cut_and_say_so() -> None:
    assert "… 5 more" in shown({"jobs": [{"job": f"j-{n}"} for n in range(25)]})


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@settings(max_examples=20)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(STATUS, values)))
def test_any_shape_of_the_parts_is_shown_somehow(status: dict[str, Any]) -> None:
    assert shown(status)


@settings(max_examples=20)
@given(st.sampled_from(["jobs", "containers", "preemptions"]), st.data())
def test_any_values_in_the_rows_are_shown_somehow(section: str, data: st.DataObject) -> None:
    row = {key: data.draw(values) for key in STATUS[section][0]}
    assert shown({section: [row]})


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1e300, 2**64 - 1])
def test_numbers_beyond_reason(number: float) -> None:
    row = {"at": number, "started_at": number, "sample": {"memory_bytes": number}, "ended": {"wall_seconds": number}}
    assert shown({"uptime_s": number, "containers": [row, {"started_at": number}], "preemptions": [row]})


# ---------------------------------------------------------------- the cluster

NOW = 1_795_000_000.0
CLUSTER: dict[str, Any] = {
    "version": "0.1.0",
    "started_at": NOW - 93.4,
    "ordering": "ejf",
    "models": {"svr": "scikit-learn is not installed", "neighbours": ""},
    "resources": STATUS["resources"],
    "nodes": {
        "beta": {
            "state": "connected",
            "capacity": {"cores": 16.0, "memory_bytes": 64 << 30},
            "load": {
                "used_cores": 3.5, "used_memory_bytes": 8 << 30,
                "promised_cores": 4.0, "promised_memory_bytes": 2 << 30,
                "disk_busy": 0.25, "network_busy": 0.5, "pending": {"cpu": 1048576.0, "disk": 1048576.0},
            },
            "tasks": 3,
            "opportunistic_tasks": 1,
        },
        "alpha": {"state": "away", "away_s": 12.0},
    },
    "jobs": {
        "j-1": {
            "name": "count", "user": "eve", "state": "waiting", "placed": 1, "ready": 7, "waits": "it wants 2 GiB",
            "rank": 2, "service_container_s": 41.0, "reason": "41 s of service so far",
            "progress": [{"stage": "map", "tasks": 10, "done": 3}, {"stage": "reduce", "tasks": 2, "done": 0}],
        }
    },
    "tasks": {"placed": 1, "ready": 7},
    "memory": {"reserved_bytes": 1 << 30, "reservable_bytes": 4 << 30},
    "preemptions": [{"at": NOW, "node": "beta", "job": "j-1", "task": "m-3", "reason": "memory: 95 % used"}],
    "more": {"nodes": 0, "jobs": 0, "jobs_of_others": 3},
}  # fmt: skip


def promised(name: str, *pieces: tuple[float, float], dropped: str = "") -> Reserved:
    made = [
        PromisedPiece(start=NOW + a, finish=NOW + b, bundles=4, cpu_cores=1.0, memory_bytes=1 << 30) for a, b in pieces
    ]
    return Reserved(
        reservation=f"r-{name}", user="eve", rdl="x", created_at=0.0, name=name, promised=made, dropped=dropped
    )


@pytest.fixture(scope="module")
def whole_cluster() -> str:
    return printed(cluster_view(CLUSTER, now=NOW))


@pytest.mark.parametrize(
    "fact",
    [
        "1 of 2 nodes connected · master 0.1.0 · up 1m33s · tasks 1 placed, 7 ready",
        "memory 1 GiB of 4 GiB reserved · order ejf · forecasts by neighbours",
        "3.5 / 16",
        "8 GiB / 64 GiB",
        "4, 2 GiB",
        "25 %  50 %",
        "2 MiB",
        "away 12s",
        "3 of 12 tasks",
        "it wants 2 GiB",
        " 2      41s ",
        "41 s of service so far",
        "and 3 jobs of other users",
        "m-3",
        "memory: 95 % used",
    ],
)
def test_every_fact_of_the_cluster_is_shown(whole_cluster: str, fact: str) -> None:
    assert fact in whole_cluster


def test_reservations_are_shown_as_they_fall_due() -> None:
    some = [
        promised("late", (7200.5, 7800.5)),
        promised("over", (-100.0, -10.0)),
        promised("now", (-100.0, 600.5), (900.0, 1000.0)),
        promised("gone", dropped="a node was lost"),
    ]
    lines = [line for line in printed(cluster_view({}, some, NOW)).splitlines() if line.startswith("r-")]
    assert [line.split()[1] for line in lines] == ["gone", "now", "late"]
    assert lines[0].split()[3:] == ["dropped", "a", "node", "was", "lost"]
    assert "now, for 10m00s" in lines[1]
    assert "4 × 1 core, 1 GiB" in lines[1]
    assert "in 2h00m, for 10m00s" in lines[2]


@settings(max_examples=20)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(CLUSTER, values)))
def test_any_shape_of_the_cluster_is_shown_somehow(status: dict[str, Any]) -> None:
    assert printed(cluster_view(status))


@settings(max_examples=20)
@given(st.data())
def test_any_values_of_nodes_and_jobs_are_shown_somehow(data: st.DataObject) -> None:
    node = {key: data.draw(values) for key in CLUSTER["nodes"]["beta"]}
    job = {key: data.draw(values) for key in CLUSTER["jobs"]["j-1"]}
    assert printed(cluster_view({"nodes": {"n": node}, "jobs": {"j": job}}))


# ---------------------------------------------------------------- 80 columns, pipes, colours


@pytest.mark.parametrize("view", [host_view(STATUS), cluster_view(CLUSTER, [promised("now", (-1.0, 600.5))], NOW)])
def test_eighty_columns_show_what_matters_whole(view: RenderableType) -> None:
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
    """They say what is not enforced, and why a job waits; they wrap, so they need little room."""
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
def test_what_goes_into_a_pipe_has_no_colours(
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


def test_slots_whose_cores_are_promised_are_shown_where_there_are_any() -> None:
    kept = {"kinds": {"cpu": {"slots": 2, "running": 0, "queued": 1, "withheld": 2}}}
    header, row = [
        line.split() for line in printed(host_view(kept), 160).splitlines() if line[:5] in {"queue", "cpu  "}
    ]
    assert row[header.index("promised") + 2] == "2"  # "0 of 2" is one column
    free = {"kinds": {"cpu": {"slots": 2, "running": 0, "queued": 1, "withheld": 0}}}
    assert "promised" not in printed(host_view(free), 160)
