"""``penstock plan``: its output, and its messages on files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from master.reservations.command import main

FIG_9 = "window(order(atom(b,1,10,240,2400), atom(b,1,20,120,2400), atom(b,1,15,120,1800)),0,800)"


def file(tmp_path: Path, **more: Any) -> str:
    path = tmp_path / "requests.json"
    said = {
        "capacity": "<40core,80GB>",
        "bundles": {"b": "<2GB,1core>"},
        "requests": [{"name": "nightly", "rdl": FIG_9}],
    } | more
    path.write_text(json.dumps(said), encoding="utf-8")
    return str(path)


def test_the_papers_own_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "accepted  nightly: [320, 560) × 10, [560, 680) × 20, [680, 800) × 15" in said
    assert "1 of 1 accepted (100.0% of the work)" in said


@pytest.mark.parametrize("planner", ["gree", "gree_l", "milp"])
def test_every_planner_names_its_rejections_and_their_reasons(
    planner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = [
        {"name": "fits", "owner": "eve", "rdl": "window(atom(b,40,40,5,200),0,10)"},
        {"name": "beside", "rdl": {"window": [{"atom": ["b", 40, 40, 6, 240]}, 0, 10]}},
        {"name": "never", "rdl": "window(atom(b,41,41,5,205),0,10)"},
    ]
    assert main([file(tmp_path, requests=requests), "--planner", planner, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["accepted"] for row in said["requests"]].count(True) == 1
    never = said["requests"][2]
    assert "41 bundles at once want 41 cores; the cluster has 40 cores" in never["reason"]
    assert {row.get("reason") for row in said["requests"][:2]} == {None, "no room next to the existing promises"}
    assert said["measures"]["accepted"] == 1
    assert said["measures"]["preemption"] == pytest.approx(1.0)
    assert 0 < said["measures"]["uniformity"] < 2
    assert said["measures"]["runtime_s"] > 0


def test_nothing_is_promised_after_its_deadline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = [
        {"name": "short", "rdl": "window(atom(b,1,1,1min,1min),0,90s)"},
        {"name": "full", "rdl": {"window": [{"atom": ["b", 1, 1, "2min", "2min"]}, "0", "119s"]}},
    ]
    assert main([file(tmp_path, requests=requests, step="1min", horizon="10min")]) == 0
    said = capsys.readouterr().out
    assert "accepted  short: [0, 1) × 1" in said
    assert "REJECTED  full: its lease takes 2 min, and from 0 s to its end at 1 min it has 1 min" in said


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "its lease takes 2 steps, and from step 0 to its end at step 1 it has 1 step"),
        ({"step": "1min"}, "its lease takes 2 min, and from 0 s to its end at 1 min it has 1 min"),
        (
            {"step": "1min", "begins": "2026-11-21T10:00:30Z"},
            "its lease takes 2 min, and from 2026-11-21T10:00:30Z to its end at 2026-11-21T10:01:30Z it has 1 min",
        ),
        (
            {"begins": "2026-11-21T10:00:30Z"},
            "its lease takes 2 s, and from 2026-11-21T10:00:30Z to its end at 2026-11-21T10:00:31Z it has 1 s",
        ),
    ],
    ids=["steps", "step", "step and beginning", "beginning"],
)
def test_refusals_name_times_where_the_file_has_the_length_of_a_step_or_the_begin_of_the_plan(
    more: dict[str, str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = [{"name": "full", "rdl": "window(atom(b,1,1,2,2),0,1)"}]
    assert main([file(tmp_path, requests=requests, **more)]) == 0
    assert f"REJECTED  full: {told}\n" in capsys.readouterr().out


def test_an_error_in_a_request_is_given_in_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error_of(rdl: str) -> str:
        given = file(tmp_path, requests=[{"name": "a", "rdl": rdl}], step="1min", begins="2026-11-21T10:00:00Z")
        assert main([given]) == 2
        return capsys.readouterr().err

    assert "the window ends at 2026-11-21T10:01:00Z, not behind its start at 2026-11-21T10:02:00Z" in error_of(
        "window(atom(b,1,1,1,1),2,1)"
    )
    assert "no turn begins before 2026-11-21T10:30:00Z" in error_of(
        "window(atom(b,1,1,1,1),1h,2h) every 24h until 30min"
    )


@pytest.mark.parametrize("planner", ["gree", "gree_l", "milp"])
def test_the_horizon_is_rounded_down(planner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = [{"name": "fits", "rdl": "atom(b,1,1,1,2)"}, {"name": "not", "rdl": "atom(b,1,1,1,3)"}]
    arguments = [file(tmp_path, requests=requests, step="1min", horizon="179s"), "--planner", planner, "--quantum", "1"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "accepted  fits: [0, 2) × 1" in said
    assert "REJECTED  not" in said


def test_a_capacity_that_changes_within_a_step_is_the_lesser_one_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capacity = [
        {"since": 0, "bundle": "<4core,8GB>"},
        {"since": "90s", "bundle": "<2core,8GB>"},
        {"since": "200s", "bundle": "<4core,8GB>"},
    ]
    requests = [{"name": "all", "rdl": "window(atom(b,1,4,1,18),0,7)"}]
    assert main([file(tmp_path, requests=requests, capacity=capacity, step="1min"), "--early"]) == 0
    assert "all: [0, 1) × 4, [1, 4) × 2, [4, 6) × 4" in capsys.readouterr().out


def test_times_count_from_the_very_moment_at_which_the_plan_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rdl = "window(atom(b,1,1,1,2),2026-11-21T10:00:30Z,2026-11-21T10:02:30Z)"
    path = file(tmp_path, requests=[{"name": "a", "rdl": rdl}], step="1min", begins="2026-11-21T10:00:30Z")
    assert main([path]) == 0
    assert "a: [0, 2) × 1" in capsys.readouterr().out


def test_a_recurring_reservation_is_planned_turn_by_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = [{"name": "daily", "rdl": "window(atom(b,1,4,2h,8h),0,6h) every 24h until 3d"}]
    assert main([file(tmp_path, requests=requests, step="1h", horizon="5d"), "--early"]) == 0
    said = capsys.readouterr().out
    assert "daily+0: [0, 2) × 4" in said
    assert "daily+2: [48, 50) × 4" in said
    assert "daily+3" not in said


def test_capacity_that_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capacity = [{"since": 0, "bundle": "<4core>"}, {"since": "2026-11-21T00:10:00Z", "bundle": "<40core>"}]
    requests = [{"name": "big", "rdl": "atom(<1core>,20,20,1,20)"}]
    given = file(tmp_path, capacity=capacity, requests=requests, step="1min", begins="2026-11-21T00:00:00Z")
    assert main([given, "--early"]) == 0
    assert "accepted  big: [10, 11) × 20" in capsys.readouterr().out


def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = [{"name": f"r{n}", "rdl": f"window(atom(b,1,9,3,60),{n},{20 + n})"} for n in range(20)]
    picture = tmp_path / "plan.png"
    assert main([file(tmp_path, requests=requests), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([file(tmp_path), "--plot", str(tmp_path / "plan.nothing")]) == 2
    assert "--plot" in capsys.readouterr().err


def test_turns_begin_before_the_end_and_lie_within_the_horizon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def turns(rdl: str, **more: Any) -> list[str]:
        assert main([file(tmp_path, requests=[{"name": "a", "rdl": rdl}], step="1h", **more), "--early"]) == 0
        return [line.removeprefix("accepted  ") for line in capsys.readouterr().out.splitlines()[:-1]]

    assert turns("window(atom(b,1,1,1,1),+30h,+32h) every 24h until 80h") == [
        "a+1: [30, 31) × 1",
        "a+2: [54, 55) × 1",
        "a+3: [78, 79) × 1",
    ]
    assert turns("window(atom(b,1,1,1,1),2h,4h) every 24h", horizon="52h") == [
        "a+0: [2, 3) × 1",
        "a+1: [26, 27) × 1",
        "a+2: [50, 51) × 1",
    ]
    assert turns("window(atom(b,1,1,1,1),2h,4h) every 24h", horizon="51h") == ["a+0: [2, 3) × 1", "a+1: [26, 27) × 1"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"capasity": "<4core>"}, "there is no key 'capasity'"),
        ({"capacity": "<4cores"}, "character 8: expected"),
        ({"step": "often"}, "step, begins: 'often'"),
        ({"step": "0s"}, "step: '0s' is too short; 0.001 s at least"),
        ({"horizon": -5}, "'-5' is no duration"),
        ({"bundles": {"b": "2GB"}}, "bundles, capacity, horizon: rdl: character 1"),
        ({"requests": [{"name": "x", "rdl": "atom(b,1,1,1)"}]}, "requests[0] (x): rdl: character 13"),
        ({"requests": [{"name": "x", "rdl": "atom(b,1,1,1,1)"}] * 2}, "the name 'x' is used twice"),
        (
            {"requests": [{"name": "x", "rdl": "window(atom(b,1,1,1,1),5,9) every 9 until 5"}]},
            "(x): no turn begins before",
        ),
        ({"requests": [{"name": "x"}]}, "requests[0]: the key 'rdl' is missing"),
    ],
)
def test_an_error_in_the_file_is_one_line(
    more: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file(tmp_path, **more)]) == 2
    line = capsys.readouterr().err
    assert line.startswith("penstock plan: ")
    assert said in line
    assert line.count("\n") == 1


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/requests.json"]) == 2
    assert "/nowhere/requests.json: No such file" in capsys.readouterr().err
    assert main(["/dev/null"]) == 2


def test_a_program_that_has_no_time_reports_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file(tmp_path), "--planner", "milp", "--quantum", "0"]) == 2
    assert "--quantum is 1 or more" in capsys.readouterr().err
