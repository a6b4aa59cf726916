"""PURE. Checks that numbers in agents' messages are usable in calculations."""

from __future__ import annotations

import math

from penstock.model import KindAmounts
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request


def check_job(state: api.JobState) -> None:
    """Raises: RpcError: ``bad_request``: the time of submission is not finite."""
    if not math.isfinite(state.submitted_at):
        raise bad_request("not a time", field="submitted_at")


def check_tasks(ready: api.ReadyTasks) -> None:
    """Raises: RpcError: ``bad_request``: an estimate is negative or not finite."""
    for index, request in enumerate(ready.tasks):
        if not sound(request.usage):
            raise bad_request("expected non-negative numbers", field=f"tasks[{index}].usage")


def sound(amounts: KindAmounts) -> bool:
    """Return whether all amounts are finite and not negative."""
    return all(math.isfinite(amount) and amount >= 0 for amount in (amounts.cpu, amounts.disk, amounts.network))
