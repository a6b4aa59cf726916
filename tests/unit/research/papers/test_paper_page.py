"""Trials of claims, and the page that comes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.papers.catalogue import LONGEST, PAPERS, all_claims, chosen, rank
from research.papers.claims import TRACES, Claim, Inputs, Row
from research.papers.page import page
from research.papers.trial import Trial, attempt, try_all

_HOLDS = Row(what="makespan", paper="60 s", ours="61 s", holds=True)
_FAILS = Row(what="a|b", paper="1", ours="2", holds=False, why="Because of\nthis.")


def _claim(name: str = "ubis/x", rows: list[Row] | None = None, needs: str = "") -> Claim:
    return Claim(name=name, where="Fig. 3", run=lambda _: rows or [_HOLDS], needs=needs)


def test_a_row_that_does_not_hold_has_a_reason() -> None:
    with pytest.raises(ValueError, match="does not say why"):
        Row(what="makespan", paper="1", ours="2", holds=False)


def test_a_claim_without_its_trace_is_not_run(tmp_path: Path) -> None:
    trial = attempt(_claim(needs="swim"), Inputs(traces=tmp_path))
    assert (trial.rows, trial.failed) == ([], "")
    assert trial.not_run.startswith("the trace 'swim' (swim/FB-2010")
    (tmp_path / TRACES["swim"]).parent.mkdir()
    (tmp_path / TRACES["swim"]).touch()
    assert attempt(_claim(needs="swim"), Inputs(traces=tmp_path)).rows == [_HOLDS]


def test_a_claim_that_fails_leaves_the_others_their_lines() -> None:
    def fail(_: Inputs) -> list[Row]:
        raise KeyError("nothing")

    broken = Claim(name="ubis/y", where="Fig. 4", run=fail)
    heard: list[str] = []
    trials = try_all([broken, _claim()], Inputs(), done=lambda trial: heard.append(trial.name))
    assert trials[0].failed.endswith("KeyError: 'nothing'\n")
    assert trials[1].rows == [_HOLDS]
    assert heard == ["ubis/y", "ubis/x"]


def test_the_page_sets_the_papers_figure_beside_ours() -> None:
    trials = [
        Trial(name="las_mq/b", where="Fig. 10", not_run="no trace"),
        Trial(name="ubis/x", where="Fig. 3", rows=[_HOLDS, _FAILS], took_s=3.0),
        Trial(name="ubis/y", where="Fig. 4", failed="Traceback\nKeyError: 'z'\n"),
    ]
    text = page(trials)
    assert "1 of 2 lines come out as in the paper." in text
    assert text.index(f"## {PAPERS['ubis']}") < text.index(f"## {PAPERS['las_mq']}")
    assert "| `ubis/x` Fig. 3 | makespan | 60 s | 61 s | yes |  |" in text
    assert "|  | a\\|b | 1 | 2 | **no** | Because of this. |" in text
    assert "| `ubis/y` Fig. 4 |  |  | failed | **no** | KeyError: 'z' |" in text
    assert "| `las_mq/b` Fig. 10 |  |  | not run |  | no trace |" in text
    assert "3.0" not in text


def test_names_are_of_claims_or_of_papers() -> None:
    assert chosen([]) == all_claims()
    assert {claim.name.partition("/")[0] for claim in chosen(["las_mq"])} == {"las_mq"}
    assert [claim.name for claim in chosen(["las_mq/fig01"])] == ["las_mq/fig01"]
    with pytest.raises(LookupError, match=r"unknown claim 'las_mp'; did you mean 'las_mq'\?"):
        chosen(["las_mp"])


def test_claims_have_names_of_their_own_under_their_paper_and_needs_that_are_known() -> None:
    claims = all_claims()
    assert len({claim.name for claim in claims}) == len(claims)
    assert {claim.name.partition("/")[0] for claim in claims} <= set(PAPERS)
    assert {claim.needs for claim in claims} <= {"", *TRACES}


def test_the_longest_run_begins_first() -> None:
    assert set(LONGEST) <= {claim.name for claim in all_claims()}
    assert rank(LONGEST[0]) < rank(LONGEST[1]) < rank("las_mq/fig01")
