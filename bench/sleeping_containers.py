"""The cost of idle containers for their agent: percent of one core, by their number.

Each is a ``sleep``. The host's limits on processes must allow for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench._agent import agent_and_pid
from bench.page_cost import SETTLE_S, Daemon, cost
from penstock.client import AgentClient
from penstock.model import ContainerSpec

NUMBERS = (0, 300, 1_000)
#: The period of the agent's repairs: in each window there is one.
MEASURED_S = 30.0
BAR_PERCENT = 3.0
_SLEEP = ContainerSpec(argv=("sleep", "86400"), cpu_cores=0.001, memory_bytes=1 << 20)
#: So many are started at once.
_AT_ONCE = 20


@contextlib.asynccontextmanager
async def sleeping(socket: Path, number: int) -> AsyncIterator[None]:
    """So many containers."""
    async with await AgentClient.connect(socket, client="bench") as agent:
        started = []
        for first in range(0, number, _AT_ONCE):
            many = min(_AT_ONCE, number - first)
            started += await asyncio.gather(*(agent.launch(_SLEEP) for _ in range(many)))
        await asyncio.sleep(SETTLE_S)
        yield
        for container in started:
            await container.kill()
        for container in started:
            await container.wait()


async def measure(socket: Path, pid: int, number: int) -> float:
    """Percent of a core that the agent takes beside so many containers."""
    async with sleeping(socket, number):
        return (await cost({"agent": Daemon(pid, "")}, 0, MEASURED_S))["agent"].percent


def main() -> int:
    """Print the table; 1 where the most of them cost more than the bar."""
    print(f"{'sleeping containers':<24}{'% of a core':>12}")
    percent = 0.0
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        socket, pid = stack.enter_context(agent_and_pid(directory, cores=4, memory_bytes=8 << 30))
        for number in NUMBERS:
            percent = asyncio.run(measure(socket, pid, number))
            print(f"{number:<24}{percent:>12.2f}", flush=True)
    met = percent <= BAR_PERCENT
    print(f"bar: {NUMBERS[-1]} cost ≤ {BAR_PERCENT:g} % of a core: {'met' if met else 'NOT met'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
