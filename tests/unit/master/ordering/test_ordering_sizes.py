"""Known sizes are learnt without arrays, as if the whole distributions of all kinds had been mixed."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from master.ordering import JobSizes, KnownSizes, sizes
from master.ordering.sizes import CELLS, OTHERS, PRIOR, cell_of


def evidence(known: JobSizes, user: str, application: str, service: float) -> dict[tuple[str, ...], float]:
    """The evidence of a job for each of its kinds, by the whole distributions."""
    cell, general = cell_of(service), np.zeros(CELLS)
    found: dict[tuple[str, ...], float] = {}
    near = slice(max(0, cell - 1), cell + 2)
    of_own = known._of((user, application))[1]
    for kind in ((), (user,), ("", "", application), (user, application)):
        counts, own, weight = known._of(kind)
        predicted = (counts[near].sum() + PRIOR * general[near].sum()) * own
        found[kind] = math.log((predicted + 1e-9) / (general[near].sum() + 1e-9))
        if len(kind) != 3 or 1.0 / own > 1.0 / of_own + OTHERS:
            general = (weight * own) * counts + (weight * own * PRIOR + 1.0 - weight) * general
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_job_is_the_same_evidence_as_by_the_whole_distributions(seed: int) -> None:
    rng, known = Random(seed), JobSizes()
    for _ in range(60):
        job = rng.choice("uv"), rng.choice("abc"), 10 ** rng.uniform(-3, 9)
        before = {kind: each.odds for kind, each in known._known.items()}
        expected = {
            kind: max(-6.0, min(6.0, before.get(kind, KnownSizes(kind).odds) + each))
            for kind, each in evidence(known, *job).items()
        }
        known.learn(*job)
        assert {kind: known._known[kind].odds for kind in expected} == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_learning_makes_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    known = JobSizes()
    made: list[object] = []
    monkeypatch.setattr(sizes, "_spread", lambda cells: made.append(cells))
    for service in (1.0, 2.0, 4.0):
        known.learn("u", "a", service)
    assert not made and len(known) == 4
