"""Messages of the master name times in UTC; commands show them in local time."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.cli.errors import CommandError
from penstock.cli.local_times import with_local_times
from penstock.cli.session import converse
from penstock.wire.errors import bad_request, refused


@pytest.fixture
def _far_east(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_far_east")
def test_times_of_a_refusal_are_shown_in_local_time() -> None:
    said = "eve would have 60.0% of the cpu at 2027-01-15T20:00:10Z, and may have 50.0%"
    assert with_local_times(said) == said.replace("2027-01-15T20:00:10Z", "2027-01-16 05:00:10")
    assert with_local_times("at 2027-13-45T99:00:00Z") == "at 2027-13-45T99:00:00Z"

    async def fails(error: Exception) -> None:
        raise error

    def message(work: Coroutine[Any, Any, None]) -> str:
        with pytest.raises(CommandError) as no:
            converse(work)
        return str(no.value)

    assert "at 2027-01-16 05:00:10" in message(fails(refused(said)))
    typed = "'2027-01-15T20:00:10Z' lies before the plan begins"
    assert typed in message(fails(bad_request(typed, field="rdl"))), "the typed text is unchanged"
