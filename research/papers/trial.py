"""Try claims in parallel, with their runs on all cores."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import msgspec

from research.papers.catalogue import rank
from research.papers.claims import Claim, Inputs, Row
from research.papers.runs import Asking, SharedRuns


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim: its rows, or the reason why it was not run, or the traceback of its failure.

    ``took_s`` is the processor time of its runs, including runs shared with other claims.
    """

    name: str
    where: str
    rows: list[Row] = []
    not_run: str = ""
    failed: str = ""
    took_s: float = 0.0


def try_all(
    claims: Sequence[Claim], inputs: Inputs, *, processes: int = 1, done: Callable[[Trial], None] | None = None
) -> list[Trial]:
    """Try the claims and return the trials in their order; ``done`` is called with each trial when it is over.

    With several processes every claim has a thread that waits for its runs. So the longest runs begin first, and no
    core idles during the last claim.
    """
    tell = done or (lambda _: None)
    with SharedRuns(processes) as shared:
        if processes <= 1:
            trials = []
            for claim in claims:
                trials.append(attempt(claim, inputs, shared))
                tell(trials[-1])
            return trials
        with ThreadPoolExecutor(max(1, len(claims))) as threads:
            futures: list[Future[Trial]] = [threads.submit(attempt, claim, inputs, shared) for claim in claims]
            try:
                for future in as_completed(futures):
                    tell(future.result())
            except BaseException:
                shared.stop()  # otherwise the threads would wait for runs that have not begun
                raise
            return [future.result() for future in futures]


def attempt(claim: Claim, inputs: Inputs, shared: SharedRuns | None = None) -> Trial:
    """Try one claim; ``shared`` makes its runs."""
    trial = Trial(name=claim.name, where=claim.where)
    if claim.needs:
        try:
            inputs.trace(claim.needs)
        except LookupError as error:
            return msgspec.structs.replace(trial, not_run=str(error))
    asking = Asking(shared or SharedRuns(1), rank(claim.name))
    try:
        rows = asking.served(lambda: claim.run(inputs))
    except Exception:  # noqa: BLE001 - the root of a claim: a failed claim must not stop the others
        return msgspec.structs.replace(trial, failed=traceback.format_exc(), took_s=asking.took_s)
    return msgspec.structs.replace(trial, rows=rows, took_s=asking.took_s)
