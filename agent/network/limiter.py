"""Network limits of containers: HTB classes on the links that lead out, and a token bucket for ingress.

See docs/kernel-network.md. One agent per network namespace: two would remove each other's classes. All state is in the
kernel and outlives the agent: a crash of the agent has no effect on limits, and ``reconcile`` repairs changes made
meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog
from pyroute2.netlink.exceptions import NetlinkError

from agent.cgroups.filesystem import cgroups_below
from agent.network import bpf, htb_parameters
from agent.network.bpf_map import BpfMap, Counters
from agent.network.htb import HANDLE, reason
from agent.network.htb_parameters import Shape
from agent.network.htb_tree import HtbTree
from agent.network.limited_links import LimitedLinks
from agent.network.programs import MAX_SLOT
from agent.thread_results import done

log = structlog.get_logger()
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _Container:
    cgroup: Path
    shape: Shape
    programs: dict[bpf.Direction, int]
    """Ids of its two programs; empty if they could not be attached."""
    failed: dict[str, str] = field(default_factory=dict)
    """What is not enforced → why, as of the last attempt."""


def _in_worker(
    work: Callable[Concatenate[NetworkLimiter, P], R],
) -> Callable[Concatenate[NetworkLimiter, P], Future[R]]:
    """Let a method run in the limiter's thread, and return a future of its result.

    What the kernel refuses is an OSError for callers: pyroute2's error is none.
    """

    def carry_out(self: NetworkLimiter, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return work(self, *args, **kwargs)
        except NetlinkError as error:
            raise OSError(reason("the network", error)) from error

    @wraps(work)
    def submit(self: NetworkLimiter, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future = self._worker.submit(carry_out, self, *args, **kwargs)
        self._latest = future
        return future

    return submit


class NetworkLimiter:
    """Methods run in the limiter's own thread, in the order of the calls, and return a future; not :meth:`counters`.

    pyroute2 0.9 has its own event loop, which cannot run inside another one; and the daemon's loop must not wait for
    netlink (about half a millisecond per class). The limiter works in the network namespace of the thread that created
    it, on the links that lead out of this machine (``links.leading_out``). Links that appear later are found by the
    next ``attach`` or ``reconcile``.

    Args:
        link_bytes_per_s: the capacity of each link; 0: the rate that it reports. If that is unknown, nothing can be
            promised, and opportunistic containers do not yield.
    """

    def __init__(self, link_bytes_per_s: int = 0) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="network")
        self._latest: Future[Any] = Future()  # of the latest call
        self._latest.set_result(None)
        self._links = self._worker.submit(LimitedLinks, link_bytes_per_s).result()
        self._table: BpfMap | None = None
        self._containers: dict[int, _Container] = {}

    def attach(self, slot: int, cgroup: Path, shape: Shape) -> Future[dict[str, str]]:
        """Limit and count all traffic of the cgroup and those below it, from now on. Idempotent.

        Call it before anything runs in the cgroup, so that every socket of the container is included. Counts begin with
        zero; those of an earlier agent are found by :meth:`reconcile`.

        Done when it returns, without a change of threads, if no class is needed for it, as for most containers.

        Returns:
            What is not enforced → why, with the remedy: ``network_egress_bytes_per_s on eth0``,
            ``network_rate_bytes_per_s on eth0`` (the promise), ``network_ingress_bytes_per_s``.

        Raises:
            ValueError: the slot is not within 1 … 8191.
        """
        if not 1 <= slot <= MAX_SLOT:
            raise ValueError(f"slot {slot} is not within 1 … {MAX_SLOT}")
        if self._at_rest and self._only_marks(slot, shape):
            return done(self._take(slot, cgroup, shape, counts=None))
        return self._attach_later(slot, cgroup, shape)

    @_in_worker
    def _attach_later(self, slot: int, cgroup: Path, shape: Shape) -> dict[str, str]:
        self._look(again=False)
        return self._take(slot, cgroup, shape, counts=None)

    def _only_marks(self, slot: int, shape: Shape) -> bool:
        """Return whether a new container needs only its programs, which are loaded: the links are those that were read,
        and none of them has, or needs, a class for it.
        """
        if slot in self._containers or self._table is None or not self._table.programs.loaded(slot):
            return False
        needs_tree = htb_parameters.needs_tree
        if any(tree.concerns(slot) or needs_tree(shape, tree.link_bytes_per_s) for tree in self._links.trees):
            return False
        return not self._links.changed()

    @_in_worker
    def change(self, slot: int, shape: Shape) -> dict[str, str]:
        """Change limits, promise or class (promotion) at once, for open connections too.

        Returns:
            As for ``attach``; if nothing changed, nothing is done.

        Raises:
            KeyError: nothing is attached in this slot.
        """
        container = self._containers[slot]
        if container.shape == shape and container.programs:
            return dict(container.failed)
        container.shape = shape
        return self._carry_out(slot)

    def detach(self, slot: int, cgroup: Path | None) -> Future[None]:
        """Free the slot. ``cgroup`` None: it was removed, and its programs with it. Idempotent.

        Done when it returns, without a change of threads, if the kernel has nothing of the slot any more.
        """
        if cgroup is None and self._at_rest and not any(tree.has(slot) for tree in self._links.trees):
            self._detach(slot, None)
            return done(None)
        return self._detach_later(slot, cgroup)

    @property
    def _at_rest(self) -> bool:
        """Whether all calls were carried out. If the latest one was cancelled, an earlier one may still run."""
        return self._latest.done() and not self._latest.cancelled()

    @_in_worker
    def _detach_later(self, slot: int, cgroup: Path | None) -> None:
        self._detach(slot, cgroup)

    def _detach(self, slot: int, cgroup: Path | None) -> None:
        self._containers.pop(slot, None)
        if cgroup is not None:
            _unmark(cgroup)
        for tree in self._links.trees:
            tree.settle(slot, None)

    @property
    def draining(self) -> bool:
        """Whether classes wait for their last packets; :meth:`sweep` removes them then."""
        return any(tree.draining for tree in self._links.trees)

    @property
    def sharing(self) -> bool:
        """Whether a link's rate is known, so that ranks have an effect."""
        return any(tree.link_bytes_per_s for tree in self._links.trees)

    @_in_worker
    def sweep(self) -> None:
        """Remove the classes whose last packets have left."""
        for tree in self._links.trees:
            tree.sweep()

    def counters(self) -> dict[int, Counters]:
        """Return slot → traffic counted since it was attached, by this agent or an earlier one.

        At once and in the calling thread, which need not wait for netlink: the counters are in mapped memory.
        """
        # The worker changes the dictionary, even while `list` copies its items: garbage may be collected in it.
        table, containers = self._table, self._containers.copy()
        return {} if table is None else {slot: table.counters(slot) for slot, c in containers.items() if c.programs}

    @_in_worker
    def reconcile(self, known: Mapping[int, tuple[Path, Shape]], under: Path | None = None) -> list[str]:
        """Make the kernel agree with slot → (cgroup, shape): after a restart, and periodically.

        Classes and trees of ours without an owner are removed; missing or changed ones are restored. So with no slots,
        nothing is limited any more. Slots may differ from those of the earlier agent: its counters are found through
        the cgroup.

        Args:
            under: the containers' tree: our programs on any other cgroup below it are removed too.

        Returns:
            The repairs, one sentence each.
        """
        for slot in self._containers.keys() - known.keys():
            self._detach(slot, self._containers[slot].cgroup)
        self._look(again=True)
        repaired: list[str] = []
        for slot, (cgroup, shape) in known.items():
            if (container := self._containers.get(slot)) is not None and container.cgroup == cgroup:
                lost = _lost(container)
                repaired += [f"the {each.name.lower()} program of {cgroup} was missing" for each in lost]
                container.shape = shape
                self._carry_out(slot, programs=bool(lost))
            else:
                self._take(slot, cgroup, shape, counts=_carried(cgroup))
        stood = [tree for tree in self._links.trees if tree.installed]
        repaired += self._links.repair(self._needed)
        gone = [tree for tree in stood if self._needed(tree) and not tree.installed]  # for another root, for example
        for slot in self._containers if gone else ():
            self._carry_out(slot)
        known_cgroups = [container.cgroup for container in self._containers.values()]
        return repaired + (_stray_programs(under, known_cgroups) if under is not None else [])

    @_in_worker
    def not_enforced(self) -> dict[int, dict[str, str]]:
        """Return slot → what is not enforced → why, as of the last call of another method."""
        return {slot: dict(container.failed) for slot, container in self._containers.items()}

    def close(self) -> None:
        """Close the sockets. Limits stay in force; only roots that are not needed are removed."""
        self._close().result()
        self._worker.shutdown()

    @_in_worker
    def _close(self) -> None:
        self._links.close(self._needed)
        if self._table is not None:
            self._table.close()

    # ------------------------------------------------------------ inside

    def _take(self, slot: int, cgroup: Path, shape: Shape, counts: bytes | None) -> dict[str, str]:
        """Add a container, with the ``counts`` of an earlier agent if there are any."""
        former = self._containers.get(slot)
        if former is not None and former.cgroup != cgroup:
            _unmark(former.cgroup)
            former = None
        if former is None:
            for tree in self._links.trees:
                tree.drop_packets(slot)
            with contextlib.suppress(OSError):  # marking reports it
                self._open_table().fill(slot, counts)
        self._containers[slot] = _Container(cgroup, shape, {})
        return self._carry_out(slot)

    def _carry_out(self, slot: int, *, programs: bool = False) -> dict[str, str]:
        """Carry out the container's shape; keep and return what is not enforced, and log what is so newly."""
        container = self._containers[slot]
        failed = self._limit(slot, container, programs=programs)
        for what, why in failed.items():
            if container.failed.get(what) != why:
                log.warning("not enforced", what=what, slot=slot, why=why)
        container.failed = failed
        return dict(failed)

    def _limit(self, slot: int, container: _Container, *, programs: bool) -> dict[str, str]:
        """Create the class, then mark packets for it, then attach the marking program; remove the old class last."""
        failed, shape = htb_parameters.enforceable(container.shape)
        for tree in self._links.trees:
            failed |= tree.limit(slot, shape)
        why = self._mark(slot, container, shape, again=programs)
        if why is not None:
            container.programs = {}
            for tree in self._links.trees:
                tree.settle(slot, None)
            return failed | self._nothing(container.shape, why)
        for tree in self._links.trees:
            tree.settle(slot, shape)
        return failed

    def _mark(self, slot: int, container: _Container, shape: Shape, *, again: bool) -> str | None:
        """Set the container's mark and limit; attach its programs if needed. Returns why that fails, or None."""
        try:
            table = self._open_table()
        except OSError as error:
            return _why_not_marked(Path("/"), error)
        minor = htb_parameters.minor(slot, shape, sharing=self.sharing)
        table.mark(slot, HANDLE | minor if minor else 0)
        table.limit(slot, shape.ingress_bytes_per_s or 0)
        if container.programs and not again:
            return None
        try:
            container.programs = bpf.attach(container.cgroup, table.programs, slot)
        except OSError as error:
            return _why_not_marked(container.cgroup, error)
        return None

    def _open_table(self) -> BpfMap:
        if self._table is None:
            self._table = BpfMap()
        return self._table

    def _nothing(self, shape: Shape, why: str) -> dict[str, str]:
        """Return every requested setting as not enforced."""
        asked = ["network_ingress_bytes_per_s"] if shape.ingress_bytes_per_s is not None else []
        for tree in self._links.trees:
            if shape.ceil_bytes_per_s is not None:
                asked.append(f"network_egress_bytes_per_s on {tree.link.name}")
            if htb_parameters.promise(shape):
                asked.append(f"network_rate_bytes_per_s on {tree.link.name}")
        return dict.fromkeys(asked, why)

    def _needed(self, tree: HtbTree) -> bool:
        return any(htb_parameters.needs_tree(c.shape, tree.link_bytes_per_s) for c in self._containers.values())

    def _look(self, *, again: bool) -> None:
        """Look at the links, and apply the limits of all containers on new ones."""
        for slot in self._containers if self._links.look(again=again) else ():
            self._carry_out(slot)


