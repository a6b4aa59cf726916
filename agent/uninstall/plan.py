"""The things of Penstock on a host, in the order of their removal."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from agent import cgroup_root, disk_scheduler
from agent.config import AgentConfig
from agent.launcher import Launcher
from agent.network.htb import Htb, with_htb
from agent.uninstall import cgroups

#: The files that an agent and its launcher leave in their runtime directory, and in their state directory.
_RUNTIME = ("agent.sock", "stdio.sock", "launcher.sock", "launcher.log", "agent-runtime.lock")
_STATE = ("agent.lock", "journal", "outputs", "disk-schedulers.json")


class Refused(Exception):  # noqa: N818 - describes a state
    """Why nothing was done: one line for the operator."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A thing to remove; ``remove`` raises OSError if that fails. ``kills``: it is work that only ``kill`` includes."""

    what: str
    remove: Callable[[], object]
    kills: bool = False


def _roots_on_links() -> list[tuple[str, int]]:
    """Return name and index of each link that has a root qdisc of ours. BPF programs are removed with their cgroups."""

    def look(htb: Htb) -> list[tuple[str, int]]:
        ours = htb.roots()
        return sorted((link.name, link.index) for link in htb.links() if link.index in ours)

    return with_htb(look)


def _uninstall_link(index: int) -> None:
    """Restore a link's default qdisc.

    Raises:
        OSError: CAP_NET_ADMIN is missing, or the kernel refuses.
    """
    try:
        with_htb(lambda htb: htb.uninstall(index))
    except NetlinkError as error:  # no OSError
        raise OSError(
            error.code, f"link {index}: Penstock's qdisc could not be removed: {error}; run as root"
        ) from None
    if index in (left for _, left in _roots_on_links()):
        raise PermissionError(f"link {index}: Penstock's qdisc could not be removed; run as root")


@dataclass(frozen=True, slots=True)
class Host:
    """Access to the host; tests supply another one."""

    mount: Callable[[], Path | None] = cgroup_root.cgroup2_mount
    roots_on_links: Callable[[], list[tuple[str, int]]] = _roots_on_links
    uninstall_link: Callable[[int], None] = _uninstall_link


@dataclass(slots=True)
class _Found:
    """The findings. ``launcher``: the process that listens; ``runs``: its containers."""

    roots: list[Path] = field(default_factory=list)
    launcher: int | None = None
    runs: list[str] = field(default_factory=list)


def removals(config: AgentConfig, *, kill: bool, purge: bool, host: Host) -> Iterator[Removal]:
    """Yield the things to remove. Each is looked for after the previous one is gone, or was skipped in a dry run.

    Args:
        kill: include running containers and launchers of other agents; otherwise they are a reason to refuse.
        purge: include the state directory.

    Raises:
        Refused: before the first thing, or never.
    """
    found = _look(config, host)
    others = _check(config, found, kill=kill, purge=purge)
    for root in found.roots:
        for container in cgroups.running(root):
            what = f"container {container.name} and its processes"
            yield Removal(what, partial(cgroups.kill, container), kills=True)
    for pid in (*others, *([found.launcher] if found.launcher is not None else [])):
        whose = "another agent's launcher" if pid in others else "launcher"
        yield Removal(f"{whose} (process {pid})", partial(cgroups.end, pid), kills=pid in others)
    for name, index in host.roots_on_links():
        yield Removal(f"traffic control on {name}", partial(host.uninstall_link, index))
    for root in found.roots:
        if cgroups.is_root(root):  # a launcher removes the tree that it created
            yield Removal(f"cgroups in {root}", partial(cgroups.remove, root))
    listens = config.socket_path()
    beside = (listens.with_name(name) for name in (f"{listens.name}.lock", "stdio.sock"))
    for file in dict.fromkeys((listens, *beside, *(config.runtime() / name for name in _RUNTIME))):
        if os.path.lexists(file):
            yield Removal(f"{file}", partial(file.unlink, missing_ok=True))
    ends = config.runtime() / "exits"
    if ends.is_dir() and (purge or not any(ends.iterdir())):
        yield Removal(f"{ends}, with how containers ended", partial(shutil.rmtree, ends))
    state = config.state()
    if (chosen := disk_scheduler.kept(state)).exists():
        yield Removal("the agent's choice of disk schedulers", partial(_restore_schedulers, chosen))
    if purge and state.is_dir():
        yield Removal(f"{state}, with journal and outputs", partial(shutil.rmtree, state))


def _restore_schedulers(kept: Path) -> None:
    for disk, why in disk_scheduler.restore(kept).items():
        raise OSError(f"{disk}: {why}")


def _check(config: AgentConfig, found: _Found, *, kill: bool, purge: bool) -> list[int]:
    """Return launchers besides our own.

    Raises:
        Refused: an agent answers; a container runs and is not to be killed; a directory is not Penstock's.
    """
    if _answers(config.socket_path(), socket.SOCK_STREAM) is not None:
        remedy = "stop it first (Ctrl-C in `penstock up`, or systemctl stop penstock-agent)"
        raise Refused(f"an agent answers at {config.socket_path()}: {remedy}")
    state = config.state()
    # An empty one is made by the service manager for an agent that could not start.
    if purge and state.is_dir() and any(state.iterdir()) and not any((state / name).exists() for name in _STATE):
        raise Refused(f"--purge: {state} does not look like an agent's state directory")
    # First: --kill, the remedy for containers, ends the other agents' work, too.
    held = {pid: root for root in found.roots for pid in cgroups.launchers(root) if pid != found.launcher}
    for pid, root in held.items():
        if not kill:
            remedy = "stop that agent; --kill ends it with its containers"
            raise Refused(f"another agent's launcher (process {pid}) holds {root}: {remedy}")
    running = [container.name for root in found.roots for container in cgroups.running(root)]
    if (names := sorted({*running, *found.runs})) and not kill:
        raise Refused(f"containers run ({', '.join(names)}): end them first, or kill them with --kill")
    return list(held)


def _look(config: AgentConfig, host: Host) -> _Found:
    found = _Found()
    if config.cgroup_root not in (cgroup_root.AUTO, cgroup_root.SCOPE):
        found.roots = [root for root in (Path(config.cgroup_root),) if cgroups.is_root(root)]
    elif (mount := host.mount()) is not None:
        found.roots = cgroups.roots(mount)
    found.launcher = _answers(config.runtime() / "launcher.sock", socket.SOCK_SEQPACKET)
    if found.launcher is not None:
        root, found.runs = asyncio.run(_ask(config.runtime()))
        if root is not None and root not in found.roots:
            found.roots.append(root)
    return found


async def _ask(runtime: Path) -> tuple[Path | None, list[str]]:
    """Return the launcher's tree and its containers. Exits that it keeps for an agent are not acknowledged."""
    launcher = await Launcher.connect(runtime, _ignore, on_lost=_ignore, spawn=False, cgroup_root=None)
    try:
        return launcher.cgroup_root, [run.container for run in await launcher.running()]
    finally:
        await launcher.close()


def _ignore(*_: object) -> None:
    """Ignore an event."""


def _answers(path: Path, kind: int) -> int | None:
    """Return the process that listens at a Unix socket; None: there is none."""
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return None
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)
