"""``python -m bench.mix``: run the same jobs in each way in the virtual machine, keep records, print a table.

Exit status: 0; 1 where work that kept its promise was killed or lost its result; 69 where this host cannot have the
machine, or with --host lacks something; 71 if the machine would not boot.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from bench.mix import guest, host, layer, report
from bench.mix.calibration import costs_of
from bench.mix.guest import RECORDS
from bench.mix.machine import MixMachine
from bench.mix.place import Place
from bench.mix.records import Origin
from bench.mix.ways import ORDERS, WAYS, exists
from demo import origin
from tests.vm import checkout
from tests.vm.__main__ import require_machine, status_of
from tests.vm.host import say
from tests.vm.remote import Remote
from tests.vm.user_mode import Network

PROCESSORS = 2
_ALL = ",".join(WAYS)
_MEMORY_MIB = 4096
_MOST_MINUTES = 600
_MOST_SEEDS = 100
#: A machine that answers no command for so long has stalled. Seen of one.
_ANSWER_TIMEOUT_S = 60.0


def ways(text: str) -> str:
    """Names of ways, separated by commas."""
    for name in text.split(","):
        if not exists(name):
            known = f"{', '.join(WAYS)}, or penstock[-ORDER][-known][-unreserved] with an order of {', '.join(ORDERS)}"
            raise argparse.ArgumentTypeError(f"{name!r} is none of {known}")
    return text


def minutes(text: str) -> float:
    """A window in which a plan has jobs."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_MINUTES}")
    return value


def seeds(text: str) -> int:
    """A number of plans."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {_MOST_SEEDS}")
    return int(text)


def costs(text: str) -> str:
    """The file `calibration` of a run that has been kept: its content."""
    try:
        kept = Path(text).read_bytes()
        costs_of(kept)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no file `calibration` of a run: {error}") from None
    return kept.decode()


def main(arguments: list[str]) -> int:
    """Boot the machine and measure; or measure on this host."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix", description=__doc__)
    parser.add_argument("--memory", type=int, metavar="MIB", help=f"the machine's memory [{_MEMORY_MIB}]")
    add_host(parser)
    parser.add_argument("--ways", type=ways, metavar="WAY,…", help=f"[{_ALL}]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan [1]")
    parser.add_argument("--seeds", type=seeds, default=1, metavar="N", help="plans, with seeds that follow [1]")
    parser.add_argument("--minutes", type=minutes, default=6.0, metavar="M", help="of arrivals, one or more [6]")
    parser.add_argument(
        "--archive",
        choices=("both", "with", "without"),
        default="both",
        help="rounds with the archive or without it [both]",
    )
    parser.add_argument(
        "--costs", type=costs, metavar="FILE",
        help="the file `calibration` among the records of another run: the same plans as there, and no calibration",
    )  # fmt: skip
    parser.add_argument(
        "--records", type=Path, default=Path("build/mix"), metavar="DIR", help="where the records go [%(default)s]"
    )
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", "bench.mix", *arguments])
    if options.host is None:
        return status_of(lambda: _measure(options, command))
    if options.memory is not None:
        parser.error("--memory: with --host there is no machine")
    return host.measured(
        options.host, options.ways, _ALL, lambda place, ways: _measure_here(options, place, ways, command)
    )


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add the option to measure on this host."""
    parser.add_argument(
        "--host", type=Path, nargs="?", const=host.DIRECTORY, metavar="DIR",
        help="measure on this host, as root, instead of in the machine: it gets users, slices and a network namespace "
        "meanwhile, the hog takes all of its memory, and the inputs stay in DIR [%(const)s]",
    )  # fmt: skip


def _measure_here(options: argparse.Namespace, place: Place, ways: list[str], command: str) -> int:
    """Measure on this host."""
    kept = costs_of(options.costs.encode()) if options.costs else None
    measurements = guest.MeasurementPlan(ways, options.seed, options.seeds, 60 * options.minutes, options.archive, kept)
    processors, memory_mib = os.cpu_count(), psutil.virtual_memory().total >> 20
    came_from = _origin(f"this host: {processors} processors, {memory_mib} MiB", layer.versions_here(), command)
    directory: Path = options.records / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    directory.mkdir(parents=True)
    print(f"records: {directory}", flush=True)
    guest.measure_all(measurements, place, directory, came_from)
    return report.main([str(file) for file in sorted(directory.glob("*.json"))])


def _measure(options: argparse.Namespace, command: str) -> int:
    """Raises: UnavailableError, BootError, subprocess.CalledProcessError: as the machine does."""
    require_machine(user_mode=True)
    memory_mib = options.memory or _MEMORY_MIB
    with checkout.machine_with_checkout(lambda: machine_of(memory_mib)) as machine:
        made = f"{PROCESSORS} processors in user mode, {memory_mib} MiB"
        came_from = msgspec.json.encode(_origin(made, layer.versions(layer.ensure()), command)).decode()
        python = f"{checkout.VENV}/bin/python"
        measure = [python, "-m", "bench.mix.guest", "--ways", options.ways or _ALL, "--origin", came_from]
        measure += ["--seed", str(options.seed), "--seeds", str(options.seeds), "--window-s", f"{60 * options.minutes}"]
        measure += ["--archive", options.archive]
        measure += ["--costs", options.costs] if options.costs else []
        directory = options.records / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        try:
            status = machine.stream(f"cd {checkout.REMOTE} && {shlex.join(measure)}")
        finally:  # also where it is interrupted: the rounds that have ended are worth as much
            _bring_back(machine, directory)
    return status or report.main([str(file) for file in sorted(directory.glob("*.json"))])


def _bring_back(machine: Remote, directory: Path) -> None:
    """Copy the records to this host; a machine that has stalled keeps them."""
    try:
        machine.ssh("true", check=False, timeout_s=_ANSWER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        directory.mkdir(parents=True, exist_ok=True)
        told = directory / "standing.txt"
        told.write_text(machine.standing(), encoding="utf-8")
        say(f"the machine does not answer within {_ANSWER_TIMEOUT_S:g} s; the records of its rounds are lost")
        say(f"where its tasks are blocked: {told}")
    else:
        machine.get(str(RECORDS), directory)
        print(f"records: {directory}", flush=True)


def _origin(made: str, versions: dict[str, str], command: str) -> Origin:
    """Return the origin of present figures, as far as this host knows. ``made`` describes the host of the rounds."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    machine = f"{origin.machine()}; {made}; load of the host before: {load}"
    return Origin(origin.commit(), command, machine, began, versions)


@contextmanager
def machine_of(memory_mib: int) -> Iterator[Remote]:
    """The benchmark's machine, up inside the block."""
    with Network() as network, MixMachine(network, 1, memory_mib=memory_mib, processors=PROCESSORS) as machine:
        yield machine


def in_machine(module: str, arguments: Sequence[str]) -> int:
    """Run a module in the benchmark's machine with the option ``--here``; return its status.

    Raises: UnavailableError, BootError: as the machine does.
    """
    require_machine(user_mode=True)
    with checkout.machine_with_checkout(lambda: machine_of(_MEMORY_MIB)) as machine:
        command = [f"{checkout.VENV}/bin/python", "-m", module, "--here", *arguments]
        return machine.stream(f"cd {checkout.REMOTE} && {shlex.join(command)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