def _unmark(cgroup: Path) -> int:
    try:
        return bpf.detach(cgroup)
    except FileNotFoundError:  # they were removed with their cgroup
        return 0


def _carried(cgroup: Path) -> bytes | None:
    try:
        return bpf.former_slot(cgroup)
    except OSError:  # attaching reports it
        return None


def _lost(container: _Container) -> list[bpf.Direction]:
    """Return the directions of its programs that another program has detached."""
    try:
        there = bpf.attached(container.cgroup)
    except OSError:  # the cgroup is gone; attaching reports it
        return list(container.programs)
    return [each for each, program in container.programs.items() if program not in there[each]]


def _stray_programs(under: Path, known: Collection[Path]) -> list[str]:
    """Detach our programs from a directory and all cgroups below it that are not the cgroup of a container."""
    strays = {str(under), *map(os.fsdecode, cgroups_below(bytes(under)))} - set(map(str, known))
    return [f"programs of {each} were removed" for each in sorted(strays) if _unmark(Path(each))]


def _why_not_marked(cgroup: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"the cgroup {cgroup} is gone"
    if error.errno == errno.EPERM:
        return "no CAP_BPF and CAP_NET_ADMIN, or a BPF program further up forbids it; remedy: run `penstock check`"
    if error.errno in (errno.EBADF, errno.EINVAL):
        return f"{cgroup} is not in a cgroup2 mount, or the kernel lacks CONFIG_CGROUP_BPF ({error})"
    return str(error)
