"""Trees of ours in a cgroup v2 hierarchy, and what runs in them. Plain files: an agent's own view is of one tree."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path

#: What an agent and its launcher make in a tree's root.
_PARTS = frozenset({"containers", "holder", "daemons"})
#: Where the launcher's unit has its tree (systemd/penstock-containers.service).
_UNIT = "penstock.slice/penstock-containers.service"
#: How long what was killed may take to be gone.
END_TIMEOUT_S = 60


def roots(mount: Path) -> list[Path]:
    """The roots that agents have made at the top, and that of the launcher's unit."""
    made = [path for path in sorted(mount.glob("penstock-*")) if is_root(path)]
    unit = mount / _UNIT
    return [*made, unit] if is_root(unit) else made


def is_root(path: Path) -> bool:
    """Whether an agent or launcher made a tree there: its parts, and nothing else, are in it."""
    parts = {child.name for child in below(path)}
    return bool(parts) and parts <= _PARTS


def below(cgroup: Path) -> list[Path]:
    """The cgroups directly in it."""
    return [child for child in sorted(cgroup.iterdir()) if child.is_dir()] if cgroup.is_dir() else []


def running(root: Path) -> list[Path]:
    """The containers of a tree in which there are processes."""
    return [container for container in below(root / "containers") if populated(container)]


def launchers(root: Path) -> list[int]:
    """The processes that hold a tree."""
    return _pids(root / "holder")


def populated(cgroup: Path) -> bool:
    """Whether a process is in it or below."""
    try:
        return "populated 1" in (cgroup / "cgroup.events").read_text(encoding="ascii")
    except OSError:
        return False  # it vanished


def kill(cgroup: Path) -> None:
    """SIGKILL to all in it and below, and wait until they are gone.

    Raises:
        TimeoutError: they are not: something hangs in the kernel.
    """
    try:
        _write(cgroup / "cgroup.kill", b"1")  # 5.14
    except FileNotFoundError:
        if cgroup.is_dir():
            _kill_each(cgroup)
    if not cgroup.is_dir():
        return
    with (cgroup / "cgroup.events").open("rb", buffering=0) as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while b"populated 1" in events.read(4096):
            if not watch.poll(END_TIMEOUT_S * 1000):
                raise TimeoutError(f"processes in {cgroup} do not end")
            events.seek(0)


def remove(root: Path) -> None:
    """Remove a tree; the BPF programs of its cgroups go with them. What is a unit's own stays with systemd.

    Raises:
        OSError: EBUSY, a process is in it.
    """
    for child in below(root):
        remove(child)
    if root.is_dir() and not root.name.endswith((".service", ".scope")):
        root.rmdir()


def end(pid: int) -> None:
    """SIGTERM to a launcher, on which it ends what it owns and removes a tree that it made; and wait for it.

    Raises:
        TimeoutError: it does not end.
        PermissionError: it is another user's.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not select.select([pidfd], [], [], END_TIMEOUT_S)[0]:
            raise TimeoutError(f"the launcher (process {pid}) does not end")
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def _kill_each(cgroup: Path) -> None:
    """Frozen, nobody forks between reading and killing, and the killed die all the same."""
    _write(cgroup / "cgroup.freeze", b"1")  # 5.2
    for each in (cgroup, *(path for path in cgroup.rglob("*") if path.is_dir())):
        for pid in _pids(each):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    _write(cgroup / "cgroup.freeze", b"0")


def _write(file: Path, text: bytes) -> None:
    """Not by Path.write_bytes: that would create what is missing, which is EACCES here and not ENOENT."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _pids(cgroup: Path) -> list[int]:
    try:
        return [int(pid) for pid in (cgroup / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return []  # it vanished
