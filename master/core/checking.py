"""PURE. Numbers in agents' messages with which the core can calculate."""

from __future__ import annotations

import math

from penstock.model import KindAmounts
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request


def check_job(state: api.JobState) -> None:
    """Raises: RpcError: ``bad_request``: a number that is none."""
    if not math.isfinite(state.submitted_at):
        raise bad_request("not a time", field="submitted_at")


def check_tasks(ready: api.ReadyTasks) -> None:
    """Raises: RpcError: ``bad_request``: an estimate that is no non-negative number."""
    for index, request in enumerate(ready.tasks):
        if not sound(request.usage):
            raise bad_request("expected non-negative numbers", field=f"tasks[{index}].usage")


def sound(amounts: KindAmounts) -> bool:
    """Whether these can be calculated with."""
    return all(math.isfinite(amount) and amount >= 0 for amount in (amounts.cpu, amounts.disk, amounts.network))
