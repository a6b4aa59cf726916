"""Rayon's claims on planning."""

from __future__ import annotations

from random import Random

import pytest

from master.reservations.rdl import atoms_of, infeasible
from research.papers import rayon
from research.papers.claims import Inputs
from research.papers.rayon import _PER_NODE, CLAIMS, HORIZON, _tight, atoms, mixed


def _rows(name: str) -> dict[str, tuple[str, bool]]:
    claim = next(claim for claim in CLAIMS if claim.name == name)
    return {row.what: (row.ours, row.holds) for row in claim.run(Inputs())}


def test_the_papers_own_example_comes_out() -> None:
    (said,) = _rows("rayon/fig09").values()
    assert said == ("[320, 560) at 10, [560, 680) at 20, [680, 800) at 15", True)


def test_flat_plans_preempt_less_and_accept_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rayon, "_SEEDS", range(2))
    rows = _rows("rayon/fig14")
    assert all(holds for _, holds in rows.values())
    assert all("−" in ours for ours, _ in rows.values())


def test_a_program_accepts_more_than_one_pass_from_right_to_left() -> None:
    rows = _rows("rayon/fig12-milp")
    ours, holds = rows["MILP accepts more work than GREE where requests are few and large"]
    assert ours.startswith("+")
    assert holds


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("percent", [0, 50, 100])
def test_requests_can_be_kept_and_ask_for_about_all_that_there_is(percent: int, part: int) -> None:
    requests = mixed(100, 400, percent, part, Random(1))
    asked = sum(atom.work for each in requests.values() for atom in atoms_of(each))
    assert asked == pytest.approx(400 * _PER_NODE * HORIZON, rel=0.15)
    impossible = [name for name, each in requests.items() if infeasible(each)]
    assert len(impossible) <= 2


def test_the_same_seed_gives_the_same_requests() -> None:
    assert atoms(50, 200, Random(3)) == atoms(50, 200, Random(3))
    assert _tight(5, Random(3)) != _tight(5, Random(4))
