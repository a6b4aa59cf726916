"""The state of a job: the same word wherever it is shown."""

from __future__ import annotations

import pytest

from penstock.model.job_state import standing


@pytest.mark.parametrize(
    ("admitted", "active", "done", "cancelled", "word"),
    [
        (False, False, False, False, "waiting"),
        (True, False, False, False, "admitted"),
        (True, True, False, False, "running"),
        (True, False, True, False, "running"),
        (False, True, False, False, "running"),  # on slack
        (False, False, True, False, "waiting"),
        (True, True, True, True, "cancelling"),
    ],
)
def test_the_state_of_a_job(admitted: bool, active: bool, done: bool, cancelled: bool, word: str) -> None:
    assert standing(admitted=admitted, active=active, done=done, cancelled=cancelled) == word
