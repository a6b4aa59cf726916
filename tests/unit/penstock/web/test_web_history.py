"""The ring of the last minutes: an answer has the requested rows."""

from __future__ import annotations

from penstock.documents import Resource, Resources
from penstock.web.history import History


def row(used: float, promised: float | None = 1.0) -> Resources:
    return {"cpu": Resource(unit="cores", capacity=4.0, promised=promised, used=used, slack=4.0 - used)}


def test_rows_come_back_as_columns() -> None:
    history = History()
    for second in range(3):
        history.note(row(second / 3), 100.0 + second)
    assert history.since() == {
        "at": (100.0, 101.0, 102.0),
        "resources": {
            "cpu": {"promised": (1.0, 1.0, 1.0), "used": (0.0, 0.3333, 0.6667), "slack": (4, 3.6667, 3.3333)}
        },
    }
    assert history.since(101.0)["at"] == (102.0,)
    assert history.since(102.0) == {"at": [], "resources": {}}
    assert history.latest == 102.0


def test_unknown_promises() -> None:
    history = History()
    history.note(row(1.0, None), 1.0)
    assert history.since()["resources"] == {"cpu": {"used": (1.0,), "slack": (3.0,)}}


def test_a_row_that_comes_late_does_not_cost_the_next_one() -> None:
    history = History()
    for at in (100.0, 101.4, 102.0, 103.0):
        history.note(row(1.0), at)
    assert history.since()["at"] == (100.0, 101.4, 102.0, 103.0)


def test_it_begins_anew_when_the_clock_is_set_back_or_a_resource_becomes_known() -> None:
    history = History()
    history.note(row(1.0), 100.0)
    history.note(row(1.0), 50.0)
    assert history.since()["at"] == (50.0,)
    history.note(row(1.0, None), 51.0)
    assert history.since()["at"] == (51.0,)
