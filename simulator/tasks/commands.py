"""A node's launcher and monitor: carries out the agent core's instructions about containers on simulated commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Confinement, Promise, confine
from agent.core.events import CpuTimesRead
from agent.core.instructions import ReadCpuTimes
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from simulator.tasks.clock import Clock
from simulator.tasks.machine import Machine
from simulator.tasks.running_command import RunningCommand
from simulator.tasks.usage import Usage
from simulator.tasks.workload import SimulatedCommand

_KILLED = 9
#: A command that gets less than this fraction of its wanted cores counts as stalled (frozen or waiting) in samples.
_STALLED_BELOW = 0.05


@dataclass(slots=True)
class Tally:
    """Counts of the whole cluster's containers. ``opportunistic`` is counted at the first sample, or an earlier end.

    ``resized`` counts changes of the cores that a running container is limited to, or promised.
    """

    started: int = 0
    opportunistic: int = 0
    paused: int = 0
    resized: int = 0
    opportunistic_s: float = 0.0
    container_s: float = 0.0


class Commands:
    """The commands of one node. ``ask`` gives an event to the agent's core; ``find`` maps a container name to its
    simulated command, ``promise_of`` a container to its present promise where that varies.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        ask: Callable[[e.Event], object],
        find: Callable[[str], SimulatedCommand],
        promise_of: Callable[[str], Promise | None],
        usage: Usage,
        tally: Tally,
        *,
        start_s: float,
        sample_s: float,
        look_s: float,
    ) -> None:
        self._clock, self._machine, self._ask, self._find, self._promise_of = clock, machine, ask, find, promise_of
        self._usage, self._tally = usage, tally
        self._start_s, self._sample_s, self._look_s = start_s, sample_s, look_s
        self._begun_s: dict[str, float] = {}
        self._promised: dict[str, tuple[float, int]] = {}  # of regular containers: cores, bytes of memory
        self._used_bytes = 0
        self._memory: dict[str, int] = {}  # peaks
        self._before: dict[str, tuple[float, float]] = {}  # CPU seconds and disk bytes at the last sample
        self._sampled_s = 0.0
        self._last: Snapshot | None = None
        self._sampling = self._looking = self._watched = False
        self._wake = 0

    def carry_out(self, instruction: i.Instruction) -> bool:
        """Carry out an instruction about containers; return False for any other instruction."""
        match instruction:
            case i.StartContainer(container, _, spec, rank_weight):
                self._tally.started += 1
                told = confine(spec, spec.limits, opportunistic=spec.opportunistic, rank_weight=rank_weight)
                self._clock.after(self._start_s, self._started, container, spec.name, told)
            case i.KillContainer(container, _):
                self._clock.soon(self._killed, container)
            case i.Freeze(container, frozen):
                self._tally.paused += frozen
                self._machine.freeze(container, frozen)
            case i.Confine(container, settings):
                if (running := self._machine.running.get(container)) is not None:
                    self._confine(container, running, settings)
                self._clock.soon(self._ask, e.Confined(container, {}))
            case i.Reclaim(container, _):  # simulated commands have no page cache to reclaim
                self._clock.soon(self._ask, e.Reclaimed(container))
            case i.WatchMemory(on):
                self._watched = on
                self._look_again()
            case ReadCpuTimes():
                self._clock.soon(self._read_cpu_times)
            case i.Wake(at):
                self._wake += 1
                self._clock.after(max(0.0, at - self._clock.now_s), self._woken, self._wake)
            case i.Signal() | i.RemoveContainer() | i.Renice():  # the machine regards only cpu.weight
                pass
            case _:
                return False
        return True

    # ------------------------------------------------------------ the launcher

    def _started(self, container: str, name: str, told: Confinement) -> None:
        self._begun_s[container] = self._clock.now_s
        running = RunningCommand(self._find(name), told)
        if not told.opportunistic:
            self._promise(container, running.command.promise)
        self._machine.begin(container, running, lambda: self._exited(container, running, 0, None))
        self._ask(e.ContainerStarted(container, 1, {}, self._clock.now_s))
        if not self._sampling:
            self._sampling = True
            self._clock.after(self._sample_s - self._clock.now_s % self._sample_s, self._sample)
        self._look_again()

    def _confine(self, container: str, running: RunningCommand, settings: Confinement) -> None:
        varying = self._promise_of(container)
        promise = running.command.promise if varying is None else (varying.cpu_cores, varying.memory_bytes)
        before = running.settings.cpu_cores, running.promised_cores
        self._tally.resized += before != (settings.cpu_cores, promise[0])
        self._machine.confine(container, settings, promise[0])
        if not settings.opportunistic:
            self._promise(container, promise)

    def _promise(self, container: str, promise: tuple[float, int] | None) -> None:
        """Change a container's promised cores and bytes of memory; None: the promise ends."""
        before = self._promised.pop(container, None)
        if promise is not None:
            self._promised[container] = promise
        allocated, now_s = self._usage.allocated, self._clock.now_s
        for which, sign in ((before, -1), (promise, 1)):
            if which is not None:
                allocated["cpu"].change(now_s, sign * which[0])
                allocated["memory"].change(now_s, sign * which[1])

    def _killed(self, container: str) -> None:
        running = self._machine.end(container)
        if running is not None:
            self._exited(container, running, 128 + _KILLED, _KILLED)

    def _exited(self, container: str, running: RunningCommand, status: int, signal: int | None) -> None:
        now_s = self._clock.now_s
        self._tally.container_s += now_s - self._begun_s.pop(container)
        self._promise(container, None)
        self._see(running)
        self._before.pop(container, None)
        peak = self._memory.pop(container, 0)
        self._ask(e.ContainerExited(container, status, signal, running.cpu_seconds, peak, 0, now_s))

    def _see(self, running: RunningCommand) -> None:
        if not running.seen:
            running.seen = True
            self._tally.opportunistic += running.opportunistic

    def _woken(self, wake: int) -> None:
        if wake == self._wake:
            self._ask(e.Woken(self._clock.now_s))

    # ------------------------------------------------------------ the monitor

    def _sample(self) -> None:
        """Sample like agent/monitor: at each tick while there are containers, and once after the last has ended."""
        self._last = self._snapshot()
        self._sampled_s = self._clock.now_s
        for running in self._machine.running.values():
            self._see(running)
            self._tally.opportunistic_s += self._sample_s * running.opportunistic
        self._ask(e.Sampled(self._last, self._clock.now_s))
        if self._machine.running:
            self._clock.after(self._sample_s, self._sample)
        else:
            self._sampling = False

    def _snapshot(self) -> Snapshot:
        machine, now_s = self._machine, self._clock.now_s
        interval_s = min(self._sample_s, now_s - self._sampled_s) or self._sample_s
        machine.look()
        uses: dict[str, ContainerUse] = {}
        disk = 0.0
        for container, running in machine.running.items():
            cpu_seconds, disk_bytes = self._before.get(container, (0.0, 0.0))
            self._before[container] = running.cpu_seconds, running.disk_bytes
            cores = (running.cpu_seconds - cpu_seconds) / interval_s
            disk_bytes_per_s = (running.disk_bytes - disk_bytes) / interval_s
            disk += disk_bytes_per_s
            memory = running.memory_bytes()
            self._memory[container] = max(memory, self._memory.get(container, 0))
            wanted, held_back = running.wanted_cores, 1.0 - running.most_speed
            throttled = held_back if running.lacks == "cpu" else 0.0
            waits = 1.0 - running.speed if wanted > 0 and running.cores < _STALLED_BELOW * wanted else 0.0
            uses[container] = ContainerUse(
                cpu_cores=cores,
                memory_bytes=memory,
                memory_unreclaimable_bytes=memory,
                memory_peak_bytes=self._memory[container],
                disk_bytes_per_s=disk_bytes_per_s,
                cpu_seconds=running.cpu_seconds,
                cpu_throttled=throttled,
                cpu_stalled=max(throttled, waits),
                memory_stalled=held_back if running.lacks == "memory" else 0.0,
                disk_stalled=held_back if running.lacks == "disk" else 0.0,
            )
        used_bytes = sum(use.memory_bytes for use in uses.values())
        self._usage.used["memory"].change(now_s, used_bytes - self._used_bytes)
        self._used_bytes = used_bytes
        spec = machine.spec
        whole = spec.disk_bytes_per_s * spec.capacity.disk_slots
        host = HostUse(disk_read_bytes_per_s=disk, disk_busy=min(1.0, disk / whole), network_busy=0.0)
        return Snapshot(now_s, interval_s, host, uses)

    def _read_cpu_times(self) -> None:
        if self._last is None:
            return
        self._machine.look()
        uses = dict(self._last.containers)
        for container, running in self._machine.running.items():
            use = uses.get(container, ContainerUse())
            uses[container] = msgspec.structs.replace(use, cpu_seconds=running.cpu_seconds)
        self._ask(CpuTimesRead(replace(self._last, containers=uses)))

    def _look_again(self) -> None:
        if self._look_s and self._watched and not self._looking:
            self._looking = True
            self._clock.after(self._look_s, self._look)

    def _look(self) -> None:
        """Report memory between two samples, while there is opportunistic work."""
        self._looking = False
        if self._watched and self._last is not None:
            self._machine.look()
            fresh = {
                container: msgspec.structs.replace(use, memory_bytes=self._machine.running[container].memory_bytes())
                for container, use in self._last.containers.items()
                if container in self._machine.running
            }
            snapshot = Snapshot(self._clock.now_s, self._last.interval_s, self._last.host, fresh)
            self._ask(e.MemoryChecked(snapshot, (), self._clock.now_s))
        self._look_again()
