"""The comparison with real jobs, a real agent and a real quota, as small as it comes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.tpch import command
from bench.tpch.records import Figures, JobResult, Run

_CORES = os.sched_getaffinity(0)


def test_two_jobs_run_statically_and_gated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # One core: a worker for each job and not one for each core of the host, as each imports Dask and pandas.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {min(_CORES)})
    ways = ("static", "gated")  # the way `penstock` is `gated` with one setting less
    small = ["--scale", "0.01", "--parts", "2", "--queries", "1,6", "--memory", "2GiB", "--timeout-s", "200"]
    once = ["--jobs", "2", "--rounds", "1", "--ways", ",".join(ways), "--every", "0.1"]
    status = command.main(["compare", *small, *once, "--json", str(tmp_path / "runs.json")])
    said = capsys.readouterr()
    assert status == 0, said.err
    assert [line.split()[1] for line in said.out.splitlines() if line.startswith("1 ")] == list(ways)
    runs = {run["way"]: run for run in json.loads((tmp_path / "runs.json").read_text())["runs"]}
    for run in runs.values():
        jobs = [JobResult(**job) for job in run["jobs"]]
        assert [job.rows for job in jobs] == [{"q01": 4, "q06": 1}, {"q06": 1, "q01": 4}]
        figures = Figures.of(Run(run["way"], run["cores"], run["threads"], jobs, run["slot_s"]))
        assert 0.0 < figures.task_cpu < figures.used
        assert max(job.job_s for job in jobs) <= figures.makespan_s
    assert runs["gated"]["slot_s"] > 0.0, "nothing was gated"
    assert runs["static"]["slot_s"] == 0.0
