"""The default content and the accepted writes of each cgroup v2 file, for the fake tree.

The behaviour is that of Linux 6.1; docstrings begin with the name of the kernel's function.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

PAGE_BYTES = 4096
#: The number of processors of the pretended host.
CPUS = 2
_UINT_MAX = (1 << 32) - 1
_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class Refused(Exception):  # noqa: N818 - the kernel's answer
    """The kernel refuses the write."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.errno = number


Writer = Callable[[str, dict[str, str], frozenset[str]], str]
"""New text, the cgroup's files and the host's disks → the file's content after the write."""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(errno.EINVAL) from None


def _number(lowest: int, highest: int, otherwise: int) -> Writer:
    """Return a writer for a whole number within bounds; ``otherwise`` is the errno outside them."""

    def write(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
        value = _integer(text)
        if not lowest <= value <= highest:
            raise Refused(otherwise)
        return f"{value}\n"

    return write


def _max_or_bytes(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """page_counter_memparse: a number with a suffix or ``max``, rounded down to pages."""
    if text == "max":
        return "max\n"
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    value = _integer(text[:-1] if factor > 1 else text) * factor
    if value < 0:
        raise Refused(errno.EINVAL)
    return f"{value // PAGE_BYTES * PAGE_BYTES}\n"


def _cpu_max(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """cpu_max_write and tg_set_cfs_bandwidth: quota and period of at least 1 ms, the period of at most 1 s."""
    quota, *rest = text.split() or [""]
    period = _integer(rest[0]) if rest else int(files["cpu.max"].split()[1])
    if not 1_000 <= period <= 1_000_000 or (quota != "max" and _integer(quota) < 1_000):
        raise Refused(errno.EINVAL)
    if quota != "max" and int(files.get("cpu.max.burst", "0")) > int(quota):
        raise Refused(errno.EINVAL)
    return f"{quota} {period}\n"


def _cpu_max_burst(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """cpu_cfs_burst_write_u64 and tg_set_cfs_bandwidth: not more than the quota."""
    value = _integer(text)
    quota = files["cpu.max"].split()[0]
    if value < 0 or (quota != "max" and value > int(quota)):
        raise Refused(errno.EINVAL)
    return f"{value}\n"


def _cpu_weight(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """cpu_weight_write_u64, sched_group_set_shares: an idle cgroup has no weight."""
    value = _integer(text)
    if not 1 <= value <= 10_000:
        raise Refused(errno.ERANGE)
    if files.get("cpu.idle", "0").strip() == "1":
        raise Refused(errno.EINVAL)
    return f"{value}\n"


def _cpu_idle(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """sched_group_set_idle; leaving the class gives the default weight."""
    if text not in {"0", "1"}:
        raise Refused(errno.EINVAL)
    if text == "0" and files["cpu.idle"].strip() == "1":
        files["cpu.weight"] = "100\n"
    return f"{text}\n"


def parse_cpus(text: str) -> set[int]:
    """cpulist_parse: ``0-1,3``."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise Refused(errno.EINVAL)
        cpus.update(range(int(first), int(last or first) + 1))
    if cpus and max(cpus) >= CPUS:
        raise Refused(errno.ERANGE)
    return cpus


def format_cpus(cpus: set[int]) -> str:
    """Return the kernel's form of a list of processors: runs are joined."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _cpuset_cpus(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """update_cpumask."""
    return f"{format_cpus(parse_cpus(text))}\n"


def _weight(highest: int) -> Writer:
    """Return a writer for ``default N`` or ``N`` for all disks; weights of single disks are not supported."""

    def write(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
        value = _integer(text.removeprefix("default").strip())
        if not 1 <= value <= highest:
            raise Refused(errno.EINVAL)
        return f"default {value}\n"

    return write


def _pids_max(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """pids_max_write: at most PID_MAX_LIMIT."""
    if text != "max" and not 0 <= _integer(text) <= 4_194_304:
        raise Refused(errno.EINVAL)
    return f"{text}\n"


def _io_max(text: str, files: dict[str, str], disks: frozenset[str]) -> str:
    """tg_set_limit: one device per write; a device without any limit has no line."""
    device, *pairs = text.split() or [""]
    major, colon, minor = device.partition(":")
    if not (colon and major.isdigit() and minor.isdigit()):
        raise Refused(errno.EINVAL)
    if device not in disks:
        raise Refused(errno.ENODEV)
    lines = {line.split()[0]: line.split()[1:] for line in files["io.max"].splitlines()}
    limits = dict(pair.split("=") for pair in lines.get(device, ["rbps=max", "wbps=max", "riops=max", "wiops=max"]))
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or (value != "max" and not value.isdigit()):
            raise Refused(errno.EINVAL)
        if value == "0":
            raise Refused(errno.ERANGE)
        if key not in limits or value == "1":
            raise Refused(errno.EINVAL)
        limits[key] = "max" if key.endswith("iops") and value != "max" and int(value) >= _UINT_MAX else value
    lines[device] = [f"{key}={value}" for key, value in limits.items()]
    if set(limits.values()) == {"max"}:
        del lines[device]
    return "".join(f"{device} {' '.join(pairs)}\n" for device, pairs in lines.items())


WRITERS: dict[str, Writer] = {
    "cpu.max": _cpu_max,
    "cpu.max.burst": _cpu_max_burst,
    "cpu.weight": _cpu_weight,
    "cpu.idle": _cpu_idle,
    "cpuset.cpus": _cpuset_cpus,
    "io.bfq.weight": _weight(1_000),
    "io.max": _io_max,
    "io.weight": _weight(10_000),
    "memory.high": _max_or_bytes,
    "memory.max": _max_or_bytes,
    "memory.low": _max_or_bytes,
    "memory.min": _max_or_bytes,
    "memory.swap.max": _max_or_bytes,
    "memory.oom.group": _number(0, 1, errno.EINVAL),
    "pids.max": _pids_max,
}

_PRESSURE = "".join(f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" for kind in ("some", "full"))
_MEMORY_EVENTS = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"
#: Every file with its content in a new cgroup. Computed files (cgroup.procs, cgroup.events, …) are empty here.
DEFAULTS: dict[str, str] = {
    "cgroup.controllers": "",
    "cgroup.events": "",
    "cgroup.freeze": "0\n",
    "cgroup.kill": "",
    "cgroup.procs": "",
    "cgroup.subtree_control": "",
    "cpu.idle": "0\n",
    "cpu.max": "max 100000\n",
    "cpu.max.burst": "0\n",
    "cpu.pressure": _PRESSURE,
    "cpu.stat": (
        "usage_usec 0\nuser_usec 0\nsystem_usec 0\n"
        "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n"
    ),
    "cpu.weight": "100\n",
    "cpuset.cpus": "\n",
    "cpuset.cpus.effective": "",
    "io.max": "",
    "io.pressure": _PRESSURE,
    "io.stat": "",
    "io.weight": "default 100\n",
    "memory.current": "0\n",
    "memory.events": _MEMORY_EVENTS,
    "memory.events.local": _MEMORY_EVENTS,
    "memory.high": "max\n",
    "memory.low": "0\n",
    "memory.max": "max\n",
    "memory.min": "0\n",
    "memory.oom.group": "0\n",
    "memory.peak": "0\n",
    "memory.pressure": _PRESSURE,
    "memory.reclaim": "",
    "memory.stat": (
        "anon 0\nfile 0\nshmem 0\nfile_dirty 0\nfile_writeback 0\n"
        "inactive_anon 0\nactive_anon 0\ninactive_file 0\nactive_file 0\nunevictable 0\n"
    ),
    "memory.swap.max": "max\n",
    "pids.current": "0\n",
    "pids.max": "max\n",
}
