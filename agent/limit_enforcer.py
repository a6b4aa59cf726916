"""Each container's settings in the kernel and the changes pending: cgroup files and network, in place.

A container has one change at a time; if several wait, only the last one counts. Operations that may block in the kernel
(reclaiming memory, netlink) run in threads, so that the event loop continues to grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import structlog
from msgspec import structs

from agent.cgroups import Cgroup, CgroupTree, blk_throttle_workaround
from agent.containers_cgroup import ContainersCgroup
from agent.core.confinement import MOST_WEIGHT, Confinement, differing, without
from agent.core.snapshot import Snapshot
from agent.fault_injection import Point, reach
from agent.network import MAX_SLOT, Counters, NetworkLimiter, shape_of
from agent.thread_results import result_of
from penstock.model.units import format_bytes

log = structlog.get_logger()
_NO_CGROUPS = "no writable cgroup v2 tree (run `penstock check`)"
_NO_NETWORK = "network limits are not available here (run `penstock check`)"
_NO_SLOT = f"{MAX_SLOT} containers have network limits already, no more can; remedy: end some, then start it again"
#: The kernel's defaults.
_PLAIN = Confinement()
_NETWORK = ("network_rate_bytes_per_s", "network_egress_bytes_per_s", "network_ingress_bytes_per_s")
_DISK_RATES = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
#: The settings that follow a job's rank.
_WEIGHTS = frozenset({"cpu_weight", "disk_weight", "rank"})
_MEMORY = ("memory_min_bytes", "memory_low_bytes", "memory_high_bytes", "memory_max_bytes")
#: Reclaiming is tried again once the container uses this much less than memory.max.
_WORTH_A_TRY_BYTES = 4 << 20
#: A killed container gives its groups the most weight for this long at most: a process may hang on a disk.
_FIRST_S = 10.0


@dataclass(slots=True)
class _Confined:
    """A container's state. ``slot``: its number on the network. ``stuck_at_bytes``: memory.max if above the target."""

    wanted: Confinement
    applied: Confinement | None = None
    not_enforced: dict[str, str] = field(default_factory=dict)
    groups_failed: dict[str, str] = field(default_factory=dict)  # likewise, of its groups, as last reported
    slot: int | None = None
    stuck_at_bytes: int | None = None
    worker: asyncio.Task[None] | None = None
    again: bool = False  # the last change failed: it is tried again
    ending: bool = False  # its limits do not matter any more
    first_s: float = 0.0  # for so long its groups have the most weight, as it was killed


