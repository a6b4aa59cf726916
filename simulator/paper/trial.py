"""Claims, tried on all cores."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

import msgspec

from simulator.paper.catalogue import chosen
from simulator.paper.claims import Claim, Inputs, Row


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a claim: its rows, or why it was not run, or how it failed (a traceback)."""

    name: str
    where: str
    rows: list[Row] = []
    not_run: str = ""
    failed: str = ""
    took_s: float = 0.0


def try_all(
    claims: Sequence[Claim], inputs: Inputs, *, processes: int = 1, done: Callable[[Trial], None] | None = None
) -> list[Trial]:
    """The trials in the order of the claims; ``done`` hears of each when it is over."""
    tell = done or (lambda _: None)
    if min(processes, len(claims)) <= 1:
        trials = []
        for claim in claims:
            trials.append(attempt(claim, inputs))
            tell(trials[-1])
        return trials
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(claims)), mp_context=context) as pool:
        futures: list[Future[Trial]] = [pool.submit(_by_name, claim.name, inputs) for claim in claims]
        try:
            for future in as_completed(futures):
                tell(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def attempt(claim: Claim, inputs: Inputs) -> Trial:
    """Try one claim here and now."""
    trial = Trial(name=claim.name, where=claim.where)
    if claim.needs:
        try:
            inputs.trace(claim.needs)
        except LookupError as error:
            return msgspec.structs.replace(trial, not_run=str(error))
    began = time.monotonic()
    try:
        rows = claim.run(inputs)
    except Exception:  # noqa: BLE001 - the root of a claim: one that fails leaves the others their lines
        return msgspec.structs.replace(trial, failed=traceback.format_exc(), took_s=time.monotonic() - began)
    return msgspec.structs.replace(trial, rows=rows, took_s=time.monotonic() - began)


def _by_name(name: str, inputs: Inputs) -> Trial:
    return attempt(chosen([name])[0], inputs)
