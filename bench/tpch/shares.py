"""A static split: a share of the host's cores that a job may use and no more, however idle the others are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PERIOD_US = 100_000
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_EMPTY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Share:
    """``how`` it is enforced: ``quota`` in the cgroup ``directory``, or by ``affinity`` to whole ``cores``."""

    how: str
    directory: str = ""
    cores: tuple[int, ...] = ()

    def join(self) -> None:
        """Take in the calling process and all that it starts from now on."""
        if self.directory:
            (Path(self.directory) / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        elif self.cores:
            os.sched_setaffinity(0, self.cores)


#: No share at all: the whole host, like all others.
WHOLE = Share("")


@contextlib.contextmanager
def split(jobs: int, cores: int) -> Iterator[list[Share]]:
    """Make as many equal shares; remove them at the end of the block.

    Where neither generation of cgroups can bind a quota, each job gets whole cores, in turn: with more jobs than cores
    several share one, which is no static split any more, and ``how`` has that.
    """
    made = [_quota(f"penstock-tpch-{os.getpid()}-{index}", cores / jobs) for index in range(jobs)]
    usable = sorted(os.sched_getaffinity(0))
    width = max(1, cores // jobs)
    try:
        yield [
            Share("quota", str(directory))
            if directory is not None
            else Share("affinity", cores=tuple(usable[(index * width + part) % len(usable)] for part in range(width)))
            for index, directory in enumerate(made)
        ]
    finally:
        for directory in made:
            if directory is not None:
                _remove(directory)


def _quota(name: str, cores: float) -> Path | None:
    quota_us = int(cores * _PERIOD_US)
    with contextlib.suppress(OSError):
        return _limited(_V1 / name, {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota_us)})
    with contextlib.suppress(OSError):
        if "cpu" in (_V2 / "cgroup.subtree_control").read_text(encoding="ascii").split():
            return _limited(_V2 / name, {"cpu.max": f"{quota_us} {_PERIOD_US}"})
    return None


def _limited(directory: Path, limits: dict[str, str]) -> Path:
    directory.mkdir()
    try:
        for name, value in limits.items():
            (directory / name).write_text(value, encoding="ascii")
    except OSError:
        directory.rmdir()
        raise
    return directory


def _remove(directory: Path) -> None:
    """A cgroup is busy until the last of its processes has been reaped."""
    give_up = time.monotonic() + _EMPTY_TIMEOUT_S
    while True:
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            return
