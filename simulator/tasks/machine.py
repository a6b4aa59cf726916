"""A node's hardware: the shares of cores, disks and link of monotasks and commands, and the time that they take.

A disk monotask has a disk to itself. If agents grant more monotasks than there are disks (agent/queues/resource.py),
these share all disks evenly. Network monotasks share the link evenly; the model covers the receiving side, as in
Ursa §4.2.3. Commands and CPU monotasks share the cores by ``cpu.weight``, like the kernel's scheduler.
A command has the weight of its promise or of its job's rank, and no more than its limits (running_command.py). All work
without a promise has one weight together, which the agent sets (agent/core/ranks.py); within its share the monotasks
come first, as each holds a slot. Commands share the disks among themselves. :func:`share` divides a resource. Commands
and disk or network monotasks on one node do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from agent.core.confinement import Confinement, promised_weight
from agent.core.rank_weights import unpromised_weight
from penstock.model import ResourceKind
from simulator.tasks.clock import Clock
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.running_command import RunningCommand
from simulator.tasks.usage import Level, Usage
from simulator.tasks.workload import SimulatedMonotask

_NEVER = float("inf")


def share(capacity: float, wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the weighted max-min fair shares: none exceeds its demand, and unmet demands get equal shares per weight.

    ``capacity`` and ``wanted`` have the same unit; weights are positive. The capacity is used up or all demand is met.
    """
    given = [0.0] * len(wanted)
    left, weight = capacity, float(sum(weights))
    for index in sorted(range(len(wanted)), key=lambda one: wanted[one] / weights[one]):
        given[index] = max(0.0, min(wanted[index], left * weights[index] / weight if weight > 0 else 0.0))
        left -= given[index]
        weight -= weights[index]
    return given


class Link:
    """A resource that its flows share evenly: a link, disks, or (with ``most_bytes_per_s``) cores.

    A flow gets at most ``most_bytes_per_s``. ``used`` rises by ``amount`` while the whole resource is used.
    """

    def __init__(
        self, clock: Clock, bytes_per_s: float, used: Level, amount: float, most_bytes_per_s: float = float("inf")
    ) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._most_bytes_per_s = most_bytes_per_s
        self._used, self._amount = used, amount
        self._in_use = 0.0  # of the amount
        self._flows: list[tuple[float, int, Callable[[], None]]] = []  # first: the value of `_served` at the flow's end
        self._served = 0.0  # bytes that each flow has received since the link was last idle
        self._at_s = 0.0
        self._wake = 0  # the number of the valid wake-up; earlier ones were for other flows

    def start(self, size_bytes: float, done: Callable[[], None]) -> None:
        """Start a flow; ``done`` is called at its end."""
        now_s = self._clock.now_s
        if self._flows:
            self._served += (now_s - self._at_s) * self._flow_bytes_per_s()
        else:
            self._served = 0.0  # reset when idle, so that rounding errors do not grow with time
        self._at_s = now_s
        heappush(self._flows, (self._served + size_bytes, self._clock.fresh_number(), done))
        self._await()

    def _flow_bytes_per_s(self) -> float:
        return min(self._most_bytes_per_s, self._bytes_per_s / len(self._flows))

    def _await(self) -> None:
        self._wake += 1
        in_use = 0.0
        if self._flows:
            each_bytes_per_s = self._flow_bytes_per_s()
            in_use = self._amount * each_bytes_per_s * len(self._flows) / self._bytes_per_s
            left_bytes = max(0.0, self._flows[0][0] - self._served)
            self._clock.after(left_bytes / each_bytes_per_s, self._ended, self._wake)
        if in_use != self._in_use:
            self._used.change(self._clock.now_s, in_use - self._in_use)
            self._in_use = in_use

    def _ended(self, wake: int) -> None:
        if wake != self._wake:
            return
        self._at_s, self._served = self._clock.now_s, self._flows[0][0]
        ended: list[Callable[[], None]] = []
        while self._flows and self._flows[0][0] <= self._served:
            ended.append(heappop(self._flows)[2])
        self._await()
        for done in ended:
            done()


@dataclass(slots=True, eq=False)
class _Computing:
    """A running CPU monotask. At ``at_s`` it needs another ``left_s`` on a core of its own.

    ``turn`` is the number of the valid end event.
    """

    done: Callable[[], None]
    left_s: float
    at_s: float
    turn: int = 0


