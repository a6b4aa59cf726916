"""Runs that claims share: each point once, in processes, the most urgent first; a failure affects no other run."""

from __future__ import annotations

import os
import signal
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from research.papers import runs
from research.papers.catalogue import chosen
from research.papers.claims import Claim, Inputs, Row
from research.papers.runs import Asking, SharedRuns, runs_of, runs_of_each
from research.papers.scenarios import scenario_file
from research.papers.trial import attempt, try_all
from simulator.scenario import load, run
from simulator.scenario.loader import Point

_POLICIES = ["las", "las_mq"]


def _points(name: str = "las_mq/fig01") -> list[Point]:
    return load(scenario_file(name)).points()


def _claim(name: str, seen: list[str]) -> Claim:
    def tried(_: Inputs) -> list[Row]:
        policies = [made.settings["policy.name"] for made in runs_of("las_mq/fig01")]
        seen.append(name)
        return [Row(what="policies", paper="", ours=", ".join(policies), holds=policies == _POLICIES)]

    return Claim(name=name, where="Fig. 1", run=tried)


def test_claims_are_the_same_in_one_process_and_in_several() -> None:
    claims = chosen(["las_mq/fig01", "las_mq/fig10-uniform"])
    apart, together = (try_all(claims, Inputs(), processes=processes) for processes in (2, 1))
    assert [(trial.name, trial.rows) for trial in apart] == [(trial.name, trial.rows) for trial in together]
    assert all(trial.took_s > 0 for trial in (*apart, *together))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_point_that_several_claims_want_is_run_once(processes: int) -> None:
    with SharedRuns(processes) as shared:
        asked = [shared.ask(point, rank) for rank in (0, 1) for point in _points()]
        assert asked[:2] == asked[2:]
        assert asked[0] is not asked[1]
        claim = Asking(shared, 0)
        assert claim.served(lambda: claim(_points())) == run(_points())
        assert claim.took_s == sum(future.result().took_s for future in asked[:2])


def test_a_request_outside_of_a_trial_runs_here() -> None:
    seen: list[str] = []
    assert _claim("a", seen).run(Inputs())[0].holds
    with SharedRuns(1) as shared:
        assert attempt(_claim("b", seen), Inputs(), shared).rows[0].holds
        assert len(shared._known) == 2
        assert runs_of("las_mq/fig01") == run(_points())
    assert seen == ["a", "b"]


def test_each_of_several_settings_has_its_runs() -> None:
    settings = [{"policy.name": "las"}, {"policy.name": ["fifo", "srpt"]}, {}]
    assert runs_of_each("las_mq/fig01", settings) == [runs_of("las_mq/fig01", each) for each in settings]


def test_the_most_urgent_points_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    with SharedRuns(2) as shared:
        submit = shared._submit

        def noted(point: Point) -> object:
            order.append(point.seed)
            return submit(point)

        monkeypatch.setattr(shared, "_submit", noted)
        point = _points()[0]
        shared._under_way = 2  # no process is free yet
        for seed, rank in ((1, 5), (2, 3), (3, 5), (4, 0)):
            shared.ask(Point(source="", settings={}, model=point.model, spec=point.spec, seed=seed), rank)
        shared._under_way = 0
        last = shared.ask(Point(source="", settings={}, model=point.model, spec=point.spec, seed=5), 9)
        last.result()
    assert order == [4, 2, 1, 3, 5]


def test_a_run_that_fails_fails_its_claim_and_no_other(tmp_path: Path) -> None:
    missing = {"workload.trace.file": str(tmp_path / "missing.tsv")}
    claims = [
        Claim(name="las_mq/x", where="", run=lambda _: [_row(len(runs_of("las_mq/fig10-heavy-tailed", missing)))]),
        Claim(name="las_mq/y", where="", run=lambda _: [_row(len(runs_of("las_mq/fig01")))]),
    ]
    failed, tried = try_all(claims, Inputs(), processes=2)
    assert "missing.tsv" in failed.failed.splitlines()[-1]
    assert tried.rows == [_row(2)]


def _row(count: int) -> Row:
    return Row(what="runs", paper="", ours=str(count), holds=True)


def test_a_process_that_is_killed_fails_its_run_and_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedRuns(2) as shared:
        monkeypatch.setattr(runs, "_measured", _killed)
        first, second = _points()
        lost = shared.ask(first, 0)
        assert lost.exception() is not None
        monkeypatch.undo()
        again = Asking(shared, 0)
        assert again.served(lambda: again([second])) == run([second])


def _killed(_: Point) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_caller_that_waits_for_a_dropped_run_gets_an_error() -> None:
    with SharedRuns(2) as shared:
        shared._under_way = 2
        waiting = shared.ask(_points()[0], 0)
    with pytest.raises(CancelledError):
        waiting.result()
    assert not wait([waiting]).not_done
