"""`penstock simulate` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_commands

#: A process that imports all by itself; elsewhere they are forked, which is cheaper.
_PROCESS = (sys.executable, "-I", "-m", "penstock.cli.main")
_SCENARIO = """\
model = "fluid"
title = "drawn"
seed = 11

[workload.synthetic]
jobs = 40
arrivals = { process = "poisson", interval_s = 2 }
sizes = { distribution = "pareto", mean = 1.5, shape = 1.3 }
weights = [1, 2, 3]

[policy]
first_threshold = 0.5

[sweep]
"policy.name" = ["fifo", "fair", "las", "las_mq", "srpt"]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "drawn.toml"
    path.write_text(_SCENARIO, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def cores() -> Iterator[set[int]]:
    """Those of this host; commands get one, and so compute in their own process: to start others takes longer."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield allowed
    os.sched_setaffinity(0, allowed)


def _penstock(
    *argv: str | Path, by: tuple[str, ...] = (), cwd: Path | None = None, **environment: str
) -> tuple[int, str, str]:
    command = [*(by or (warm_commands.penstock(),)), *map(str, argv)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ | environment, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_same_seed_gives_the_same_bytes_in_every_process(scenario: Path, cores: set[int]) -> None:
    # Each process hashes strings otherwise; the first spreads the runs over processes of its own.
    one = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    first = _penstock("simulate", scenario, "--json", by=_PROCESS)
    os.sched_setaffinity(0, one)
    assert first == _penstock("simulate", scenario, "--json")
    status, out, err = first
    assert (status, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    assert [run["settings"]["policy.name"] for run in document["runs"]] == ["fifo", "fair", "las", "las_mq", "srpt"]
    assert len({run["summary"]["response_mean_s"] for run in document["runs"]}) == 5
    assert len(document["runs"][0]["report"]["jobs"]) == 40
    _, other, _ = _penstock("simulate", scenario, "--json", "--set", "seed=12")
    assert json.loads(other)["runs"][0]["report"] != document["runs"][0]["report"]


def test_a_sweep_is_a_table_and_equal_values_are_printed_once(scenario: Path) -> None:
    status, out, _ = _penstock("simulate", scenario, "--set", "workload.synthetic.jobs=30")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "drawn"
    assert lines[1].startswith("in all runs: jobs 30, makespan_s ")
    assert lines[2].split()[:2] == ["policy.name", "response_mean_s"]
    assert [line.split()[0] for line in lines[3:]] == ["fifo", "fair", "las", "las_mq", "srpt"]


def test_a_single_run_shows_its_jobs(scenario: Path) -> None:
    _, out, _ = _penstock("simulate", scenario, "--set", "policy.name=las", "--set", "workload.synthetic.jobs=3")
    assert [line.split()[0] for line in out.splitlines()][-4:] == ["job", "job-0", "job-1", "job-2"]


def test_a_sweep_of_few_jobs_shows_each_of_them() -> None:
    _, out, _ = _penstock("simulate", "las_mq/fig01")
    head, *rows = [line.split() for line in out.splitlines()][-7:]
    assert head == ["policy.name", "job", "submitted_at_s", "ended_at_s", "response_s", "slowdown"]
    assert [row[:2] for row in rows] == [[policy, job] for policy in ("las", "las_mq") for job in "ABC"]
    assert [row[4] for row in rows] == ["9", "8", "1", "6", "8", "1"]  # LAS_MQ, Fig. 1


def test_promised_cores_make_a_command_as_fast_as_alone() -> None:
    """The figures are those in docs/limits.md of ursa/promised-cores; before promises and slots were one account: 2.49
    and 1.86.
    """
    _, out, _ = _penstock("simulate", "ursa/promised-cores", "--json")
    runs = json.loads(out)["runs"]
    promised = [run["settings"]["jobs.0.stages.0.command"]["cpu_cores"] for run in runs]
    took = [{job["name"]: job for job in run["report"]["jobs"]} for run in runs]
    commands = [(one["command"]["ended_at_s"], one["command"]["alone_s"]) for one in took]
    assert promised == [4, 2, 4, 0.5]
    assert all(ended_s <= 1.02 * alone_s for ended_s, alone_s in commands), commands
    assert all(one["monotasks"]["ended_at_s"] > one["command"]["ended_at_s"] for one in took)  # they were beside it


def test_all_papers_act_in_one_cluster_and_every_promise_is_kept() -> None:
    first = _penstock("simulate", "together/papers", "--json", by=_PROCESS)
    assert first == _penstock("simulate", "together/papers", "--json"), "the same bytes, whatever strings hash to"
    status, out, err = first
    assert (status, err) == (0, "")
    (run,) = json.loads(out)["runs"]
    found, jobs = run["summary"], run["report"]["jobs"]
    assert len(jobs) == 6 + 7 + 6 + 1, "all jobs have ended"
    acted = {
        "Ursa": found["longest_admission_s"] > 1 and found["tasks"] > 300,
        "LAS_MQ": _overtaken(jobs),
        "Elasecutor": min(found[name] for name in ("executors", "forecasts", "resized", "reprovisioned")) > 0,
        "UBIS": min(found[name] for name in ("opportunistic_share", "promoted", "preemptions")) > 0,
        "Rayon": found["reservations_accepted"] == 1 and found["preempted_for_promises"] > 0,
    }
    assert all(acted.values()), acted
    assert found["deadlines_met"] == found["deadlines"] == 1
    assert found["longest_lack_s"] <= 1.0
    assert found["cpu_scheduling_efficiency"] <= 1.0, "no core is promised twice"
    assert found["memory_scheduling_efficiency"] <= 1.0


def _overtaken(jobs: list[dict[str, Any]]) -> bool:
    """Return whether a job without a reservation began before one that had been submitted earlier."""
    starts = [job["started_at_s"] for job in jobs if job["name"] != "nightly"]
    return starts != sorted(starts)


def test_a_picture_is_drawn(scenario: Path, tmp_path: Path) -> None:
    picture = tmp_path / "drawn.png"
    status, _, err = _penstock("simulate", scenario, "--plot", picture, MPLCONFIGDIR=str(tmp_path))
    assert (status, err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_shipped_scenario_is_named_without_a_path(tmp_path: Path) -> None:
    status, out, _ = _penstock("simulate", "--list", cwd=tmp_path)
    assert status == 0
    assert any(line.startswith("las_mq/fig01 ") for line in out.splitlines())
    status, out, _ = _penstock("simulate", "las_mq/fig01", "--set", "policy.name=las_mq", cwd=tmp_path)
    assert status == 0
    assert out.splitlines()[-3].split() == ["A", "0", "6", "6", "1.5"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ((), "name a SCENARIO: a TOML file, or one of `penstock simulate --list`"),
        (("las_mq/fig1",), "las_mq/fig1: no such file, and no shipped scenario of that name; did you mean"),
        (("las_mq/fig01", "--set", "policy.queue=3"), "policy: unknown key 'queue'; did you mean 'queues'?"),
        (("las_mq/fig01", "--set", "policy.queues"), "'policy.queues' is not KEY=VALUE"),
        (("las_mq/fig01", "--jsn"), "unknown argument '--jsn'; did you mean '--json'?"),
        (("las_mq/fig01", "--plot", "absent/p.png"), "--plot: absent: no such directory"),
        (("las_mq/fig01", "--plot", "p.txt"), "--plot: p.txt: the picture is a PNG; let the name end in .png"),
        (
            ("order/swim", "--set", "workload.trace.file=absent.tsv"),
            "absent.tsv: no such file; give it with --set workload.trace.file=PATH",
        ),
        (("order/swim", "--set", "workload.trace.file=bad.tsv"), "bad.tsv:2: submit time s: 'x' is not"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("a\t1\t0\t1\t0\t0\nb\tx\t0\t1\t0\t0\n", encoding="utf-8")
    status, out, err = _penstock("simulate", *argv, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith("penstock simulate: ")
    assert complaint in err
    assert err.count("\n") == 1
