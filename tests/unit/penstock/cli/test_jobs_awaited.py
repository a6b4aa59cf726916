"""``penstock jobs --wait`` where the master is away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import jobs as command
from penstock.cli.exit_statuses import Status
from penstock.wire.errors import ErrorCode, RpcError, unavailable


class _JobAnswers:
    """The answers of an agent's client about jobs: the master is away at first."""

    def __init__(self, refusals: Sequence[RpcError]) -> None:
        self._refusals = list(refusals)

    async def find(self, jobs: Sequence[str]) -> Any:
        if self._refusals:
            raise self._refusals.pop(0)
        views = [SimpleNamespace(job=job, state="ended", outcome="succeeded") for job in jobs]
        return SimpleNamespace(jobs=views, unknown=[], foreign={})


def _agent(*refusals: RpcError) -> Any:
    return SimpleNamespace(jobs=_JobAnswers(refusals), pause=asyncio.sleep)


_AWAY = unavailable("the master at x is away", remedy="try again")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_AGAIN_S", 0.0)


async def test_a_master_that_is_away_when_the_waiting_begins_is_waited_for() -> None:
    views, status = await command.ended(_agent(_AWAY, _AWAY), ["j-1"], None)
    assert ([view.job for view in views], status) == (["j-1"], Status.DONE)


async def test_a_client_without_time_gets_the_answer_at_once() -> None:
    with pytest.raises(RpcError, match="is away"):
        await command.ended(_agent(_AWAY), ["j-1"], 0.0)


async def test_another_refusal_is_one() -> None:
    with pytest.raises(RpcError, match="no"):
        await command.ended(_agent(RpcError(ErrorCode.REFUSED, "no")), ["j-1"], None)
