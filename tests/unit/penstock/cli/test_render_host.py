"""The status of a host as tables: every fact shown, every key optional, nothing that steers a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.render_host import host_view
from tests.unit.penstock.cli.render_bed import STATUS, printed, shown, values


@pytest.fixture(scope="module")
def whole() -> str:
    return shown(STATUS)


@pytest.mark.parametrize(
    "fact",
    [
        "alpha, penstock 0.1.0 · up 1m33s · master 127.0.0.1:7420 (linked) · host CPU 42 %",
        "2 KiB/s",
        "wordcount, task m-1, waits 3.2s; j-2 has held a slot for 1m30s",
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


def test_enforced_limits_have_no_complaint() -> None:
    assert "cpu.max" not in shown(STATUS)
    assert "not enforced here" not in shown({"enforcement": {"cpu.max": {"ok": True}}})


def test_of_many_things_that_are_not_enforced_some_are_named() -> None:
    text = shown({"enforcement": {f"thing{n}": {"ok": False} for n in range(7)}})
    assert "not enforced here: thing0, thing1, thing2 and 4 more (`penstock check` says why)" in text


def test_a_drained_node_is_marked() -> None:
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


def test_long_lists_are_cut_with_a_note() -> None:
    assert "… 5 more" in shown({"jobs": [{"job": f"j-{n}"} for n in range(25)]})


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ({"by": "exit", "exit_status": 3}, "exit 3"),
        ({"by": "signal", "exit_status": 137}, "signal 9"),
        ({"by": "oom", "exit_status": 137}, "oom 137"),
        ({"by": "lost"}, "lost"),
    ],
)
def test_how_a_container_ended(ended: dict[str, Any], state: str) -> None:
    text = shown({"containers": [{"container": "c-1", "class": "regular", "ended": ended}]}, width=300)
    assert state in [part.strip() for part in text.split("  ")]


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


def test_slots_of_promised_cores_are_shown_where_there_are_any() -> None:
    kept = {"kinds": {"cpu": {"slots": 2, "running": 0, "queued": 1, "withheld": 2}}}
    header, row = [
        line.split() for line in printed(host_view(kept), 160).splitlines() if line[:5] in {"queue", "cpu  "}
    ]
    assert row[header.index("promised") + 2] == "2"  # "0 of 2" is one column
    free = {"kinds": {"cpu": {"slots": 2, "running": 0, "queued": 1, "withheld": 0}}}
    assert "promised" not in printed(host_view(free), 160)


@pytest.mark.parametrize(
    ("executor", "note"),
    [
        (None, ""),
        ({"application": "sort", "slot": None, "slots": None, "behind": 0.0, "stuck": False}, "executor of sort"),
        ({"application": "sort", "slot": 3, "slots": 20, "behind": 0.0}, "executor of sort, slot 4 of 20"),
        (
            {"application": "sort", "slot": 3, "slots": 20, "behind": 1.34, "stuck": True},
            "executor of sort, slot 4 of 20, its stage takes 1.3 × as long as expected, its node has no free resources",
        ),
    ],
)
def test_the_note_of_an_executor(executor: dict[str, Any] | None, note: str) -> None:
    text = shown({"containers": [{"container": "c-1", "name": "x", "executor": executor}]}, width=300)
    line = next(line for line in text.splitlines() if line.startswith("c-1"))
    assert line.split(maxsplit=2)[2:] == ([note] if note else []) or line.split(maxsplit=2)[2].strip() == note
