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


def test_a_command_counts_for_its_user_only() -> None:
    known = JobSizes()
    known.learn_command("u", "a", 1.0)
    assert {kind: sum(each.cells.values()) for kind, each in known._known.items()} == {("u",): 1.0, ("u", "a"): 1.0}
    known.learn("u", "a", 1.0)
    assert known.count("u", "a") == (pytest.approx(2.0, rel=0.02), pytest.approx(2.0, rel=0.02), 1.0)
    before = known.probabilities([("v", "a")])
    known.learn_command("u", "a", 100.0)
    assert (known.probabilities([("v", "a")]) == before).all()


def test_the_many_names_of_a_users_commands_drop_only_that_users_oldest() -> None:
    known = JobSizes()
    known.learn("v", "a", 1.0)
    known.learn_command("v", "b", 1.0)
    for number in range(10_000):
        known.learn_command("u", f"{number}", 1.0)
    assert known.count("v", "a")[0] == known.count("v", "b")[0] == 1.0
    assert len(known) == 1 + 4 + 1 + 256  # all, of "a", of "v" with "a" and "b", and of "u"
    assert known.count("u", "9743")[0] == 0.0 and known.count("u", "9744")[0] == 1.0
    assert known.unstored.take()["u", "9743"] is None
    known.learn_command("u", "9744", 1.0)
    known.learn_command("u", "new", 1.0)
    assert known.count("u", "9745")[0] == 0.0 and known.count("u", "9744")[0] > 1.0


def test_restored_kinds_of_a_user_count_for_the_limit_of_its_commands() -> None:
    before, known = JobSizes(), JobSizes()
    for number in range(256):
        before.learn_command("u", f"{number}", 1.0)
    known.restore(before._known.values())
    known.learn_command("u", "new", 1.0)
    assert len(known) == 1 + 256 and known.count("u", "0")[0] == 0.0
