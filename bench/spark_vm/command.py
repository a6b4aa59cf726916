"""The benchmark on the host: one virtual machine for each part; recorded parts are not measured again."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.spark_vm import disks, guest, machine, report
from bench.spark_vm.guest import LEARN
from bench.spark_vm.records import Part, Side
from tests.vm import checkout
from tests.vm.host import UnavailableError, require_tools, say
from tests.vm.image import ROOT

OUT = ROOT / "build" / "spark-vm"
DISK_BYTES_PER_S = 40_000_000
#: The rate of the object store for one reader.
STREAM_BYTES_PER_S = 2_500_000
#: The memory that the agent offers: the remainder of Spark's daemons and a dozen drivers.
_OFFERED_BYTES = 4 << 30
SIDES = "static,minfrag,minfrag:mean:shared"
_SIDES_HELP = f"how executors are placed, promised and sized; the others are compared with the first [{SIDES}]"
_RUN_TIMEOUT_S = 3600.0


def main(arguments: Sequence[str]) -> int:
    """Measure the missing parts, then print the tables.

    Returns:
        0; 1 if answers differ or an application failed; 69 where this host cannot have the machine, 71 where it ended
            in the middle; else the status of a part.
    """
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    todo = [(Side(LEARN), 0), *((side, seed) for seed in options.seeds for side in options.sides)]
    for side, seed in todo:
        if options.report or _file(out, side, seed).exists():
            continue
        try:
            status = _measure(out, side, seed, options)
        except UnavailableError as error:
            say(f"no virtual machine on this host: {error}")
            return 69
        if status != 0:
            say(f"{side} {seed} ended with status {status}")
            return status
        if options.one:
            break
    return _report([Part.read(file) for each in todo if (file := _file(out, *each)).exists()], options)


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def _file(out: Path, side: Side, seed: int) -> Path:
    return out / f"{str(side).replace(':', '-')}-{seed}.json"


def _measure(out: Path, side: Side, seed: int, options: argparse.Namespace) -> int:
    """Measure in one machine. Every mix begins with the learnt runs, and no other knowledge."""
    require_tools()
    learning = side.policy == LEARN
    command = [
        f"{checkout.VENV}/bin/python", "-m", "bench.spark_vm.guest", str(side), str(seed), str(machine.SHARED),
        "--each", str(options.runs if learning else options.each), "--interval-s", str(options.interval),
        "--memory-bytes", str(_OFFERED_BYTES), "--disk-bytes-per-s", str(DISK_BYTES_PER_S),
        "--stream-bytes-per-s", str(STREAM_BYTES_PER_S), "--timeout-s", str(_RUN_TIMEOUT_S),
    ]  # fmt: skip
    say(f"{side}, seed {seed}")
    file = _file(out, side, seed)
    with tempfile.TemporaryDirectory(prefix="penstock-spark-vm-") as name:
        shared = Path(name)
        if not learning:
            shutil.copy(out / guest.STORE, shared)
        status = machine.run(command, shared, disks.ensure(), DISK_BYTES_PER_S)
        for made, to in (
            (guest.LOGS, file.with_suffix(".logs.tar.gz")),
            (guest.RESULT, file),
            (guest.STORE, out / guest.STORE),
        ):
            if (shared / made).exists():
                shutil.copy(shared / made, to)
    return status


def _report(parts: list[Part], options: argparse.Namespace) -> int:
    if not parts:
        say(f"nothing was measured yet: {OUT} has no results; `make bench-spark-vm` measures for some hours")
        return 0
    alone = [part for part in parts if part.side.policy == LEARN]
    mixes = {(part.side, part.seed): part for part in parts if part.side.policy != LEARN}
    print("\n\n".join(report.learnt(part) for part in alone))
    if mixes:
        print(f"\n{report.compared(list(mixes.values()))}\n")
    for seed in options.seeds:
        first, *others = [mixes.get((side, seed)) for side in options.sides]
        for other in others:
            if first is not None and other is not None:
                print(report.against(other, first))
    different = report.differing(parts)
    for name, answers in different.items():
        print(f"{name}: NOT THE SAME EACH TIME: {', '.join(sorted(answers))}")
    print(f"answers are the same in all {sum(len(part.runs) for part in parts)} runs" if not different else "")
    return 1 if different else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_vm", description=__doc__)
    add = parser.add_argument
    add("--runs", type=int, default=3, metavar="N", help="of each application, to learn from [3]")
    add("--each", type=int, default=3, metavar="N", help="runs of each application in a mix [3]")
    add("--interval", type=float, default=10.0, metavar="S", help="mean time between two arrivals [10]")
    add("--seeds", type=_seeds, default=(1,), metavar="N,…", help="of the mixes' arrivals [1]")
    add("--sides", type=_sides, default=_sides(SIDES), metavar="POLICY[:DEMAND[:SIZING]],…", help=_SIDES_HELP)
    add(
        "--out",
        type=Path,
        default=OUT,
        metavar="DIR",
        help="results; recorded parts are not measured again [%(default)s]",
    )
    add("--one", action="store_true", help="measure one part that is missing, and end")
    add("--report", action="store_true", help="only print the tables of the recorded parts")
    return parser


def _sides(text: str) -> tuple[Side, ...]:
    return tuple(Side.read(each) for each in text.split(","))


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))
