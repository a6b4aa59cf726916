"""The requirements of a host to be measured, checked before anything is changed: each fault is a line with its
remedy.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from bench.mix import link, slurm
from bench.mix.inputs import MAKING, PROGRAM, TABLES
from bench.mix.jobs import USERS
from bench.mix.layer import WHEELS
from bench.mix.through_penstock import COMMAND
from bench.mix.ways import TOP_SLICES

_CHECKOUT = Path(__file__).parents[2]
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "cpuset", "io", "memory")
#: Program → the Debian package that brings it.
_PROGRAMS = {
    "ar": "binutils", "cc": "gcc", "ip": "iproute2", "make": "make", "setpriv": "util-linux", "tc": "iproute2",
    "useradd": "passwd", "userdel": "passwd", "xz": "xz-utils",
}  # fmt: skip
_HEADER = Path("/usr/include/stdio.h")
#: Module → the wheel that brings it.
_DUCKDB, _DASK, _DISTRIBUTED = WHEELS
_MODULES = {"duckdb": _DUCKDB, "dask": _DASK, "pandas": _DASK, "pyarrow": _DASK, "distributed": _DISTRIBUTED}
_LEAST_PROCESSORS = 2
#: The prefix of the directory that jobs write to.
ROUNDS = "penstock-mix-rounds-"
#: A host of 4 GiB, less the memory of its firmware and its kernel.
_LEAST_MEMORY_BYTES = 7 << 29
#: The largest sorts and their temporary files, at once.
_LEAST_FREE_BYTES = 5 << 30


@dataclass(frozen=True)
class Found:
    """The state of a host.

    ``controllers`` is None without cgroup v2; ``closed`` are directories that only some users can enter; ``left`` are
    remains of a run; ``others`` has names of the benchmark's, and is not its own.
    """

    is_root: bool
    controllers: frozenset[str] | None
    has_systemd: bool
    programs: frozenset[str]
    has_header: bool
    modules: frozenset[str]
    processors: int
    memory_bytes: int
    free_bytes: int
    has_tables: bool
    has_source: bool
    closed: tuple[Path, ...]
    left: tuple[str, ...]
    others: tuple[str, ...]
    own_slurm: tuple[str, ...]
    penstock: str


def look(directory: Path) -> Found:
    """Examine this host; ``directory`` is to have the inputs and the output of the jobs."""
    programs = [*_PROGRAMS, *slurm.PROGRAMS, "apt-get", "systemd-run", "tpchgen-cli"]
    there = next(each for each in (directory, *directory.parents) if each.exists())
    is_root = os.geteuid() == 0
    return Found(
        is_root=is_root,
        controllers=_controllers(_CGROUPS / "cgroup.controllers"),
        has_systemd=Path("/run/systemd/system").is_dir() and shutil.which("systemd-run") is not None,
        programs=frozenset(name for name in programs if _finds(name)),
        has_header=_HEADER.exists(),
        modules=frozenset(name for name in _MODULES if find_spec(name) is not None),
        processors=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        free_bytes=shutil.disk_usage(there).free,
        has_tables=(directory / TABLES).exists(),
        has_source=(directory / PROGRAM).exists(),
        closed=tuple(closed([_CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), there])),
        left=tuple(left(directory)),
        others=tuple(others(directory)),
        own_slurm=tuple(slurm.own_of_host()),
        penstock=_why_no_penstock() if is_root else "",
    )


def refusals(found: Found, ways: Sequence[str], directory: Path) -> list[str]:
    """Return a line for each thing that is missing for these ways. Pure."""
    return [
        *_of_system(found),
        *_of_programs(found),
        *_of_python(found),
        *_of_names(found, directory),
        *(of_slurm(found) if any(way in slurm.OVERSUBSCRIBE for way in ways) else ()),
    ]


def of_slurm(found: Found) -> list[str]:
    """Return a line for each reason why there can be no Slurm of the benchmark's."""
    lines = [f"Slurm has no {name} here: apt-get install {package}" for name, package in slurm.PROGRAMS.items()
             if name not in found.programs]  # fmt: skip
    if found.own_slurm:
        own = ", ".join(found.own_slurm)
        lines.append(
            f"this host uses Slurm itself ({own}), which stays as it is: leave out --ways slurm and slurm-shared"
        )
    return lines


def left(directory: Path) -> Iterator[str]:
    """Yield the benchmark's own files and units. While it does not run, these are remains of a run that was killed."""
    yield from (f"the user {user}" for user in users_of(directory))
    if Path("/run/netns", link.SPACE).exists():
        yield f"the network namespace {link.SPACE}"
    elif Path("/sys/class/net", link.OURS).exists():
        yield f"the network link {link.OURS}"
    yield from (f"the slice {slice_}" for slice_ in TOP_SLICES if (_CGROUPS / slice_).exists())
    yield from (f"the directory {work}" for prefix in (ROUNDS, MAKING) for work in directory.glob(f"{prefix}*"))
    if slurm.is_left():
        yield "Slurm's configuration"


