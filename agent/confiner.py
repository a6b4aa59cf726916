"""What the kernel was told of each container, and what it is to be told next: cgroup files and network, in place.

One change of a container at a time; of several that wait only the last counts. What may wait for the kernel (memory
that has to be reclaimed, netlink) is done in threads: the event loop goes on granting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import structlog

from agent.cgroups import Cgroup, CgroupTree, holding
from agent.core.confinement import Confinement
from agent.core.snapshot import Snapshot
from agent.faults import Point, reach
from agent.network import Counters, NetworkLimiter, Shape
from penstock.model.units import format_bytes

log = structlog.get_logger()
_NO_CGROUPS = "no writable cgroup v2 tree (run `penstock check`)"
_NO_NETWORK = "network limits are not available here (run `penstock check`)"
_PLAIN = Confinement()
_NETWORK = ("network_rate_bytes_per_s", "network_egress_bytes_per_s", "network_ingress_bytes_per_s")
_DISK_RATES = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
_MEMORY = ("memory_min_bytes", "memory_low_bytes", "memory_high_bytes", "memory_max_bytes")
#: Memory that could not be reclaimed is tried again once the container uses so much less than memory.max stands at.
_WORTH_A_TRY_BYTES = 4 << 20


@dataclass(slots=True)
class _Confined:
    """``slot``: its number on the network. ``stuck_at_bytes``: where memory.max is, while that is more than asked."""

    wanted: Confinement
    applied: Confinement | None = None
    not_enforced: dict[str, str] = field(default_factory=dict)
    slot: int | None = None
    stuck_at_bytes: int | None = None
    worker: asyncio.Task[None] | None = None


class Confiner:
    """One per agent. ``tree`` None: nothing is enforced, and that is said; ``network`` None: likewise."""

    def __init__(
        self,
        tree: CgroupTree | None,
        network: NetworkLimiter | None,
        on_confined: Callable[[str, dict[str, str]], None],
        *,
        holds_disks: bool = False,
        pids_max: Callable[[], int] = lambda: 0,
    ) -> None:
        """``holds_disks``: of a kernel on which a limit of disks is lowered so (:mod:`agent.cgroups.holding`).
        ``pids_max`` returns that of a container that has none of its own; 0: no limit."""
        self._tree = tree
        self._network = network
        self._on_confined = on_confined
        self._holds_disks = holds_disks
        self._pids_max = pids_max
        self._containers: dict[str, _Confined] = {}
        self._protected_bytes = 0
        self._memory_bytes: int | None = None
        self._cores: float | None = None
        self._pids: int | None = None

    def cap(self, *, memory_bytes: int, cores: float | None, pids: int | None) -> dict[str, str]:
        """All containers together get no more than that; what cannot be enforced → why."""
        self._memory_bytes, self._cores, self._pids = memory_bytes, cores, pids
        return self._cap(self._tree) if self._tree is not None else {}

    # ------------------------------------------------------------ one container

    async def create(self, container: str, confinement: Confinement) -> tuple[dict[str, str], Cgroup | None]:
        """Its cgroup, with everything set before anything runs in it; and what could not be enforced.

        Raises:
            OSError: the cgroup cannot be made.
        """
        if self._tree is not None:
            confinement = self._with_pids_max(confinement)
        one = self._containers[container] = _Confined(confinement)
        if self._tree is None:
            return dict.fromkeys(asked(confinement), _NO_CGROUPS), None
        cgroup = self._tree.create(container)
        reach(Point.START_CGROUP_MADE)
        one.not_enforced = cgroup.confine(confinement, _PLAIN).failed
        reach(Point.START_CGROUP_CONFINED)
        one.not_enforced |= await self._attach(cgroup, one)
        reach(Point.START_NETWORK_CONFINED)
        one.applied = confinement
        self._protect()
        return one.not_enforced, cgroup

    def confine(self, container: str, confinement: Confinement) -> None:
        """Make it so; ``on_confined`` says when, and what could not be enforced."""
        one = self._containers.get(container)
        if one is None:
            return  # it has ended
        one.wanted = self._with_pids_max(confinement) if self._tree is not None else confinement
        if one.worker is None:
            reach(Point.CONFINE_ASKED)
            one.worker = asyncio.get_running_loop().create_task(self._work(container, one))

    def is_opportunistic(self, container: str) -> bool:
        """Whether it was so when it was last confined."""
        one = self._containers.get(container)
        return one is not None and one.wanted.opportunistic

    async def settled(self, container: str) -> None:
        """Wait until the kernel has what it was last asked for."""
        one = self._containers.get(container)
        if one is not None and one.worker is not None:
            await asyncio.wait([one.worker])

    async def remove(self, container: str) -> None:
        """Its network class, what was waiting for it, and its cgroup, if nothing is in that any more."""
        one = self._containers.pop(container, None)
        if one is None:
            return
        if one.worker is not None:
            await asyncio.wait([one.worker])
        if self._network is not None and one.slot is not None:
            await asyncio.wrap_future(self._network.detach(one.slot, self._still_there(container)))

    def _still_there(self, container: str) -> Path | None:
        """Remove a cgroup; return its path if that cannot be yet. With it go its programs, for nothing."""
        cgroup = self._tree.get(container) if self._tree is not None else None
        return cgroup.path if cgroup is not None and not cgroup.remove() else None

    # ------------------------------------------------------------ all of them

    async def take_back(self, confinements: dict[str, Confinement]) -> None:
        """After a restart: what of an earlier agent still runs. The kernel is told again by ``confine``."""
        for slot, (container, confinement) in enumerate(sorted(confinements.items()), start=1):
            self._containers[container] = _Confined(confinement, slot=slot)
        await self._reconcile_network()

    async def repair(self) -> list[str]:
        """Put right what somebody else changed; says what that was."""
        repaired = list(self._tree.repair()) if self._tree is not None else []
        for container, one in list(self._containers.items()):
            if self._tree is None or one.worker is not None or one.applied is None or one.stuck_at_bytes is not None:
                continue
            try:
                written = self._tree.get(container).confine(one.applied).written
            except FileNotFoundError:
                continue
            repaired += [f"{name} of {container}" for name in written]
            await asyncio.sleep(0)  # hundreds of containers are not one long pause of the event loop
        return repaired + await self._reconcile_network()

    def retry(self, snapshot: Snapshot) -> None:
        """Shrink on where memory could not be reclaimed before and the container has let go of some since.

        And lower what protects the containers together to what they are promised now.
        """
        self._protect(less=True)
        for container, one in self._containers.items():
            if one.stuck_at_bytes is None or one.worker is not None:
                continue
            use = snapshot.containers.get(container)
            if use is not None and use.memory_bytes < one.stuck_at_bytes - _WORTH_A_TRY_BYTES:
                one.applied = None
                self.confine(container, one.wanted)

    async def counters(self) -> dict[str, Counters]:
        """Container → what went over the network; empty where nobody counts."""
        if self._network is None:
            return {}
        by_slot = await asyncio.wrap_future(self._network.counters())
        return {c: by_slot[one.slot] for c, one in self._containers.items() if one.slot in by_slot}

    # ------------------------------------------------------------ inside

    async def _work(self, container: str, one: _Confined) -> None:
        try:
            while one.applied != one.wanted:
                wanted, changed = one.wanted, _changed(one.applied, one.wanted)
                failed = await self._apply(container, one, wanted)
                kept = {name: why for name, why in one.not_enforced.items() if name.split(" ")[0] not in changed}
                one.applied, one.not_enforced = wanted, kept | failed
                self._on_confined(container, one.not_enforced)
        except FileNotFoundError:
            log.debug("confined too late: it has ended", container=container)
        except OSError as error:
            log.error("a container's limits could not be changed", container=container, why=str(error))
        finally:
            one.worker = None
        self._protect()

    async def _apply(self, container: str, one: _Confined, wanted: Confinement) -> dict[str, str]:
        if self._tree is None:
            return dict.fromkeys(asked(wanted), _NO_CGROUPS)
        cgroup, before = self._tree.get(container), one.applied
        if before is not None and self._holds_disks and holding.falls(before, wanted):
            standing = replace(wanted, **{name: getattr(before, name) for name in _DISK_RATES})
            at_once = await self._apply(container, one, standing)
            return at_once | await _lower_disks(cgroup, wanted, standing)
        changed = _changed(before, wanted)
        if not changed.isdisjoint(_MEMORY):
            applied = await asyncio.to_thread(cgroup.confine, wanted, before)
        else:
            applied = cgroup.confine(wanted, before)
        reach(Point.CONFINE_CGROUP_DONE)
        not_enforced = dict(applied.failed)
        if "memory_max_bytes" in changed:
            one.stuck_at_bytes = None
        if applied.shrink_to_bytes is not None:
            not_enforced.pop("memory_max_bytes", None)
            not_enforced |= await self._shrink(cgroup, one, applied.shrink_to_bytes)
        if before is None or _shape(before) != _shape(wanted):  # a promotion changes its class there, too
            not_enforced |= await self._change_network(cgroup, one, wanted)
            reach(Point.CONFINE_NETWORK_DONE)
        return not_enforced

    async def _shrink(self, cgroup: Cgroup, one: _Confined, target_bytes: int) -> dict[str, str]:
        """Memory in steps, as far as it goes without killing anybody."""
        shrunk = await asyncio.to_thread(cgroup.shrink_memory, target_bytes)
        reach(Point.CONFINE_MEMORY_SHRUNK)
        if shrunk.memory_max_bytes is not None and shrunk.memory_max_bytes <= target_bytes:
            return {}
        one.stuck_at_bytes = shrunk.memory_max_bytes or shrunk.in_use_bytes
        return {
            "memory_max_bytes": f"memory.max is at {format_bytes(one.stuck_at_bytes)}: "
            f"{format_bytes(shrunk.unreclaimable_bytes)} of it cannot be reclaimed; it shrinks on when it is let go"
        }

    async def _attach(self, cgroup: Cgroup, one: _Confined) -> dict[str, str]:
        if self._network is None:
            return {name: _NO_NETWORK for name in asked(one.wanted) if name in _NETWORK}
        taken = {other.slot for other in self._containers.values()}
        one.slot = next(slot for slot in range(1, len(taken) + 2) if slot not in taken)
        return await asyncio.wrap_future(self._network.attach(one.slot, cgroup.path, _shape(one.wanted)))

    async def _change_network(self, cgroup: Cgroup, one: _Confined, wanted: Confinement) -> dict[str, str]:
        if self._network is None or one.slot is None:
            return {name: _NO_NETWORK for name in asked(wanted) if name in _NETWORK}
        return await asyncio.wrap_future(self._network.change(one.slot, _shape(wanted)))

    async def _reconcile_network(self) -> list[str]:
        if self._network is None or self._tree is None:
            return []
        known = {
            one.slot: (self._tree.get(container).path, _shape(one.wanted))
            for container, one in self._containers.items()
            if one.slot is not None
        }
        return await asyncio.wrap_future(self._network.reconcile(known, self._tree.root))

    def _protect(self, *, less: bool = False) -> None:
        """Memory that is promised is protected only as far as the tree above it is (memory.low of its ancestors).

        That is lowered (``less``) once a sample, as often a container follows one that ended, and more does no harm.
        """
        protected = sum(one.wanted.memory_low_bytes for one in self._containers.values())
        missing = protected - self._protected_bytes
        if self._tree is not None and (missing > 0 or (less and missing)):
            self._protected_bytes = protected
            self._cap(self._tree)

    def _cap(self, tree: CgroupTree) -> dict[str, str]:
        return tree.cap(
            memory_max_bytes=self._memory_bytes, cpu_cores=self._cores, memory_low_bytes=self._protected_bytes,
            pids_max=self._pids,
        )  # fmt: skip

    def _with_pids_max(self, confinement: Confinement) -> Confinement:
        """A fork bomb ends in its own container, also where nobody asked for a limit."""
        default = 0 if confinement.borrowed else self._pids_max()
        return replace(confinement, pids_max=default) if default and confinement.pids_max is None else confinement


async def _lower_disks(cgroup: Cgroup, wanted: Confinement, standing: Confinement) -> dict[str, str]:
    cgroup.hold_disks()
    try:
        await asyncio.sleep(holding.SLICE_S)
        return cgroup.confine(wanted, standing).failed
    finally:
        cgroup.let_go_of_disks(wanted)


def asked(confinement: Confinement) -> frozenset[str]:
    """The names of what is not as the kernel has it by default."""
    return _changed(_PLAIN, confinement)


def _changed(before: Confinement | None, after: Confinement) -> frozenset[str]:
    """The names of what differs; all of them where nothing is known of before."""
    names = [one.name for one in fields(Confinement)]
    return frozenset(n for n in names if before is None or getattr(before, n) != getattr(after, n))


def _shape(confinement: Confinement) -> Shape:
    return Shape(
        rate_bytes_per_s=confinement.network_rate_bytes_per_s,
        ceil_bytes_per_s=confinement.network_egress_bytes_per_s,
        ingress_bytes_per_s=confinement.network_ingress_bytes_per_s,
        opportunistic=confinement.opportunistic,
        rank=confinement.rank,
    )