class LimitEnforcer:
    """One per agent. ``tree`` None: nothing is enforced, which is reported; the same for ``network``."""

    def __init__(
        self,
        tree: CgroupTree | None,
        network: NetworkLimiter | None,
        on_confined: Callable[[str, dict[str, str]], object],
        *,
        holds_disks: bool = False,
        pids_max: Callable[[], int] = lambda: 0,
    ) -> None:
        """``holds_disks``: lowering a disk limit needs :mod:`agent.cgroups.blk_throttle_workaround`.
        ``pids_max`` returns the default for containers without their own; 0: no limit.
        """
        self._tree = tree
        self._network = network
        self._on_confined = on_confined
        self._holds_disks = holds_disks
        self._pids_max = pids_max
        self._containers: dict[str, _Confined] = {}
        self._leaving: dict[str, _Confined] = {}  # removed, and still in their slots
        self._detaching: set[int] = set()  # the slots that they leave
        self.parent = ContainersCgroup(tree)

    # ------------------------------------------------------------ one container

    async def create(
        self, container: str, confinement: Confinement, groups: Sequence[str] = ()
    ) -> tuple[dict[str, str], Cgroup | None]:
        """Create a container's cgroup, in these groups (:meth:`CgroupTree.create`), and set everything before a process
        enters; return the settings that could not be enforced.

        Raises:
            OSError: the cgroup cannot be created.
        """
        confinement = self._with_pids_max(confinement)
        one = self._containers[container] = _Confined(confinement)
        self._set_class()
        if self._tree is None:
            return dict.fromkeys(differing(_PLAIN, confinement), _NO_CGROUPS), None
        cgroup = self._tree.create(container, groups)
        if groups:
            self._regroup(container, confinement)
        reach(Point.START_CGROUP_MADE)
        one.not_enforced = cgroup.confine(confinement, _PLAIN).failed
        reach(Point.START_CGROUP_CONFINED)
        one.not_enforced |= await self._attach(cgroup, one)
        reach(Point.START_NETWORK_CONFINED)
        one.applied = confinement
        self._protect()
        if groups:
            one.groups_failed = self._tree.groups.failed(container)
        return one.not_enforced | one.groups_failed, cgroup

    def confine(self, container: str, confinement: Confinement) -> None:
        """Apply a confinement; ``on_confined`` is called when it is done, with the settings that are not enforced."""
        one = self._containers.get(container)
        if one is None or one.ending:
            return
        one.wanted = self._with_pids_max(confinement)
        if self._tree is not None:
            self._tree.groups.put(container, one.wanted)
        self._set_class()
        if one.worker is None and not self._weigh(container, one):
            reach(Point.CONFINE_ASKED)
            one.worker = asyncio.get_running_loop().create_task(self._work(container, one))

    def ends(self, container: str) -> None:
        """Note that a container is about to end: until it has, none of them is behind the host's other processes."""
        if (one := self._containers.get(container)) is not None:
            one.ending = True
            self._set_class()

    def let_end(self, container: str) -> None:
        """As :meth:`ends`, before it is killed: nothing else on the host delays it either (:meth:`Cgroup.let_end`)."""
        self.ends(container)
        if self._tree is not None:
            if (one := self._containers.get(container)) is not None:
                one.first_s = _FIRST_S
                self._regroup(container, structs.replace(one.wanted, cpu_weight=MOST_WEIGHT))
            self._tree.get(container).let_end()

    def is_opportunistic(self, container: str) -> bool:
        """Return whether the container was opportunistic when last confined."""
        return (one := self._containers.get(container)) is not None and one.wanted.opportunistic

    async def settled(self, container: str) -> None:
        """Wait until the kernel has the latest confinement."""
        if (one := self._containers.get(container)) is not None and one.worker is not None:
            await asyncio.wait([one.worker])

    def report(self, container: str) -> None:
        """Report again the settings that are not enforced: one may be asked for only now."""
        if (one := self._containers.get(container)) is not None:
            self._report(container, one)

    async def remove(self, container: str) -> None:
        """Remove a container's network class and its pending changes, once its cgroup is removed."""
        one = self._containers.pop(container, None)
        if one is None:
            return
        self._set_class()
        if one.first_s > 0:
            self._settle_groups()
        # Its worker may still change its class: until `detach` is submitted, no other container may have its slot.
        self._leaving[container] = one
        try:
            if one.worker is not None:
                await asyncio.wait([one.worker])
            if self._network is None or one.slot is None:
                return
            detached = self._network.detach(one.slot, None)
        finally:
            del self._leaving[container]
        self._detaching.add(one.slot)  # or its counters would be read as those of the next one
        try:
            await result_of(detached)
        finally:
            self._detaching.discard(one.slot)

    # ------------------------------------------------------------ all of them

    async def take_back(self, confinements: dict[str, Confinement]) -> None:
        """Register the running containers of an earlier agent. :meth:`confine` then sets their limits again."""
        for slot, (container, confinement) in enumerate(sorted(confinements.items()), start=1):
            self._containers[container] = _Confined(confinement, slot=slot if slot <= MAX_SLOT else None)
            if self._tree is not None:
                self._tree.groups.put(container, confinement)
        self._set_class()
        await self._reconcile_network()

    async def repair(self) -> list[str]:
        """Undo changes by other programs; return a description of them. Grants go on meanwhile."""
        repaired: list[str] = []
        if self._tree is not None:
            for found in chain(self._tree.repairs(), self._repairs(self._tree)):
                repaired += found
                await asyncio.sleep(0)  # hundreds of groups and containers in a row would block the event loop
        return repaired + await self._reconcile_network()

    def retry(self, snapshot: Snapshot) -> None:
        """Continue shrinking where memory could not be reclaimed before and the container uses less now.

        Lower the settings of groups, and the memory.low that protects all containers, to the present sums.
        """
        for container, one in self._containers.items():
            if one.first_s > 0:
                one.first_s -= snapshot.interval_s
                if one.first_s <= 0 and self._tree is not None:
                    self._tree.groups.put(container, structs.replace(one.wanted, cpu_weight=1))
            if one.stuck_at_bytes is None or one.worker is not None:
                continue
            use = snapshot.containers.get(container)
            if use is not None and use.memory_bytes < one.stuck_at_bytes - _WORTH_A_TRY_BYTES:
                one.applied = None
                self.confine(container, one.wanted)
        self._settle_groups()
        self._protect(less=True)

    async def counters(self) -> dict[str, Counters]:
        """Return container → network traffic; empty if it is not counted."""
        if self._network is None:
            return {}
        if self._network.draining:
            await result_of(self._network.sweep())
        by_slot = self._network.counters()
        return {c: by_slot[one.slot] for c, one in self._containers.items() if one.slot in by_slot}

    # ------------------------------------------------------------ inside

    def _repairs(self, tree: CgroupTree) -> Iterator[list[str]]:
        """Repair one container after the other, and yield the settings that were wrong."""
        for container, one in list(self._containers.items()):
            if one.worker is not None or one.ending:
                continue
            if tree.groups.failed(container) != one.groups_failed:
                self._report(container, one)
            if one.again:
                self.confine(container, one.wanted)
            if one.again or one.applied is None or one.stuck_at_bytes is not None:
                continue
            try:
                done = tree.get(container).confine(one.applied)
            except FileNotFoundError:
                continue
            wrong = done.written
            if done.shrink_to_bytes is not None:  # it was raised, and more is in use now
                wrong, one.applied = (*wrong, "memory.max"), None
                self.confine(container, one.wanted)
            yield [f"{name} of {container}" for name in wrong]

    def _weigh(self, container: str, one: _Confined) -> bool:
        """Apply at once a change that only a new rank makes to cgroups, as ranks change often and wait for nothing;
        return whether that is done.
        """
        before, wanted = one.applied, one.wanted
        if self._tree is None or before is None or one.again or self._reshaped(before, wanted):
            return False
        changed = differing(before, wanted)
        if changed - _WEIGHTS or self._tree.groups.due:  # a group is written once for all of its containers
            return False
        try:
            failed = self._tree.get(container).confine(wanted, before).failed
        except OSError:
            return False  # a task finds it again, and reports it
        one.applied = wanted
        self._report_if_new(container, one, without(one.not_enforced, changed) | failed)
        return True

    async def _work(self, container: str, one: _Confined) -> None:
        changed: frozenset[str] = frozenset()
        one.again = False
        try:
            while one.applied != one.wanted:
                self._settle_groups()
                wanted, changed = one.wanted, differing(one.applied, one.wanted)
                failed = await self._apply(container, one, wanted)
                one.applied, one.not_enforced = wanted, without(one.not_enforced, changed) | failed
                self._report(container, one)
        except FileNotFoundError:
            log.debug("confined too late: it has ended", container=container)
        except OSError as error:
            log.error("a container's limits could not be changed", container=container, why=str(error))
            one.again = True
            one.not_enforced |= dict.fromkeys(changed, str(error))
            self._report(container, one)
        finally:
            one.worker = None
        self._protect()

    async def _apply(self, container: str, one: _Confined, wanted: Confinement) -> dict[str, str]:
        if self._tree is None:
            return dict.fromkeys(differing(_PLAIN, wanted), _NO_CGROUPS)
        cgroup, before = self._tree.get(container), one.applied
        if before is not None and self._holds_disks and blk_throttle_workaround.falls(before, wanted):
            standing = structs.replace(wanted, **{name: getattr(before, name) for name in _DISK_RATES})
            at_once = await self._apply(container, one, standing)
            with cgroup.disks_held(wanted):
                await asyncio.sleep(blk_throttle_workaround.SLICE_S)
                return at_once | cgroup.confine(wanted, standing).failed
        changed = differing(before, wanted)
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
        if before is None or self._reshaped(before, wanted):  # a promotion also changes the network class
            if self._network is None or one.slot is None:
                not_enforced |= _without_network(wanted, _NO_NETWORK if self._network is None else _NO_SLOT)
            else:
                unmet = await result_of(self._network.change(one.slot, shape_of(wanted)))
                not_enforced |= unmet
            reach(Point.CONFINE_NETWORK_DONE)
        return not_enforced

    def _reshaped(self, before: Confinement, wanted: Confinement) -> bool:
        """Return whether the network is to be changed. While no link's rate is known, ranks have no effect there; once
        one is, the next :meth:`repair` sets them.
        """
        ranked = self._network is not None and self._network.sharing
        return shape_of(before, ranked=ranked) != shape_of(wanted, ranked=ranked)

    async def _shrink(self, cgroup: Cgroup, one: _Confined, target_bytes: int) -> dict[str, str]:
        """Shrink memory in steps, as far as possible without an OOM kill."""
        shrunk = await asyncio.to_thread(cgroup.shrink_memory, target_bytes)
        reach(Point.CONFINE_MEMORY_SHRUNK)
        if shrunk.memory_max_bytes is not None and shrunk.memory_max_bytes <= target_bytes:
            return {}
        one.stuck_at_bytes = shrunk.memory_max_bytes or shrunk.in_use_bytes
        return {
            "memory_max_bytes": f"memory.max is at {format_bytes(one.stuck_at_bytes)}: "
            f"{format_bytes(shrunk.unreclaimable_bytes)} of it cannot be reclaimed; shrinks further once freed"
        }

    async def _attach(self, cgroup: Cgroup, one: _Confined) -> dict[str, str]:
        if self._network is None:
            return _without_network(one.wanted, _NO_NETWORK)
        taken = self._detaching | {other.slot for other in chain(self._containers.values(), self._leaving.values())}
        one.slot = next((slot for slot in range(1, MAX_SLOT + 1) if slot not in taken), None)
        if one.slot is None:
            return _without_network(one.wanted, _NO_SLOT)
        return await result_of(self._network.attach(one.slot, cgroup.path, shape_of(one.wanted)))

    async def _reconcile_network(self) -> list[str]:
        if self._network is None or self._tree is None:
            return []
        known = {
            one.slot: (self._tree.get(container).path, shape_of(one.wanted))
            for container, one in chain(self._containers.items(), self._leaving.items())
            if one.slot is not None
        }
        repaired = await result_of(self._network.reconcile(known, self._tree.root))
        failed = await result_of(self._network.not_enforced())
        for container, one in self._containers.items():
            if one.slot in failed and one.applied is not None and one.worker is None:  # else its worker reports it
                self._report_if_new(container, one, without(one.not_enforced, _NETWORK) | failed[one.slot])
        return repaired

    def _report_if_new(self, container: str, one: _Confined, not_enforced: dict[str, str]) -> None:
        if not_enforced != one.not_enforced:
            one.not_enforced = not_enforced
            asyncio.get_running_loop().call_soon(self._report, container, one)  # the core may be deciding just now

    def _report(self, container: str, one: _Confined) -> None:
        one.groups_failed = {} if self._tree is None else self._tree.groups.failed(container)
        self._on_confined(container, one.not_enforced | one.groups_failed)

    def _protect(self, *, less: bool = False) -> None:
        self.parent.protect(sum(one.wanted.memory_low_bytes for one in self._containers.values()), less=less)

    def _regroup(self, container: str, confinement: Confinement) -> None:
        if self._tree is not None:
            self._tree.groups.put(container, confinement)
            self._settle_groups()

    def _settle_groups(self) -> None:
        """Apply the changed settings of groups. :meth:`repair` tries again those that fail."""
        if self._tree is not None and self._tree.groups.due:
            for what, why in self._tree.groups.settle().items():
                log.error("a job's cgroup could not be changed", what=what, why=why)

    def _set_class(self) -> None:
        """Put the containers behind the host's other processes while all are opportunistic and none is ending."""
        each = self._containers.values()
        self.parent.make_idle(bool(each) and all(one.wanted.opportunistic and not one.ending for one in each))

    def _with_pids_max(self, confinement: Confinement) -> Confinement:
        """Limit processes even without a request, so that a fork bomb ends in its own container."""
        default = 0 if confinement.borrowed or self._tree is None else self._pids_max()
        unset = default and confinement.pids_max is None
        return structs.replace(confinement, pids_max=default) if unset else confinement


def _without_network(wanted: Confinement, why: str) -> dict[str, str]:
    return {name: why for name in differing(_PLAIN, wanted) if name in _NETWORK}
