"""How a job is started by plain Linux, or in a systemd slice of its user. Slurm (``slurm.py``) and Penstock
(``through_penstock.py``) have files of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.mix.jobs import USERS, Job

#: From a job, its directory and its shell command to the process that ends when the job does.
Start = Callable[[Job, Path, str], list[str]]
CLAIRVOYANT = "penstock-clairvoyant"
KNOWN, UNRESERVED = "-known", "-unreserved"
WAYS = ("plain", "slices", "static", "slurm", "slurm-shared", "penstock", "penstock-known", CLAIRVOYANT)
#: Penstock in another order than the default one is a way of its own, too: ``penstock-las_mq``.
#: ``-known``: recurring jobs have run once before; ``-unreserved``: nobody reserves for the job with a deadline.
ORDERS = ("fifo", "ejf", "srjf", "las_mq", "las", "fair", "drf", "gittins")
#: The slices above those of the users (systemd.slice(5): a dash in the name is a level).
TOP_SLICES = ("penstockmix.slice", "staticpenstockmix.slice")
#: The words that users put before a command that should delay no others.
NICE = ("nice", "-n", "19")


def as_user(user: str, argv: list[str]) -> list[str]:
    """Return the command that runs another one as a user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv]


def plain(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival; one on leftovers with the lowest nice value."""
    return as_user(job.user, [*(NICE if job.leftovers else ()), "sh", "-euc", command])


def equal_slice(user: str) -> str:
    """Return the slice of a user in ``slices``, below one of :data:`TOP_SLICES`."""
    return f"{user}.slice"


def fixed_slice(user: str) -> str:
    """Return the slice of a user in ``static``."""
    return f"static{user}.slice"


def static(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival, in a scope in the slice of its user, which has a fixed part of the cores."""
    return _in_slice(fixed_slice(job.user), job, command)


def slices(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job on arrival, in a scope in the slice of its user; slices have equal weights."""
    return _in_slice(equal_slice(job.user), job, command)


def _in_slice(slice_: str, job: Job, command: str) -> list[str]:
    """A scope keeps to the memory that the job's user promised; leftovers have the weight ``idle`` in their slice."""
    scope = ["systemd-run", "--quiet", "--scope", "--collect", f"--slice={slice_}"]
    if job.memory_bytes:
        scope.append(f"--property=MemoryMax={job.memory_bytes}")
    if job.leftovers:
        scope.append("--property=CPUWeight=idle")
    return [*scope, f"--uid={job.user}", f"--gid={job.user}", "sh", "-euc", command]


def master_settings(way: str) -> dict[str, str]:
    """Return what the master is configured with in a way of Penstock, beyond what is installed."""
    if way.removesuffix(UNRESERVED) == CLAIRVOYANT:
        return {"ordering": "srjf"}
    order = way.removeprefix("penstock")
    for ending in (UNRESERVED, KNOWN):
        order = order.removesuffix(ending)
    order = order.removeprefix("-")
    return {"ordering": order} if order else {}


def exists(way: str) -> bool:
    """Return whether there is such a way."""
    by_name = way.removesuffix(UNRESERVED)
    if way != by_name and not by_name.startswith("penstock"):
        return False
    return by_name in WAYS or (way.startswith("penstock-") and master_settings(way).get("ordering") in ORDERS)


def make_slices(cores: int) -> None:
    """Give the slices of each user the same weight (``slices``), and an equal part of the cores (``static``)."""
    for user in USERS:
        _set(equal_slice(user), "CPUWeight=100")
        _set(fixed_slice(user), f"CPUQuota={100 * cores / len(USERS):.0f}%")


def _set(slice_: str, property_: str) -> None:
    subprocess.run(["systemctl", "set-property", "--runtime", slice_, property_], check=True)