class Machine:
    """The hardware of one node."""

    def __init__(self, clock: Clock, spec: NodeSpec, usage: Usage) -> None:
        self.spec = spec
        self.running: dict[str, RunningCommand] = {}  # by container
        self._ended: dict[str, Callable[[], None]] = {}
        self._clock = clock
        self._usage = usage
        self._link = Link(clock, spec.link_bytes_per_s, usage.used["network"], spec.link_bytes_per_s)
        slots, disk_bytes_per_s = spec.capacity.disk_slots, spec.disk_bytes_per_s
        self._disks = Link(clock, slots * disk_bytes_per_s, usage.used["disk"], slots, disk_bytes_per_s)
        self._reading = 0  # disk monotasks
        self._computing: dict[int, _Computing] = {}
        self._monotask_speed = 1.0  # the fraction of a core that each CPU monotask has
        self._monotask_cores = 0.0  # the cores that all CPU monotasks have together
        self._at_s = 0.0
        self._wake = 0
        self._used_cores = 0.0
        self._used_disks = 0.0

    # ------------------------------------------------------------ monotasks

    def execute(self, monotask: SimulatedMonotask, done: Callable[[], None]) -> None:
        """Run a monotask whose slot was granted; ``done`` is called at its end."""
        if monotask.kind is ResourceKind.NETWORK:
            self._link.start(monotask.input_bytes, done)
            return
        now_s = self._clock.now_s
        if monotask.kind is ResourceKind.CPU:
            number = self._clock.fresh_number()
            self._computing[number] = one = _Computing(done, monotask.input_bytes / self.spec.cpu_bytes_per_s, now_s)
            self._usage.allocated["cpu"].change(now_s, 1)
            self._monotasks_changed()
            self._await(number, one)
            return
        self._reads(1)
        self._disks.start(monotask.input_bytes, lambda: self._read(done))

    def _read(self, done: Callable[[], None]) -> None:
        self._reads(-1)
        done()

    def _reads(self, change: int) -> None:
        """Count disk monotasks; monotasks beyond the number of slots have no slot allocated."""
        before, self._reading = self._reading, self._reading + change
        slots = self.spec.capacity.disk_slots
        allocated = min(self._reading, slots) - min(before, slots)
        if allocated:
            self._usage.allocated["disk"].change(self._clock.now_s, allocated)

    def _await(self, number: int, one: _Computing) -> None:
        """Schedule the end of a CPU monotask at the present speed; an earlier end event becomes void."""
        one.turn += 1
        if self._monotask_speed > 0:
            self._clock.after(one.left_s / self._monotask_speed, self._computed, number, one.turn)

    def _computed(self, number: int, turn: int) -> None:
        one = self._computing.get(number)
        if one is None or one.turn != turn:
            return
        del self._computing[number]
        self._usage.allocated["cpu"].change(self._clock.now_s, -1)
        self._monotasks_changed()
        one.done()

    def _monotasks_changed(self) -> None:
        """Share the cores anew because the number of CPU monotasks changed."""
        if self.running:
            self._share_again()
        else:
            self._speed_up(1.0)

    def _speed_up(self, speed: float) -> None:
        """Give each CPU monotask this fraction of a core from now on."""
        now_s, before = self._clock.now_s, self._monotask_speed
        self._monotask_speed = speed
        if speed != before:
            for number, one in self._computing.items():
                one.left_s = max(0.0, one.left_s - (now_s - one.at_s) * before)
                one.at_s = now_s
                self._await(number, one)
        cores = speed * len(self._computing)
        self._usage.used["cpu"].change(now_s, cores - self._monotask_cores)
        self._monotask_cores = cores

    # ------------------------------------------------------------ commands

    def begin(self, container: str, running: RunningCommand, ended: Callable[[], None]) -> None:
        """Start a command; ``ended`` is called when its work is done, not when it is killed."""
        self._advance()
        self._ended[container] = ended
        self.running[container] = running
        self._share_again()

    def end(self, container: str) -> RunningCommand | None:
        """Kill a command and return it; None if it has ended already."""
        self._advance()
        self._ended.pop(container, None)
        gone = self.running.pop(container, None)
        if gone is not None:
            self._share_again()
        return gone

    def confine(self, container: str, settings: Confinement, promised_cores: float) -> None:
        """Change a command's kernel settings and its promised cores."""
        if (running := self.running.get(container)) is not None:
            self._advance()
            running.settings, running.promised_cores = settings, promised_cores
            self._share_again()

    def freeze(self, container: str, frozen: bool) -> None:
        """Freeze or thaw a command."""
        if (running := self.running.get(container)) is not None:
            self._advance()
            running.frozen = frozen
            running.speed = running.cores = running.disk_bytes_per_s = 0.0
            self._share_again()

    def look(self) -> None:
        """Update every command's figures to the present time."""
        self._advance()

    def _advance(self) -> None:
        passed_s = self._clock.now_s - self._at_s
        self._at_s = self._clock.now_s
        if passed_s <= 0:
            return
        for running in self.running.values():
            running.passed_s += passed_s * running.speed
            running.cpu_seconds += passed_s * running.cores
            running.disk_bytes += passed_s * running.disk_bytes_per_s

    def _share_again(self) -> None:
        """Set every command's share from now on, and schedule the end of the next phase."""
        self._advance()
        spec = self.spec
        disk_left = spec.disk_bytes_per_s * spec.capacity.disk_slots
        active = [running for running in self.running.values() if not running.frozen]
        disk_wanted = 0.0
        for running in active:
            running.limit()
            disk_wanted += running.wanted_disk_bytes_per_s
            running.speed = 1.0
        self._share_cores(active)
        if disk_wanted > disk_left:
            isolated = spec.isolated_disk
            weights = [max(0.01, one.promised_cores) if isolated else 1.0 for one in active]
            self._slow_down(active, disk_left, [one.wanted_disk_bytes_per_s for one in active], weights, isolated)
        self._set_off(active, disk_left)

    def _share_cores(self, active: list[RunningCommand]) -> None:
        """Share the cores by weight between promised commands and other regular work, its CPU monotasks first."""
        cores, monotasks = self.spec.capacity.cores, len(self._computing)
        if sum(one.wanted_cores for one in active) + monotasks <= cores:
            self._speed_up(1.0)
            return
        if not monotasks:
            self._slow_down_cores(active, cores)
            return
        promised = [one for one in active if one.promised_cores and not one.opportunistic]
        others = [one for one in active if one not in promised]
        wanted = [one.wanted_cores for one in promised]
        unpromised = monotasks + sum(one.wanted_cores for one in others if not one.opportunistic)
        # Containers that may use more than their promise have a part of the weight of unpromised work, too.
        beyond = sum(max(0, one.settings.cpu_weight - promised_weight(one.promised_cores)) for one in promised)
        weight = max(1, unpromised_weight(cores, sum(one.promised_cores for one in promised)) - beyond)
        weights = [*(float(one.settings.cpu_weight) for one in promised), float(weight)]
        part = share(cores, [*wanted, unpromised], weights)[-1]
        of_monotasks = min(float(monotasks), part)
        self._speed_up(of_monotasks / monotasks)
        self._slow_down_cores(promised, cores - part)
        self._slow_down_cores(others, cores - of_monotasks - min(sum(wanted), cores - part))

    def _slow_down_cores(self, active: list[RunningCommand], cores: float) -> None:
        wanted, weights = [one.wanted_cores for one in active], [float(one.settings.cpu_weight) for one in active]
        self._slow_down(active, cores, wanted, weights, True)

    def _set_off(self, active: list[RunningCommand], disk_bytes_per_s: float) -> None:
        cores = disk = 0.0
        next_s = _NEVER
        for running in active:
            running.speed *= running.most_speed
            wants, speed = running.wants, running.speed
            running.cores = wants.cpu_cores * speed
            running.disk_bytes_per_s = wants.disk_bytes_per_s * speed
            cores += running.cores
            disk += running.disk_bytes_per_s
            next_s = min(next_s, running.next_change_s())
        now_s, disks = self._clock.now_s, disk / disk_bytes_per_s * self.spec.capacity.disk_slots
        self._usage.used["cpu"].change(now_s, cores - self._used_cores)
        self._usage.used["disk"].change(now_s, disks - self._used_disks)
        self._used_cores, self._used_disks = cores, disks
        self._wake += 1
        if next_s < _NEVER:
            self._clock.after(max(0.0, next_s), self._phase_ends, self._wake)

    def _slow_down(
        self,
        active: list[RunningCommand],
        capacity: float,
        wanted: list[float],
        weights: list[float],
        regular_first: bool,
    ) -> None:
        """Share among regular commands by weight, then the rest among opportunistic ones (cpu.idle; UBIS §IV.C)."""
        for opportunistic in (False, True) if regular_first else (None,):
            chosen = [i for i, one in enumerate(active) if opportunistic in (None, one.opportunistic)]
            parts = share(capacity, [wanted[i] for i in chosen], [weights[i] for i in chosen])
            for i, part in zip(chosen, parts, strict=True):
                capacity -= part
                if wanted[i] > 0:
                    active[i].speed = min(active[i].speed, part / wanted[i])

    def _phase_ends(self, wake: int) -> None:
        if wake != self._wake:
            return
        self._advance()
        for container, running in list(self.running.items()):
            while running.speed > 0 and running.phase < len(running.command.phases):
                left_s = running.wants.seconds - running.passed_s
                if left_s > 1e-9 * max(1.0, self._clock.now_s):
                    break
                running.enter(running.phase + 1)
            if running.phase >= len(running.command.phases):
                del self.running[container]
                self._clock.soon(self._ended.pop(container))
        self._share_again()
