"""Validation of submissions and completions: no id twice, and slots passed on only under a lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.queues.monotask import QUEUED, Monotask
from penstock.model import MonotaskSpec
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Completion, Leased
from penstock.wire.errors import bad_request


def check_fresh(live: Mapping[MonotaskId, Monotask], specs: Sequence[MonotaskSpec]) -> None:
    """Check that no submitted id is live or listed twice.

    Raises:
        RpcError: ``bad_request``; names the element at fault.
    """
    ids = {spec.id for spec in specs}
    if len(ids) == len(specs) and live.keys().isdisjoint(ids):
        return
    seen: set[MonotaskId] = set()
    for index, spec in enumerate(specs):
        if spec.id in live or spec.id in seen:
            raise bad_request(f"{spec.id!r} is in use by a live monotask of this job", field=f"monotasks[{index}].id")
        seen.add(spec.id)


def check_completions(live: Mapping[MonotaskId, Monotask], completions: Sequence[Completion]) -> None:
    """Check a list of completions against ``live``, the session's monotasks, without changing any state.

    Raises:
        RpcError: ``bad_request``; names the element at fault.
    """
    for completion in completions:
        monotask = live.get(completion.id)
        if monotask is None or monotask.state is QUEUED or completion.then is not None or completion.leased is not None:
            break
    else:
        if len(completions) == 1 or len({completion.id for completion in completions}) == len(completions):
            return  # the hot path
    seen: set[MonotaskId] = set()
    leased: set[MonotaskId] = set()  # started under a lease by an earlier element of the list
    for index, completion in enumerate(completions):
        monotask = live.get(completion.id)
        begun = completion.id in leased
        if monotask is None or completion.id in seen or (monotask.state is QUEUED and not begun):
            raise bad_request(
                f"{completion.id!r} is not a granted monotask of this job", field=f"monotasks[{index}].id"
            )
        seen.add(completion.id)
        if completion.leased is not None:
            _check_leased(completion.leased, monotask, index)
        if completion.then is None:
            continue
        then = live.get(completion.then)
        if then is None or then.kind is not monotask.kind or completion.then in seen or completion.then in leased:
            raise bad_request(
                f"{completion.then!r} is not a queued monotask of this job and kind", field=f"monotasks[{index}].then"
            )
        if not (monotask.lease_until or begun):
            raise bad_request(f"{completion.id!r} was granted without a lease", field=f"monotasks[{index}].then")
        leased.add(completion.then)


def _check_leased(leased: Leased, monotask: Monotask, index: int) -> None:
    if not monotask.keep:
        raise bad_request(f"{monotask.id!r} was granted without `keep`", field=f"monotasks[{index}].leased")
    if leased.failed > leased.monotasks:
        raise bad_request("`failed` exceeds `monotasks`", field=f"monotasks[{index}].leased.failed")
