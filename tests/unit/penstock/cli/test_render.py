"""The status document as tables: every fact shown, every key optional, nothing that steers a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli.render import duration, status_view

STATUS: dict[str, Any] = {
    "node": "alpha",
    "version": "0.1.0",
    "uptime_s": 93.4,
    "kinds": {
        "cpu": {"slots": 2, "running": 1, "queued": 7, "bypassing": 0, "rate_bytes_per_s": 2048, "pending_bytes": 4096},
        "disk": {"slots": 1, "running": 0, "queued": 0},
    },
    "memory": {"capacity_bytes": 1 << 30, "promised_bytes": 1 << 20, "opportunistic_bytes": 0, "used_bytes": 1 << 19},
    "host": {"cpu_percent": 42.0, "memory_used_bytes": 1 << 29, "memory_total_bytes": 1 << 30},
    "jobs": [{"job": "j-1", "name": "wordcount", "user": "eve", "admitted": False, "queued": 3, "running": 1}],
    "containers": [
        {
            "container": "c-1",
            "name": "hog",
            "class": "opportunistic",
            "state": "running",
            "limits": {"cpu_cores": 0.5, "memory_max_bytes": 64 << 20},
            "sample": {"cpu_cores": 0.49, "memory_bytes": 32 << 20},
            "not_enforced": {"disk_read_bytes_per_s": "no io controller"},
        },
        {"container": "c-2", "ended": {"by": "oom", "exit_status": 137, "wall_seconds": 3.0}, "note": "memory.max"},
    ],
    "preemptions": [{"at": 0.0, "container": "c-9", "resource": "memory", "reason": "92 % used, T_preempt 90 %"}],
    "enforcement": {"io.max": {"ok": False, "why": "cgroup v1", "remedy": "boot with v2"}, "cpu.max": {"ok": True}},
    "master": {"address": "127.0.0.1:7420", "linked": True},
}


def shown(status: dict[str, Any], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(status_view(status))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    "fact",
    [
        "alpha, penstock 0.1.0 · up 1m33s · master 127.0.0.1:7420 (linked) · host CPU 42 %",
        "2 KiB/s",
        "memory 1 GiB: 1 MiB promised, 0 B opportunistic, 512 KiB used by containers",
        "wordcount",
        "waits",
        "0.49 / 0.5",
        "32 MiB / 64 MiB",
        "not enforced: disk_read_bytes_per_s",
        "oom 137",
        "92 % used, T_preempt 90 %",
        "not enforced here: io.max (`penstock check` says",
    ],
)
def test_every_fact_is_shown(fact: str) -> None:
    assert fact in shown(STATUS)


def test_what_is_enforced_is_not_complained_about() -> None:
    assert "cpu.max" not in shown(STATUS)
    assert "not enforced here" not in shown({"enforcement": {"cpu.max": {"ok": True}}})


def test_an_empty_document_is_shown() -> None:
    assert "resource" in shown({})


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


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(STATUS, values)))
def test_any_shape_of_the_parts_is_shown_somehow(status: dict[str, Any]) -> None:
    assert shown(status)


@given(st.sampled_from(["jobs", "containers", "preemptions"]), st.data())
def test_any_values_in_the_rows_are_shown_somehow(section: str, data: st.DataObject) -> None:
    row = {key: data.draw(values) for key in STATUS[section][0]}
    assert shown({section: [row]})


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1e300, 2**64 - 1])
def test_numbers_beyond_reason(number: float) -> None:
    row = {"at": number, "started_at": number, "sample": {"memory_bytes": number}, "ended": {"wall_seconds": number}}
    assert shown({"uptime_s": number, "containers": [row, {"started_at": number}], "preemptions": [row]})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9.94, "9.9s"), (59.9, "60s"), (93, "1m33s"), (7260, "2h01m"), (90000, "1d01h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
