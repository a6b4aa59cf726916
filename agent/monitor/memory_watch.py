"""Memory between two samples: a cheap check while opportunistic work runs, and the kernel's notice of memory pressure.

With a sample a second, urgent memory would be freed up to a second late. The check reads two kept descriptors; only if
it finds more than T_preempt is the memory examined in full. Pressure (PSI, Linux 4.20) is watched for promised
containers only: stalls of opportunistic work need no action, and node-wide pressure cannot tell contention from the
containers' own limits (docs/kernel.md).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from agent.cgroups import CgroupTree
from agent.cgroups.filesystem import PASSING
from agent.cgroups.pressure import MEMORY_STALL_US, MEMORY_WINDOW_US, PressureTrigger

log = structlog.get_logger()
#: Delay after a check that led to no action.
_FRUITLESS_S = 0.25
#: Delay after a check that failed.
_FAILED_S = 5.0
#: A processor is not given more memory in a second, as the kernel clears each page (docs/benchmarks/kernel.md).
_GROWTH_BYTES_PER_S = 10 * (1 << 30)
#: The longest time between two looks.
_LONGEST_S = 0.5


def pause_s(below_bytes: float, interval_s: float, processors: int) -> float:
    """Return how long after a look the next one is due: when all processors together could have taken what is left.

    ``below_bytes``: how much more the containers may take until their memory is worth a look. ``interval_s``: the
    shortest time between two looks.
    """
    return max(interval_s, min(below_bytes / (processors * _GROWTH_BYTES_PER_S), _LONGEST_S))


class MemoryWatch:
    """Calls ``look`` when all containers together exceed ``above_bytes``, and for each container under memory pressure;
    ``look`` takes the containers that stall, and returns whether it did anything.
    """

    def __init__(
        self, tree: CgroupTree, interval_s: float, above_bytes: float, look: Callable[[tuple[str, ...]], bool]
    ) -> None:  # fmt: skip
        self._tree = tree
        self._interval_s = interval_s
        self._above_bytes = above_bytes
        self._on = asyncio.Event()
        self._look = look
        self._triggers: dict[str, PressureTrigger] = {}
        self.available = True  # whether this kernel reports pressure to the agent

    def reconfigure(self, interval_s: float, above_bytes: float) -> None:
        """Replace the constructor's settings from the next check on."""
        self._interval_s, self._above_bytes = interval_s, above_bytes

    def switch(self, on: bool) -> None:
        """Start or pause the checks: without opportunistic work that could free memory they are useless."""
        (self._on.set if on else self._on.clear)()

    async def run(self) -> None:
        """Check memory until cancelled."""
        loop = asyncio.get_running_loop()
        rests_until = below_bytes = 0.0
        while True:
            if not self._on.is_set():
                await self._on.wait()
                below_bytes = 0.0
            await asyncio.sleep(pause_s(below_bytes, self._interval_s, os.cpu_count() or 1))
            try:
                below_bytes = self._below_bytes()
                if loop.time() >= rests_until and below_bytes < 0 and not self._look(()):
                    rests_until = loop.time() + _FRUITLESS_S
            except OSError as error:  # out of descriptors: the next sample reports it, too
                log.warning("memory could not be read", why=str(error))
                rests_until = loop.time() + _FAILED_S

    def _below_bytes(self) -> float:
        """How much the containers may still take until a look is worth it; negative: it is.

        Page cache that the kernel drops first does not count; it takes a second, dearer read to know it.
        """
        current = self._tree.memory_current()
        if current is not None and current > self._above_bytes:
            current = self._tree.memory_working_set()
        return math.inf if current is None else self._above_bytes - current

    # ------------------------------------------------------------ pressure

    def promised(self, containers: Iterable[str]) -> None:
        """Watch the pressure of these containers, of new ones only while the checks are on.

        A trigger stays until its container is gone: the kernel takes 10 ms to close one, in the calling thread.
        """
        wanted = set(containers) if self.available else set()
        for container in self._triggers.keys() - wanted:
            self._stop_watching(container)
        for container in wanted - self._triggers.keys() if self._on.is_set() else ():
            self._watch(container, self._tree.get(container).path)

    def close(self) -> None:
        """Stop watching all containers."""
        self.promised(())

    def _watch(self, container: str, cgroup: Path) -> None:
        try:
            trigger = PressureTrigger(cgroup / "memory.pressure", MEMORY_STALL_US, MEMORY_WINDOW_US)
        except FileNotFoundError:
            return  # it ended, or the kernel has no PSI, which `penstock check` reports
        except OSError as error:
            self.available = error.errno in PASSING  # tried again with the next sample
            log.warning("memory pressure is not watched", why=str(error))
            return
        self._triggers[container] = trigger
        asyncio.get_running_loop().add_reader(trigger.fileno(), self._pressed, container)

    def _pressed(self, container: str) -> None:
        fired = self._triggers[container].fired()
        if fired is None:
            self._stop_watching(container)
        elif fired and self._on.is_set():
            self._look((container,))

    def _stop_watching(self, container: str) -> None:
        trigger = self._triggers.pop(container)
        asyncio.get_running_loop().remove_reader(trigger.fileno())
        trigger.close()
