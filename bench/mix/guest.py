"""``python -m bench.mix.guest``: calibrate each kind of work, then run plans in each way; in the machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from bench.mix import link, slurm, through_penstock
from bench.mix.calibration import calibrate, costs_of
from bench.mix.figures import figures
from bench.mix.jobs import USERS, Cost
from bench.mix.kinds import KINDS
from bench.mix.place import MACHINE, Place
from bench.mix.plan import Plan, draw_plan, first_pass
from bench.mix.records import Origin, Record, jobs_of
from bench.mix.round import Done, run
from bench.mix.ways import CLAIRVOYANT, KNOWN, UNRESERVED, Start, make_slices, master_settings, plain, slices, static
from demo import node

#: Where the records are, for the host to bring back.
RECORDS = MACHINE.work / "records"
#: The file in that directory with the cost of each kind of work.
CALIBRATION = "calibration"
_CHECKOUT = Path(__file__).parents[2]
#: An idle machine, with the daemons in it, uses less of its processors; it is given so long.
_IDLE_PERCENT, _SETTLES_WITHIN_S = 3.0, 30.0
BY_THE_KERNEL: dict[str, Start] = {"plain": plain, "slices": slices, "static": static}
Made = tuple[dict[str, float], list[Done]]


class MeasurementPlan(NamedTuple):
    """The measurements: the ways on ``seeds`` plans from ``seed`` on. ``costs``: those of another run, or None."""

    ways: list[str]
    seed: int
    seeds: int
    window_s: float
    archive: str
    costs: dict[str, Cost] | None


def measure(way: str, plan: Plan, costs: dict[str, Cost], directory: Path, *, with_archive: bool, inputs: Path) -> Made:
    """Run the plan in one way; return its figures and its jobs.

    Penstock knows nothing of the jobs when it begins; :data:`KNOWN`: the recurring ones have run once.
    """
    directory.mkdir(parents=True)
    if way in BY_THE_KERNEL:
        return one_round(plan, BY_THE_KERNEL[way], directory, with_archive=with_archive, inputs=inputs)
    if way in slurm.OVERSUBSCRIBE:
        with slurm.running(way):
            return one_round(plan, slurm.slurm, directory, with_archive=with_archive, inputs=inputs)
    with node.running(directory, {}, master_settings(way)) as up:
        clairvoyant = way.removesuffix(UNRESERVED) == CLAIRVOYANT
        if way.removesuffix(UNRESERVED).endswith(KNOWN):
            before = through_penstock.submit(up.socket, {}, clairvoyant=False)
            asyncio.run(run(first_pass(plan, costs), before, directory, inputs=inputs))
            settle()
        before_s = sum(up.cpu_seconds().values())
        nightly = [job for job in plan.jobs if job.deadline_s and not way.endswith(UNRESERVED)]
        reserved = {job.number: through_penstock.reserve(job, up.socket) for job in nightly}
        start = through_penstock.submit(up.socket, reserved, clairvoyant=clairvoyant)
        made, done = one_round(plan, start, directory, with_archive=with_archive, inputs=inputs)
        used_s = sum(up.cpu_seconds().values()) - before_s
        return made | {"daemons_cpu_s": used_s, "daemons_share": used_s / (plan.cores * made["makespan_s"])}, done


def one_round(plan: Plan, start: Start, directory: Path, *, with_archive: bool, inputs: Path) -> Made:
    """Return the figures of one round, with the CPU time that the whole machine took for it, and its jobs."""
    before = psutil.cpu_times()
    came = asyncio.run(run(plan, start, directory, with_archive=with_archive, inputs=inputs))
    now = psutil.cpu_times()
    made = figures(came.done) | {"look_ms": 1e3 * came.look_s}
    if with_archive:
        made["archived_mib"] = came.archived_bytes / (1 << 20)
        made["archived_mib_per_s"] = made["archived_mib"] / made["makespan_s"]
    host_cpu_s = sum(now) - now.idle - now.iowait - (sum(before) - before.idle - before.iowait)
    return made | {"host_cpu_s": host_cpu_s}, came.done


def settle() -> None:
    """Wait until the machine has written the data of the first pass, and is idle: that is not the round's work."""
    os.sync()
    until_s = time.monotonic() + _SETTLES_WITHIN_S
    while psutil.cpu_percent(1.0) > _IDLE_PERCENT and time.monotonic() < until_s:
        pass


def rounds(ways: list[str], seed: int, archive: str = "both") -> Iterator[tuple[str, bool]]:
    """The ways take turns, with the archive and without it; each seed begins with another way, and with the other."""
    turn = seed % len(ways)
    for way in ways[turn:] + ways[:turn]:
        for with_archive in (True, False) if seed % 2 else (False, True):
            if archive in {"both", "with" if with_archive else "without"}:
                yield way, with_archive


def compile_packages() -> None:
    """Compile the checkout's packages, as pip does: their users may not write there, and would do it for each job."""
    packages = [str(_CHECKOUT / name) for name in ("penstock", "agent", "master", "bench")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


def prepare() -> Place:
    """Make users, slices and directories, once in the life of the machine."""
    for user in USERS:
        subprocess.run(["useradd", "--create-home", user], check=True)
    Path("/root").chmod(0o711)  # users run the checkout's commands
    compile_packages()
    MACHINE.work.mkdir()
    RECORDS.mkdir()
    make_slices(os.cpu_count() or 1)
    return MACHINE


def _complete(origin: Origin) -> Origin:
    """Return where figures come from, with the versions that only the machine knows."""
    packages = {name: version(name) for name in ("duckdb", "dask", "distributed")}
    here = {"Linux": platform.release(), "Python": platform.python_version()} | packages
    return msgspec.structs.replace(origin, versions=here | origin.versions)


def main(arguments: list[str]) -> int:
    """Read the host's request, and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.guest", description=__doc__)
    parser.add_argument("--ways", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--window-s", type=float, required=True)
    parser.add_argument("--archive", default="both")
    parser.add_argument("--costs", type=lambda text: costs_of(text.encode()))
    parser.add_argument("--origin", type=lambda text: msgspec.json.decode(text, type=Origin), required=True)
    options = parser.parse_args(arguments)
    measurements = MeasurementPlan(
        options.ways.split(","), options.seed, options.seeds, options.window_s, options.archive, options.costs
    )
    measure_all(measurements, prepare(), RECORDS, options.origin)
    return 0


def measure_all(measurements: MeasurementPlan, place: Place, records: Path, origin: Origin) -> None:
    """Calibrate, then measure each way on the same plans, and keep a record of each round."""
    origin = _complete(origin)
    with link.limited():
        costs = measurements.costs or calibrate(place)
        (records / CALIBRATION).write_bytes(msgspec.json.encode(costs))
        for seed in range(measurements.seed, measurements.seed + measurements.seeds):
            plan = draw_plan(seed, KINDS, costs, window_s=measurements.window_s, cores=float(os.cpu_count() or 1))
            print(f"{len(plan.jobs)} jobs, load {plan.load:.2f}, seed {plan.seed}", flush=True)
            for way, with_archive in rounds(measurements.ways, seed, measurements.archive):
                began_s = time.monotonic()
                directory = place.work / way / f"{seed}-{with_archive}"
                made, done = measure(way, plan, costs, directory, with_archive=with_archive, inputs=place.inputs)
                jobs = jobs_of(done)
                record = Record(way, seed, plan.window_s, plan.load, with_archive, origin, made, jobs, plan.cores)
                record.save(records)
                said = {"way": way, "seed": seed, "with_archive": with_archive, "all_s": time.monotonic() - began_s}
                print(json.dumps(said | made), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
