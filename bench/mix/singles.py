"""The jobs of which each round has one: a nightly job with a deadline, a memory hog, an archive. Pure."""

from __future__ import annotations

import random

from bench.mix.jobs import USERS, Cost, Job, Series

NIGHTLY, HOG, ARCHIVE = "nightly", "hog", "archive"
#: The kind of the nightly job: one process that computes on one core.
NIGHTLY_KIND = "compress"
#: The nightly job takes this part of the window if it is alone.
_NIGHTLY_PART = 0.2
#: Its deadline lies so many times the time that it takes alone after its arrival.
_DEADLINE_FACTOR = 2.0
_NIGHTLY_ARRIVES, _HOG_ARRIVES = (0.1, 0.5), (0.2, 0.6)
#: The memory that their users promise to keep to. The hog does not.
_NIGHTLY_BYTES, _HOG_BYTES, _ARCHIVE_BYTES = 256 << 20, 256 << 20, 128 << 20


def nightly_series(draw: random.Random, cost: Cost, window_s: float) -> Series:
    """Return the nightly work of some user, of the size that takes its part of the window."""
    units = max(0.1, (_NIGHTLY_PART * window_s - cost.base_s) / cost.unit_s) if cost.unit_s else 1.0
    return Series(NIGHTLY, draw.choice(USERS), NIGHTLY_KIND, units)


def nightly_job(draw: random.Random, series: Series, cost: Cost, window_s: float) -> Job:
    """Draw this night's run. Its number is not known yet."""
    arrival_s = draw.uniform(*_NIGHTLY_ARRIVES) * window_s
    alone_s = cost.alone_s(series.units)
    return Job(
        0, series.user, series.kind, NIGHTLY, True, series.units, cost.cpu_s(series.units), alone_s, arrival_s,
        memory_bytes=_NIGHTLY_BYTES, deadline_s=arrival_s + _DEADLINE_FACTOR * alone_s,
    )  # fmt: skip


def hog_job(draw: random.Random, window_s: float) -> Job:
    """Draw the job that takes more memory than promised. Its number is not known yet; it is no part of the load."""
    arrival_s = draw.uniform(*_HOG_ARRIVES) * window_s
    return Job(0, draw.choice(USERS), HOG, HOG, False, 1.0, 0.0, 0.0, arrival_s, memory_bytes=_HOG_BYTES)


def archive_job(draw: random.Random, number: int) -> Job:
    """Draw the user of the archive. It runs from the round's beginning to its end, and is no part of the load."""
    return Job(
        number, draw.choice(USERS), ARCHIVE, ARCHIVE, False, 1.0, 0.0, 0.0, 0.0,
        memory_bytes=_ARCHIVE_BYTES, leftovers=True,
    )  # fmt: skip
