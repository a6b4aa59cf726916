"""The actions of users of Penstock: submit job files, reserve for a deadline, name one line of configuration for
Dask.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.mix.jobs import Job
from bench.mix.kinds import DASK, SEND, SEND_BYTES
from bench.mix.ways import Start, as_user

#: Installed beside the Python that measures.
COMMAND = str(Path(sys.executable).with_name("penstock"))
#: The line that docs/dask.md names.
DASK_LINE = "DASK_DISTRIBUTED__WORKER__PRELOAD=penstock.engines.dask.preload"
#: A reservation has so many times the time that the job takes alone, as it takes longer beside others, and on a host
#: that becomes slower (1.3 times were once too few).
_RESERVED_FACTOR = 1.5
#: The bytes that work announces for a second of CPU time. Only the ratios between its announcements matter, and the
#: rate that the master assumes for a core before it has measured one (``default_cpu_bytes_per_s``).
BYTES_PER_CPU_S = 50e6


def job_file(job: Job, command: str, *, clairvoyant: bool) -> str:
    """Return the job file: one task. ``clairvoyant``: it announces how much work it is, as ``input_bytes``.

    A job that is announced has a name of its own, so that nothing that is remembered of others is held against it.
    """
    task: dict[str, Any] = {"name": job.kind, "command": command}
    if job.kind == SEND:
        task["kind"] = "network"
    if job.memory_bytes:
        task["memory"] = job.memory_bytes
    if job.leftovers:
        task["opportunistic"] = "only"
    if clairvoyant:
        task["input_bytes"] = work_bytes(job)
    name = f"{job.application}-{job.number}" if clairvoyant else job.application
    lines = [f"name = {json.dumps(name)}", "", "[[task]]"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in task.items())]) + "\n"


def work_bytes(job: Job) -> int:
    """Return the announcement of a job of known size: the bytes that it sends, or that its CPU time would process."""
    return max(1, round(job.units * SEND_BYTES if job.kind == SEND else job.cpu_s * BYTES_PER_CPU_S))


def submit(socket: Path, reservations: Mapping[int, str], *, clairvoyant: bool) -> Start:
    """Return the way of an agent's users. ``reservations`` has the id of those that were made, by the job's number."""

    def start(job: Job, directory: Path, command: str) -> list[str]:
        agent = f"PENSTOCK_SOCKET={socket}"
        if job.kind == DASK:
            return as_user(job.user, ["env", agent, DASK_LINE, "sh", "-euc", command])
        file, output = directory / "job.toml", shlex.quote(str(directory / "submitted"))
        file.write_text(job_file(job, command, clairvoyant=clairvoyant), encoding="ascii")
        reserved = ["--reservation", reservations[job.number]] if job.number in reservations else []
        argv = shlex.join([COMMAND, "submit", "--quiet", *reserved, str(file)])
        return as_user(job.user, ["env", agent, "sh", "-c", f"exec {argv} >{output}"])

    return start


def reserved_s(job: Job) -> int:
    """Return for how many seconds a job with a deadline reserves a core."""
    return math.ceil(_RESERVED_FACTOR * job.alone_s)


def reservation(job: Job) -> str:
    """Return the reservation of a job with a deadline, in RDL: a core for some more than its time alone.

    The window counts from the moment of the request, which is the round's beginning.
    """
    lasts_s = reserved_s(job)
    within = f"+{math.floor(job.arrival_s)}s, +{math.floor(job.deadline_s)}s"
    return f"window(atom(<{job.memory_bytes}B,1core>, 1, 1, {lasts_s}s, {lasts_s}s), {within})"


def reserve(job: Job, socket: Path) -> str:
    """Reserve for a job with a deadline, as its user; return the reservation's id.

    Raises:
        subprocess.CalledProcessError: it was refused.
    """
    argv = ["env", f"PENSTOCK_SOCKET={socket}", COMMAND, "reserve", "--json", "--name", job.application]
    done = subprocess.run(
        as_user(job.user, [*argv, reservation(job)]), stdout=subprocess.PIPE, text=True, check=True, cwd="/"
    )
    return str(json.loads(done.stdout)[0]["reservation"])
