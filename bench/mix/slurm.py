"""Slurm on one host: Debian's packages, cgroup v2, backfill. Its users ask for the cores that their jobs can use."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.mix.jobs import Job
from bench.mix.kinds import DASK
from bench.mix.ways import NICE, as_user

_ETC = Path("/etc/slurm")
_FILES = (_ETC / "slurm.conf", _ETC / "cgroup.conf")
#: The directories that Slurm writes while it runs here.
_STATE, _SPOOL = Path("/var/lib/slurm/penstockmix"), Path("/var/lib/slurm/penstockmix-node")
_LOGS, _LOG = Path("/var/log/slurm"), "penstockmix-*.log"
_DAEMONS = ("slurmctld", "slurmd")
#: Where ``slurmd`` keeps the steps of its jobs, with the node's name in front of it (22.05); it outlives ``slurmd``.
_STEPS = "slurmstepd.scope"
#: Program → the Debian package that brings it.
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
#: For each way: its partition's setting for cores that a job has.
OVERSUBSCRIBE = {"slurm": "NO", "slurm-shared": "FORCE:4"}
#: Of a kind that computes with more than one process.
_CORES = {"compile": 2, DASK: 2}
#: Memory of jobs whose user promises none: their most, with some to spare.
_MEMORY_MIB, _MEMORY_OF_KIND_MIB = 512, {DASK: 1024}
#: Of all jobs: they take far less, but users of Slurm often request a round number.
_LIMIT_MIN = 10
_READY_TIMEOUT_S = 60.0
#: A line of each file that is ours: no other one is written over, or removed.
_MARK = "# Written by Penstock's `python -m bench.mix`, which removes it."
_CONF = f"""
{_MARK}
ClusterName=penstockmix
SlurmctldHost={{host}}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
StateSaveLocation={{state}}
SlurmdSpoolDir={{spool}}
SlurmctldLogFile={{logs}}/penstockmix-slurmctld.log
SlurmdLogFile={{logs}}/penstockmix-slurmd.log
NodeName={{host}} NodeAddr=127.0.0.1 CPUs={{cores}} RealMemory={{memory_mib}} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe={{oversubscribe}}
"""
_CGROUP = f"{_MARK}\nCgroupPlugin=cgroup/v2\nConstrainCores=yes\nConstrainRAMSpace=yes\n"


class SlurmError(Exception):
    """It does not come up; the message is its last output."""


@contextlib.contextmanager
def running(way: str) -> Iterator[None]:
    """Slurm with this way's partition, ready inside the block; stopped at its end.

    Raises:
        SlurmError: its node is not ready in time.
    """
    host, cores = socket.gethostname(), os.cpu_count() or 1
    _ETC.mkdir(exist_ok=True)
    conf, cgroup = _FILES
    memory_mib = psutil.virtual_memory().total >> 20
    written = _CONF.format(
        host=host, cores=cores, memory_mib=memory_mib, oversubscribe=OVERSUBSCRIBE[way],
        state=_STATE, spool=_SPOOL, logs=_LOGS,
    )  # fmt: skip
    conf.write_text(written, encoding="ascii")
    cgroup.write_text(_CGROUP, encoding="ascii")
    # A host may have munge running for others.
    ours = [unit for unit in ("munge", *_DAEMONS) if not is_active(unit)]
    try:
        for unit in ours:
            subprocess.run(["systemctl", "start", unit], check=False)
        _wait()
        yield
    finally:
        subprocess.run(["systemctl", "stop", *reversed(ours)], check=False)


def is_active(unit: str) -> bool:
    """Return whether systemd runs a unit."""
    return (
        subprocess.run(["systemctl", "--quiet", "is-active", unit], stderr=subprocess.DEVNULL, check=False).returncode
        == 0
    )


def is_left() -> bool:
    """Return whether a configuration of :func:`running` is there, outside of it that of a run that was killed."""
    return _is_ours(_FILES[0])


def _is_ours(file: Path) -> bool:
    return file.exists() and _MARK in file.read_text(encoding="utf-8", errors="replace").splitlines()


def own_of_host() -> list[str]:
    """Return the signs that the host uses Slurm itself: its configuration, and daemons that run."""
    files = [str(file) for file in _FILES if file.exists() and not _is_ours(file)]
    daemons = () if is_left() else _DAEMONS
    return files + [f"{unit}.service" for unit in daemons if shutil.which("systemctl") and is_active(unit)]


def remove() -> None:
    """Remove everything that :func:`running` has started and written; the host has no other Slurm."""
    scopes = (_STEPS, f"{socket.gethostname()}_{_STEPS}")
    for command in (["stop", *_DAEMONS, *scopes], ["reset-failed", *scopes]):
        subprocess.run(["systemctl", *command], stderr=subprocess.DEVNULL, check=False)
    for file in (*_LOGS.glob(_LOG), *filter(_is_ours, reversed(_FILES))):  # is_left asks for the last one
        file.unlink(missing_ok=True)
    for directory in (_STATE, _SPOOL):
        shutil.rmtree(directory, ignore_errors=True)


def _wait() -> None:
    until, said = time.monotonic() + _READY_TIMEOUT_S, ""
    while time.monotonic() < until:
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).strip()
        if done.returncode == 0 and said == "idle":
            return
        time.sleep(0.5)
    logs = subprocess.run(f"tail -n 20 {_LOGS}/{_LOG}", shell=True, capture_output=True, text=True, check=False)
    raise SlurmError(f"slurm is not ready: {said}\n{logs.stdout}")


def slurm(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job by ``srun``, which waits for its cores; a job on leftovers behind all others, and nice."""
    memory_mib = job.memory_bytes >> 20 or _MEMORY_OF_KIND_MIB.get(job.kind, _MEMORY_MIB)
    asks = [f"--cpus-per-task={_CORES.get(job.kind, 1)}", f"--mem={memory_mib}"]
    asks += [f"--time={_LIMIT_MIN}", f"--job-name={job.kind}", *(["--nice=10000"] if job.leftovers else [])]
    argv = [*(NICE if job.leftovers else ()), "sh", "-euc", command]
    return as_user(job.user, ["srun", "--quiet", "--ntasks=1", *asks, *argv])
