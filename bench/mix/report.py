"""``python -m bench.mix.report RECORD.json…``: the table of some rounds, whichever run they are of, as Markdown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from bench.mix.ideal import told
from bench.mix.records import Record, load, planned
from bench.mix.ways import WAYS

#: Figures that are counted, and summed over the rounds; the others are means of them.
_COUNTED = ("jobs", "deadlines", "deadlines_kept", "kept_promise_and_failed", "hogs_stopped")


def by_way(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Return the figures of each way: of the rounds with the archive, and how much longer a mean job takes beside it.

    ``mean_s from`` and ``to`` are the least and highest mean time of a job in a round. The delay is the mean over the
    plans that ran with the archive and without it: the part by which the jobs' mean time is longer with it.
    """
    ways = dict.fromkeys(record.way for record in records)
    known = sorted(ways, key=lambda way: (WAYS.index(way) if way in WAYS else len(WAYS), way))
    return {way: _figures([record for record in records if record.way == way]) for way in known}


def _figures(records: Sequence[Record]) -> dict[str, float]:
    beside = [record for record in records if record.with_archive]
    rounds = beside or records
    names = dict.fromkeys(name for record in rounds for name in record.figures)
    made: dict[str, float] = {"rounds": len(rounds)}
    for name in names:
        values = [record.figures.get(name, 0.0) for record in rounds]
        made[name] = sum(values) if name in _COUNTED else fmean(values)
    means = [record.figures["mean_s"] for record in rounds]
    made |= {"mean_s from": min(means), "to": max(means)}
    delays = _delays(beside, [record for record in records if not record.with_archive])
    return made | ({"delay_by_archive": fmean(delays)} if delays else {})


def _delays(beside: Sequence[Record], alone: Sequence[Record]) -> list[float]:
    without = {(record.seed, record.window_s): record.figures["mean_s"] for record in alone}
    pairs = [(record.figures["mean_s"], without.get((record.seed, record.window_s))) for record in beside]
    return [mean_s / alone_s - 1 for mean_s, alone_s in pairs if alone_s]


def table(ways: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each figure, a column for each way: there are more figures than ways."""
    names = list(dict.fromkeys(name for of in ways.values() for name in of))
    rows = ["| figure | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for name in names:
        cells = (f"{of[name]:.4g}" if name in of else "" for of in ways.values())
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def text(records: Sequence[Record]) -> str:
    """Return the table, and below it where its figures come from."""
    origins = dict.fromkeys(
        f"{each.origin.began}, {each.origin.commit}, {each.origin.machine}, `{each.origin.command}`; "
        + ", ".join(f"{name} {version}" for name, version in each.origin.versions.items())
        for each in records
    )
    plans = dict.fromkeys(
        f"seed {each.seed}: {each.window_s:g} s of arrivals, load {each.load:.2f}; "
        + told(planned(each), each.cores, _took_cpu_s(each, records))
        for each in records
    )
    return "\n".join([table(by_way(records)), "", *plans, *origins])


def _took_cpu_s(of: Record, records: Sequence[Record]) -> float | None:
    """Return the machine's mean CPU time in the rounds of a plan, without those of the archive, which computes too."""
    took_s = [
        each.figures["host_cpu_s"]
        for each in records
        if (each.seed, each.window_s, each.load) == (of.seed, of.window_s, of.load)
        and not each.with_archive and "host_cpu_s" in each.figures
    ]  # fmt: skip
    return fmean(took_s) if took_s else None


def main(arguments: Sequence[str]) -> int:
    """Print it; the status is 1 where work that kept its promise was killed or lost its result."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.report", description=__doc__)
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD.json")
    files: list[Path] = parser.parse_args(arguments).records
    records = []
    for file in files:
        try:
            records.append(load(file))
        except (OSError, msgspec.MsgspecError) as error:
            parser.error(f"{file}: no record of a round: {error}")
    print(text(records))
    return int(any(record.figures["kept_promise_and_failed"] for record in records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
