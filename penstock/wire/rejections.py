"""PURE. The answer to a ``submit`` that came as a notification and is refused: its client waits for the monotasks."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Rejected, Submit
from penstock.wire.errors import RpcError


def rejection(asked: Submit, error: RpcError) -> Rejected:
    """Name every monotask of a submission that was understood."""
    return Rejected(job=asked.job, ids=[spec.id for spec in asked.monotasks], error=error.body)


def rejection_of_raw(params: Any, error: RpcError) -> Rejected | None:
    """Name the monotasks of a submission that was not understood, as far as their ids can be read.

    Returns:
        None where not even the job can be read: no client of several jobs could tell whose they are.
    """
    asked = params[0] if isinstance(params, list) and len(params) == 1 else None
    if not isinstance(asked, dict) or not isinstance(job := asked.get("job"), str):
        return None
    monotasks = asked.get("monotasks")
    ids = [one for each in monotasks if (one := _id(each)) is not None] if isinstance(monotasks, list) else []
    return Rejected(job=job, ids=ids, error=error.body)


def _id(monotask: Any) -> MonotaskId | None:
    found = monotask.get("id") if isinstance(monotask, dict) else None
    try:
        read: MonotaskId = msgspec.convert(found, MonotaskId)
    except msgspec.ValidationError:
        return None
    return read
