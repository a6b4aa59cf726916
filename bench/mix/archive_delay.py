"""``python -m bench.mix.archive_delay``: by how much an archive on leftovers delays jobs, in pairs of short rounds.

Two rounds of a whole plan differ by more than an archive may delay them. Here a few jobs run again and again in one
machine, by turns beside the archive and without it, so that the mean difference has a small standard error. *all*
cores: each core has a job that computes. *one* core: the other core is left to the archive, and queries come.

*apart*: the jobs keep to one processor and the archive to another one, so that they never wait for each other: what
delay is left is that of hardware and kernel (caches, memory, clock, locks), and no scheduler can take it away.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from bench.mix import guest, host, through_penstock
from bench.mix.__main__ import PROCESSORS, add_host, in_machine
from bench.mix.jobs import USERS, Job
from bench.mix.layer import INPUT
from bench.mix.place import Place
from bench.mix.plan import Plan
from bench.mix.round import archiving, run
from bench.mix.singles import ARCHIVE
from bench.mix.ways import Start, plain
from demo import node
from tests.vm.__main__ import status_of

_APART = "apart"
#: For each part of a host that is busy.
_WAYS = {"all": ("plain", "penstock"), "one": ("plain", "penstock", _APART)}
_FIRST_PIECE_WITHIN_S = 60.0
_POLL_S = 0.05
#: Kind, units and arrival of each job. A query waits for nobody's terminal here, but is as short as there.
_ROUNDS: dict[str, tuple[tuple[str, float, float], ...]] = {
    "all": (("compress", 1.0, 0.0), ("compress", 1.0, 0.0), ("query", 1.0, 1.0), ("query", 1.0, 2.5)),
    "one": (("compress", 1.0, 0.0), ("query", 1.0, 1.0), ("query", 1.0, 2.5)),
}


def plan_of(busy: str) -> Plan:
    """Return the jobs of a short round, and the archive, each of another user than the one before."""
    jobs = tuple(
        Job(number, USERS[number % 2], kind, f"{kind}-{number}", True, units, 1.0, 1.0, arrival_s)
        for number, (kind, units, arrival_s) in enumerate(_ROUNDS[busy])
    )
    archive = Job(len(jobs), USERS[2], ARCHIVE, ARCHIVE, False, 1.0, 0.0, 0.0, 0.0, 128 << 20, leftovers=True)
    return Plan(0, 1.0, float(PROCESSORS), (), jobs, archive)


async def mean_s(plan: Plan, start: Start, directory: Path, *, beside: bool, inputs: Path = INPUT) -> float:
    """Return the mean time of the round's jobs. The archive has ended a piece before they come.

    Raises:
        RuntimeError: a job failed, or the archive ended no piece.
    """
    async with contextlib.AsyncExitStack() as stack:
        if beside:
            await _ended_a_piece(await stack.enter_async_context(archiving(plan.archive, start, directory, inputs)))
        done = (await run(plan, start, directory, inputs=inputs)).done
    if failed := [each.job.kind for each in done if not each.succeeded]:
        raise RuntimeError(f"failed: {', '.join(failed)}")
    return fmean(each.took_s for each in done)


def apart(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on the first processor, what may run on leftovers on the second."""
    return ["taskset", "--cpu-list", "1" if job.leftovers else "0", *plain(job, directory, command)]


def _has_piece(archive: Path) -> bool:
    return any(archive.glob("*.xz"))


async def _ended_a_piece(archive: Path) -> None:
    until_s = time.monotonic() + _FIRST_PIECE_WITHIN_S
    while not _has_piece(archive):
        if time.monotonic() > until_s:
            raise RuntimeError(f"the archive ended no piece within {_FIRST_PIECE_WITHIN_S:g} s")
        await asyncio.sleep(_POLL_S)


class Pair(NamedTuple):
    """The mean time of a job without and beside the archive, and the CPU time of Penstock's daemons in each round."""

    alone_s: float
    beside_s: float
    daemons_alone_s: float = 0.0
    daemons_beside_s: float = 0.0


def pairs(
    plan: Plan, start: Start, directory: Path, count: int, inputs: Path = INPUT, daemons_s: Callable[[], float] = float
) -> Iterator[Pair]:
    """Yield pairs of rounds without and beside the archive; each pair begins with the other one.

    ``daemons_s`` returns the CPU time of the daemons so far.
    """
    for number in range(count):
        took_s, spent_s = {}, {}
        for beside in (False, True) if number % 2 else (True, False):
            own = directory / f"{number}-{beside}"
            own.mkdir(parents=True)
            before_s = daemons_s()
            took_s[beside] = asyncio.run(mean_s(plan, start, own, beside=beside, inputs=inputs))
            spent_s[beside] = daemons_s() - before_s
        yield Pair(took_s[False], took_s[True], spent_s[False], spent_s[True])


def told(way: str, busy: str, made: Sequence[Pair]) -> str:
    """Return the line for one way: both means, and the mean delay with its standard error."""
    delays = [100 * (pair.beside_s / pair.alone_s - 1) for pair in made]
    error = stdev(delays) / len(delays) ** 0.5
    alone_s, beside_s, daemons_alone_s, daemons_beside_s = (fmean(each) for each in zip(*made, strict=True))
    cores = f"{busy:<3} of the cores busy"
    times = f"mean job {alone_s:.3f} s, beside the archive {beside_s:.3f} s"
    daemons = f"; daemons {daemons_alone_s:.3f} s of CPU a round, beside it {daemons_beside_s:.3f} s"
    delay = f"delay {fmean(delays):+.2f} % ± {error:.2f} ({len(delays)} pairs)"
    return f"{way:<9} {cores}: {times}, {delay}{daemons if daemons_alone_s else ''}"


def _measure_here(place: Place, count: int) -> None:
    work = place.work
    with node.running(work, {}, {}) as up:
        through = through_penstock.submit(up.socket, {}, clairvoyant=False)
        starts: dict[str, Start] = {"plain": plain, "penstock": through, _APART: apart}
        for busy, ways in _WAYS.items():
            made: dict[str, list[Pair]] = {way: [] for way in ways}
            for turn in range(count // 2):  # ways by turns, so that a faster host is not one way's
                for way in ways:
                    directory = work / f"{way}-{busy}-{turn}"
                    daemons_s = (lambda: sum(up.cpu_seconds().values())) if way == "penstock" else float
                    made[way] += pairs(plan_of(busy), starts[way], directory, 2, place.inputs, daemons_s)
            for way in ways:
                print(told(way, busy, made[way]), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Boot the machine and measure; in the machine, or on a host, measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.archive_delay", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, metavar="N", help="for each way, 2 or more [20]")
    add_host(parser)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.pairs < 2:
        parser.error(f"--pairs {options.pairs}: a standard error needs 2 or more")
    if options.host is not None and (cores := os.cpu_count()) != PROCESSORS:
        parser.error(f"--host: its rounds keep {PROCESSORS} processors busy, and here are {cores}: leave --host out")

    def use(place: Place, _ways: list[str]) -> int:
        _measure_here(place, options.pairs)
        return 0

    if options.here:
        return use(guest.prepare(), [])
    if options.host is not None:
        return host.measured(options.host, "plain,penstock", "", use)
    return status_of(lambda: in_machine("bench.mix.archive_delay", arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
