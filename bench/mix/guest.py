"""``python -m bench.mix.guest``: measure, in the machine, the unloaded CPU time of each kind of work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.mix.kinds import KINDS, command
from bench.mix.layer import INPUT
from bench.mix.plan import Cost

#: Each kind runs alone with these sizes; a line through the two CPU times is its cost.
_SMALL, _LARGE = 1.0, 6.0


def run_alone(kind: str, units: float, directory: Path) -> tuple[float, float]:
    """Return the CPU time of a job and the time that it took, in seconds.

    Raises:
        subprocess.CalledProcessError: the job failed.
        FileNotFoundError: it left no result.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    argv = ["sh", "-euc", command(kind, units, INPUT, directory)]
    began_s = time.monotonic()
    process = subprocess.Popen(argv)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began_s
    if status != 0:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), argv)
    (directory / "result").stat()
    return used.ru_utime + used.ru_stime, took_s


def fit(small_cpu_s: float, large_cpu_s: float) -> Cost:
    """Return the cost whose line goes through both CPU times; neither part of it is negative."""
    unit_cpu_s = max(0.0, (large_cpu_s - small_cpu_s) / (_LARGE - _SMALL))
    return Cost(max(0.0, small_cpu_s - unit_cpu_s * _SMALL), unit_cpu_s)


def main() -> int:
    """Print a line of JSON for each kind."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "job")
        run_alone("copy", 1.0, directory)  # reads the text once
        for kind in KINDS:
            small_cpu_s, small_s = run_alone(kind.name, _SMALL, directory)
            large_cpu_s, large_s = run_alone(kind.name, _LARGE, directory)
            cost = fit(small_cpu_s, large_cpu_s)
            print(
                json.dumps(
                    {
                        "kind": kind.name,
                        "base_cpu_s": round(cost.base_cpu_s, 3),
                        "unit_cpu_s": round(cost.unit_cpu_s, 3),
                        "alone_s": [round(small_s, 3), round(large_s, 3)],
                    }
                ),
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
