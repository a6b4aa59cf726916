"""Select an I/O scheduler that divides disks by weight, if the operator wants that; and undo it.

Debian's kernels give virtual and NVMe disks ``none`` and others ``mq-deadline``: with both, ``io.weight`` has no
effect. bfq (Linux 4.12, a module) divides a disk's time by weight (docs/kernel-disks.md).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from agent.cgroups.devices.blocks import SYS_BLOCK
from agent.cgroups.weight import scheduler
from penstock.durable import replace_file

#: One queue at a time, and the promised queue is waited for as long as a busy processor may keep it: with bfq's
#: defaults, ten writers through the page cache leave a regular reader half of its rate without them, with these
#: settings 98 % (docs/benchmarks/kernel.md). They disappear with the scheduler. ``low_latency`` stays unchanged,
#: although it raises the weight of new processes: writing it makes bfq visit the groups of all cgroups, and Linux
#: 7.2.13 panicked there on a cgroup without a bfq group (block/bfq-iosched.c, bfq_end_wr_async).
_SETTINGS = {"bfq": {"strict_guarantees": "1", "slice_idle_us": "20000"}}
#: The requests that bfq can choose from. With a scheduler, the kernel lets twice as many wait as the disk does at once
#: (seen on Linux 7.2): two, where that is one. Who comes third then waits for a place in line whatever its weight, and
#: a regular reader beside ten opportunistic ones kept 18 % (docs/benchmarks/kernel.md). Another scheduler brings its
#: own number.
_IN_LINE = 128


def kept(state_dir: Path) -> Path:
    """Return the file in which an agent keeps each disk's former scheduler."""
    return state_dir / "disk-schedulers.json"


def choose(wanted: str, disks: Iterable[str], before: Path, sys_block: Path = SYS_BLOCK) -> dict[str, str]:
    """Select a scheduler on each disk; ``keep`` restores those from before an agent changed them.

    Args:
        before: the file that keeps each disk's former scheduler.

    Returns:
        Disk → why it has another.
    """
    if wanted == "keep":
        return restore(before, sys_block)
    failed: dict[str, str] = {}
    had = _read(before)
    for disk in disks:
        try:
            present = scheduler(disk, sys_block) or "none"
            if present == wanted and disk not in had:  # otherwise its settings may still be missing
                continue
            if wanted not in _offered(disk, sys_block):
                subprocess.run(["modprobe", wanted], check=False, capture_output=True)
            had = {disk: present, **had}
            replace_file(before, json.dumps(had).encode())  # first, so that every change can be undone
            _file(disk, sys_block).write_text(wanted, encoding="ascii")
            for name, value in _SETTINGS.get(wanted, {}).items():
                (sys_block / disk / "queue" / "iosched" / name).write_text(value, encoding="ascii")
            nr_requests = sys_block / disk / "queue" / "nr_requests"
            if wanted == "bfq" and int(nr_requests.read_text(encoding="ascii")) < _IN_LINE:
                nr_requests.write_text(str(_IN_LINE), encoding="ascii")
        except OSError as error:
            failed[disk] = f"{error.strerror}; remedy: modprobe {wanted}, or disk_scheduler = keep"
    return failed


def restore(before: Path, sys_block: Path = SYS_BLOCK) -> dict[str, str]:
    """Restore the former schedulers; missing disks are skipped. Returns disk → why that failed."""
    failed: dict[str, str] = {}
    for disk, former in _read(before).items():
        try:
            _file(disk, sys_block).write_text(former, encoding="ascii")
        except FileNotFoundError:
            continue
        except OSError as error:
            failed[disk] = str(error.strerror)
    if not failed:
        before.unlink(missing_ok=True)
    return failed


def _file(disk: str, sys_block: Path) -> Path:
    return sys_block / disk / "queue" / "scheduler"


def _offered(disk: str, sys_block: Path) -> list[str]:
    return _file(disk, sys_block).read_text(encoding="ascii").replace("[", "").replace("]", "").split()


def _read(before: Path) -> dict[str, str]:
    try:
        return dict(json.loads(before.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}