def others(directory: Path) -> Iterator[str]:
    """Yield users and groups with names of the benchmark's that no run in this directory has made."""
    ours = users_of(directory)
    homes = {entry.pw_name: entry.pw_dir for entry in pwd.getpwall()}
    groups = {entry.gr_name for entry in grp.getgrall()}
    for user in USERS:
        if user in homes and user not in ours:
            yield f"the user {user} with its home in {homes[user]}"
        elif user in groups and user not in homes:
            yield f"the group {user}"


def users_of(directory: Path) -> dict[str, int]:
    """Return names and numbers of users that a run in this directory has made: their homes are in its directory."""
    begins = str(directory / ROUNDS)
    entries = [entry for entry in pwd.getpwall() if entry.pw_name in USERS]
    return {entry.pw_name: entry.pw_uid for entry in entries if entry.pw_dir.startswith(begins)}


def closed(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the directories on the way to these that other users cannot enter, and those of these they cannot read."""
    seen: set[Path] = set()
    for path in paths:
        for each in (path.absolute(), *path.absolute().parents):
            wanted = stat.S_IXOTH | (stat.S_IROTH if each == path.absolute() else 0)
            if each not in seen and wanted & ~each.stat().st_mode:
                yield each
            seen.add(each)


def _controllers(file: Path) -> frozenset[str] | None:
    try:
        return frozenset(file.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return None


def _finds(program: str) -> bool:
    """Return whether a program is on the path or beside this Python, as ``tpchgen-cli`` may be."""
    return shutil.which(program) is not None or Path(sys.executable).with_name(program).exists()


def _why_no_penstock() -> str:
    """Return why a Penstock of the benchmark's cannot run: it is not installed, or another one runs."""
    if not Path(COMMAND).exists():
        return f"there is no {COMMAND}: {_pip(f'{_CHECKOUT}[agent,master]', '--editable')}"
    asked = subprocess.run([COMMAND, "uninstall", "--dry-run"], capture_output=True, text=True, check=False)
    said = asked.stderr.strip().splitlines() or [f"`penstock uninstall --dry-run` has status {asked.returncode}"]
    return f"Penstock may not run beside another one: {said[-1]}" if asked.returncode != 0 else ""


def _pip(what: str, *options: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *options, what])


def _of_system(found: Found) -> Iterator[str]:
    if not found.is_root:
        yield "users, slices and a network namespace are made by root only: run it with sudo"
    if found.controllers is None:
        yield f"there is no cgroup v2 in {_CGROUPS}: boot with systemd.unified_cgroup_hierarchy=1"
    elif missing := [name for name in _CONTROLLERS if name not in found.controllers]:
        names = ", ".join(missing)
        yield f"cgroup v2 has no {names}: boot with cgroup_enable=memory and without controllers of v1"
    if not found.has_systemd:
        yield "systemd does not run here, which makes slices and scopes: measure in the machine, without --host"
    if found.processors < _LEAST_PROCESSORS:
        yield f"{found.processors} processor, {_LEAST_PROCESSORS} are needed: take a larger host"
    if found.memory_bytes < _LEAST_MEMORY_BYTES:
        yield f"{found.memory_bytes / (1 << 30):.1f} GiB of memory, 4 are needed: take a larger host"


def _of_programs(found: Found) -> Iterator[str]:
    missing: dict[str, list[str]] = {}
    for name, package in _PROGRAMS.items():
        if name not in found.programs:
            missing.setdefault(package, []).append(name)
    for package, names in missing.items():
        yield f"there is no {', '.join(names)}: apt-get install {package}"
    if not found.has_header:
        yield f"there is no {_HEADER}: apt-get install libc6-dev"
    if not found.has_source and "apt-get" not in found.programs:
        yield f"there is no apt-get, which fetches Lua's source: unpack that (lua.org/ftp) as `{PROGRAM}` of --host DIR"


def _of_python(found: Found) -> Iterator[str]:
    for name, wheel in _MODULES.items():
        if name not in found.modules:
            yield f"{sys.executable} has no {name}: {_pip(wheel)}"
    if not found.has_tables and "tpchgen-cli" not in found.programs:
        yield f"there is no tpchgen-cli, which makes the tables: {_pip('tpchgen-cli>=3')}"
    if found.penstock:
        yield found.penstock


def _of_names(found: Found, directory: Path) -> Iterator[str]:
    if found.free_bytes < _LEAST_FREE_BYTES:
        free, least = found.free_bytes / (1 << 30), _LEAST_FREE_BYTES >> 30
        yield f"{directory} has {free:.1f} GiB free, {least} are needed: name another directory (--host DIR)"
    for path in found.closed:
        yield f"other users cannot enter {path}, and jobs run as others: chmod o+rx {path}, or work elsewhere"
    if found.left:
        remedy = shlex.join([sys.executable, "-m", "bench.mix.host", str(directory)])
        yield f"{', '.join(found.left)} is there already; what a run that was killed has left goes with: {remedy}"
    if found.others:
        names, remedy = ", ".join(found.others), "name the --host DIR of the run that made it, or take another host"
        yield f"{names} is there already, not by a run in {directory}, and stays: {remedy}"
