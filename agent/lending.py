"""Clients that have their own processes taken in: identify the process and its present container."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent import peer_credentials
from agent.core import events as e
from agent.core.containers import Containers
from penstock.wire import agent_api as api
from penstock.wire.errors import unavailable
from penstock.wire.jobs_api import Lend

#: The maximum length of a command line that is only displayed.
_MOST_WORDS = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, by its credentials from the kernel: its ``pid`` when it connected.

    ``at_s`` is that time, on CLOCK_BOOTTIME.
    """

    pid: int
    at_s: float

    def lives(self) -> bool:
        """Return whether the process still has that pid. In a pid namespace of its own, it has none here (0)."""
        return self.pid > 0 and peer_credentials.is_still(self.pid, self.at_s)


def container_of(containers: Containers, pid: int) -> str:
    """Return the live container that a process runs in, "" for none."""
    started = [record for record in containers.live.values() if record.pid]
    if not started:
        return ""
    launched = {record.container: record.pid for record in started if not record.adopted}
    return peer_credentials.container_of(pid, launched, {each.container: each.pid for each in started if each.adopted})


def adopting(containers: Containers, session: int, peer: Peer, asked: api.Adopt) -> e.AdoptRequested:
    """Return the event of an ``adopt`` request, with the facts about the process.

    Raises:
        RpcError: ``unavailable``: the connection's own process is asked for, and has ended or is not visible.
    """
    pid = _named(peer, asked.pid)
    own = _is_own(peer, pid, tree=asked.tree)
    inside = container_of(containers, pid) if own else ""
    return e.AdoptRequested(session, asked.container, pid, asked.tree, own, inside)


def lending(containers: Containers, session: int, peer: Peer, asked: Lend) -> e.LendRequested:
    """Return the event of a ``lend`` request, as :func:`adopting`. The launcher checks the process's owner.

    Raises:
        RpcError: ``unavailable``: there is no such process, or it is not visible.
    """
    pid = _named(peer, asked.pid)
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - shorter than a path
            words = file.read().removesuffix(b"\0").split(b"\0")[:_MOST_WORDS]
        nice = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        raise unavailable(f"there is no process {pid}") from None
    argv = tuple(word.decode("utf-8", "replace") for word in words)
    return e.LendRequested(
        session, asked.job, pid, argv, nice, own=_is_own(peer, pid, tree=True), inside=container_of(containers, pid)
    )


def _named(peer: Peer, pid: int) -> int:
    if pid:
        return pid
    if not peer.lives():
        raise unavailable(
            "the process that opened this connection has ended, or is in a pid namespace of its own",
            remedy="connect from the process itself, on the host",
        )
    return peer.pid


def _is_own(peer: Peer, pid: int, *, tree: bool) -> bool:
    """Return whether the connection's own process is the named one, or (``tree``) descends from it."""
    if not peer.lives():
        return False
    return peer.pid == pid or (tree and pid in peer_credentials.ancestry(peer.pid))
