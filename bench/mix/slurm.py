"""Slurm on one host: Debian's packages, cgroup v2, backfill. Its users ask for the cores that their jobs can use."""

from __future__ import annotations

import contextlib
import os
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
_UNITS = ("munge", "slurmctld", "slurmd")
#: For each way: what its partition does with cores that a job has.
OVERSUBSCRIBE = {"slurm": "NO", "slurm-shared": "FORCE:4"}
#: Of a kind that computes with more than one process.
_CORES = {"compile": 2, DASK: 2}
#: Memory of jobs whose user promises none: what they may take, with some to spare.
_MEMORY_MIB, _MEMORY_OF_KIND_MIB = 512, {DASK: 1024}
#: Of all jobs: they take far less, and a user of Slurm who does not know better asks for a round number.
_LIMIT_MIN = 10
_READY_TIMEOUT_S = 60.0
_CONF = """
ClusterName=mix
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
StateSaveLocation=/var/lib/slurm/mix
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory_mib} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe={oversubscribe}
"""
_CGROUP = "CgroupPlugin=cgroup/v2\nConstrainCores=yes\nConstrainRAMSpace=yes\n"


class SlurmError(Exception):
    """It does not come up; what it said last."""


@contextlib.contextmanager
def running(way: str) -> Iterator[None]:
    """Slurm with this way's partition, ready inside the block; stopped at its end.

    Raises:
        SlurmError: its node is not ready in time.
    """
    host, cores = socket.gethostname(), os.cpu_count() or 1
    _ETC.mkdir(exist_ok=True)
    memory_mib = psutil.virtual_memory().total >> 20
    conf = _CONF.format(host=host, cores=cores, memory_mib=memory_mib, oversubscribe=OVERSUBSCRIBE[way])
    (_ETC / "slurm.conf").write_text(conf, encoding="ascii")
    (_ETC / "cgroup.conf").write_text(_CGROUP, encoding="ascii")
    try:
        for unit in _UNITS:
            subprocess.run(["systemctl", "start", unit], check=False)
        _wait()
        yield
    finally:
        subprocess.run(["systemctl", "stop", *reversed(_UNITS)], check=False)


def _wait() -> None:
    until, said = time.monotonic() + _READY_TIMEOUT_S, ""
    while time.monotonic() < until:
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).strip()
        if done.returncode == 0 and said == "idle":
            return
        time.sleep(0.5)
    logs = subprocess.run("tail -n 20 /var/log/slurm/*.log", shell=True, capture_output=True, text=True, check=False)
    raise SlurmError(f"slurm is not ready: {said}\n{logs.stdout}")


def slurm(job: Job, directory: Path, command: str) -> list[str]:
    """Start a job by ``srun``, which waits for its cores; what may run on leftovers behind all others, and nice."""
    memory_mib = job.memory_bytes >> 20 or _MEMORY_OF_KIND_MIB.get(job.kind, _MEMORY_MIB)
    asks = [f"--cpus-per-task={_CORES.get(job.kind, 1)}", f"--mem={memory_mib}"]
    asks += [f"--time={_LIMIT_MIN}", f"--job-name={job.kind}", *(["--nice=10000"] if job.leftovers else [])]
    argv = [*(NICE if job.leftovers else ()), "sh", "-euc", command]
    return as_user(job.user, ["srun", "--quiet", "--ntasks=1", *asks, *argv])
