"""How a job is started: by plain Linux, in a systemd slice of its user, or by ``penstock submit``; Slurm has a file of
its own."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.mix.plan import USERS, Job

#: From a job, its directory and its shell command to the process that ends when the job does.
Start = Callable[[Job, Path, str], list[str]]
WAYS = ("plain", "slices", "static", "slurm", "slurm-shared", "penstock", "penstock-known")
#: Penstock in another order than the default one is a way of its own, too: ``penstock-las_mq``.
ORDERS = ("fifo", "ejf", "srjf", "las_mq", "las", "fair", "drf", "gittins")
SUBMIT = "/opt/venv/bin/penstock"


def as_user(user: str, argv: list[str]) -> list[str]:
    """Return the command that runs another one as a user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv]


def plain(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival; nothing else."""
    return as_user(job.user, ["sh", "-euc", command])


def static(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival, in a scope in the slice of its user, which has a fixed part of the cores."""
    return _in_slice(f"static-{job.user}.slice", job, command)


def slices(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival, in a scope in the slice of its user; slices have equal weights."""
    return _in_slice(f"mix-{job.user}.slice", job, command)


def _in_slice(slice_: str, job: Job, command: str) -> list[str]:
    scope = ["systemd-run", "--quiet", "--scope", f"--slice={slice_}"]
    return [*scope, f"--uid={job.user}", f"--gid={job.user}", "sh", "-euc", command]


def master_settings(way: str) -> dict[str, str]:
    """Return what the master is configured with in a way of Penstock, beyond what is installed."""
    order = way.removeprefix("penstock").removeprefix("-").removesuffix("known").removesuffix("-")
    return {"ordering": order} if order else {}


def exists(way: str) -> bool:
    """Return whether there is such a way."""
    return way in WAYS or (way.startswith("penstock-") and master_settings(way)["ordering"] in ORDERS)


def make_slices(cores: int) -> None:
    """Give the slices of each user the same weight (``slices``), and an equal part of the cores (``static``)."""
    for user in USERS:
        _set(f"mix-{user}.slice", "CPUWeight=100")
        _set(f"static-{user}.slice", f"CPUQuota={100 * cores / len(USERS):.0f}%")


def _set(slice_: str, property_: str) -> None:
    subprocess.run(["systemctl", "set-property", "--runtime", slice_, property_], check=True)


def penstock(socket: Path) -> Start:
    """Return the way of an agent's users: a job file, and ``penstock submit``."""

    def start(job: Job, directory: Path, command: str) -> list[str]:
        file = directory / "job.toml"
        task = f"[[task]]\nname = {json.dumps(job.kind)}\ncommand = {json.dumps(command)}\n"
        file.write_text(f"name = {json.dumps(job.application)}\n\n{task}", encoding="ascii")
        submit = f"PENSTOCK_SOCKET={shlex.quote(str(socket))} exec {SUBMIT} submit --quiet {shlex.quote(str(file))}"
        return as_user(job.user, ["sh", "-c", f"{submit} >{shlex.quote(str(directory / 'submitted'))}"])

    return start
