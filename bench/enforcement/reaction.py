"""From the allocation that goes too far to memory free again: Penstock, and systemd-oomd at its defaults.

One container holds its promised memory; another grows past the threshold and would stay there. It reports the time when
it touches the byte that exceeds the threshold; from outside the memory of all is read a thousand times a second.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.enforcement.bed import PYTHON, WORK, Bed
from bench.enforcement.figures import Figure, Reaction
from penstock.model import EndedBy

RUNS = 25
BAR_S = 0.25
CALM_S = 60.0
_MIB = 1 << 20
OFFERED_BYTES, T_PREEMPT = 384 * _MIB, 0.9
SETTINGS = {"memory_bytes": OFFERED_BYTES, "t_preempt_memory": T_PREEMPT, "t_alloc": 2}
_LIMIT_BYTES = int(OFFERED_BYTES * T_PREEMPT)
_PROMISED_BYTES, _BLOAT_BYTES = 128 * _MIB, 300 * _MIB
#: The kernel's tables for touched memory, and the memory that it charges ahead: that much earlier the limit is crossed.
_TABLES_BYTES = 2 * _MIB
_LOOK_S = 0.001
_PATIENCE_S, _OOMD_PATIENCE_S = 20.0, 60.0
_OOMD_RUNS = 2
_SLICE = "penstockbench.slice"


def penstock(bed: Bed, runs: int = RUNS) -> Iterator[Figure]:
    """Check that the container past the threshold is killed, and that the one with promised memory lives."""
    with bed.cleared():
        chill = bed.start("hold", _PROMISED_BYTES, memory_bytes=_PROMISED_BYTES)
        chill.line("held")
        took, by = zip(*(react(bed) for _ in range(runs)), strict=True)
        calm = stays_calm(bed)
        lived = bed.shown(chill)["state"] == "running"
    note = (
        f"{by.count(EndedBy.PREEMPTED)} of {runs} by Penstock, the rest by the kernel; "
        f"{f'calm for {CALM_S:.0f} s' if calm else '**not calm**'} afterwards; "
        f"what was promised {'lived' if lived else '**died**'}"
    )
    yield Reaction(what="Penstock", times_s=took, bar_s=BAR_S, note=note)


def stays_calm(bed: Bed) -> bool:
    """Return whether no container is preempted for a minute."""
    before = bed.status()["preemptions"]
    time.sleep(CALM_S)
    return bool(bed.status()["preemptions"] == before)


def react(bed: Bed) -> tuple[float | None, EndedBy | None]:
    """Make one run beside the present containers; return the seconds, and the part that ended it; None if memory was
    not free again in time.
    """
    bloat = bed.start("grow", _BLOAT_BYTES, opportunistic=True, memory_bytes=_BLOAT_BYTES)
    bloat.line("ready")
    current = bloat.cgroup.parent / "memory.current"
    bloat.tell(_LIMIT_BYTES - _TABLES_BYTES - int(current.read_text()))
    free_at = free_again(current, _LIMIT_BYTES, _PATIENCE_S)
    if free_at is None:
        return None, None
    return free_at - float(bloat.line("crossed").split()[1]), bloat.ended().by


def free_again(current: Path, limit: int, patience_s: float) -> float | None:
    """When a cgroup's memory was at most ``limit`` again, having been more: monotonic seconds."""
    file = os.open(current, os.O_RDONLY)
    over = False
    deadline = time.monotonic() + patience_s
    try:
        while (now := time.monotonic()) < deadline:
            used = int(os.pread(file, 32, 0))
            if over and used <= limit:
                return now
            over = over or used > limit
            time.sleep(_LOOK_S)
    finally:
        os.close(file)
    return None


def oomd() -> Iterator[Figure]:
    """The same load under systemd-oomd: its defaults look at pressure (60 % for 30 s) and, if there is any, at swap."""
    subprocess.run(["systemctl", "start", "systemd-oomd.service"], check=True)
    try:
        yield Reaction(
            what="systemd-oomd 252, ManagedOOMMemoryPressure=kill and ManagedOOMSwap=kill", times_s=(_oomd_reacts(),),
            note="without pressure and without swap it does not act",
        )  # fmt: skip
        times = tuple(_oomd_reacts(f"MemoryHigh={_LIMIT_BYTES}") for _ in range(_OOMD_RUNS))
        yield Reaction(
            what="the same, with MemoryHigh at the threshold", times_s=times,
            note="what grows is throttled meanwhile, and whoever else allocates in the slice",
        )  # fmt: skip
    finally:
        subprocess.run(["systemctl", "stop", "systemd-oomd.service", "systemd-oomd.socket"], check=True)


def _oomd_reacts(*properties: str) -> float | None:
    """Both in services below a slice that oomd watches."""
    slice_settings = ["ManagedOOMMemoryPressure=kill", "ManagedOOMSwap=kill", *properties]
    unit = Path("/run/systemd/system") / _SLICE
    unit.write_text("[Slice]\nMemoryAccounting=yes\n" + "".join(f"{line}\n" for line in slice_settings))
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    current = Path("/sys/fs/cgroup") / _SLICE / "memory.current"
    chill = _service("hold", _PROMISED_BYTES)
    bloat = _service("grow", _BLOAT_BYTES)
    try:
        _said(chill, "held")
        _said(bloat, "ready")
        assert bloat.stdin is not None
        bloat.stdin.write(f"{_LIMIT_BYTES - _TABLES_BYTES - int(current.read_text())}\n")
        bloat.stdin.flush()
        free_at = free_again(current, _LIMIT_BYTES, _OOMD_PATIENCE_S)
        return None if free_at is None else free_at - float(_said(bloat, "crossed").split()[1])
    finally:
        subprocess.run(["systemctl", "stop", _SLICE], check=True)
        for process in (chill, bloat):
            process.communicate()
        with contextlib.suppress(FileNotFoundError):
            unit.unlink()


def _service(*command: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--slice={_SLICE}", PYTHON, "-IS", str(WORK),
         *map(str, command)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _said(process: subprocess.Popen[str], prefix: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(prefix):
            return line
    raise RuntimeError(f"{process.args!r} ended without saying {prefix!r}")
