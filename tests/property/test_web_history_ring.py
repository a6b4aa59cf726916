"""The ring of the last minutes under any sequence of looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.documents import Resource
from penstock.web.history import History


@given(st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 8.0)), max_size=120))
def test_it_never_grows_beyond_its_rows_and_new_rows_are_sent_once(steps: list[tuple[float, float]]) -> None:
    history, at, told, kept = History(most_rows=50), 1000.0, 0.0, []
    for wait, used in steps:
        at += wait
        before = history.latest
        history.note({"cpu": Resource(unit="cores", capacity=8.0, promised=None, used=used, slack=8.0 - used)}, at)
        fresh = history.since(told)["at"]
        assert list(fresh) == [history.latest] != [before]
        kept += fresh
        told = history.latest
    assert len(history) <= 50
    assert list(history.since()["at"]) == kept[-50:]
