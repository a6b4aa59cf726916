"""Jobs in containers of a real agent without a master: they are ordered by the priorities that they register."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from penstock.client.blocking import BlockingAgent, BlockingContainer
from penstock.model import ContainerSpec
from tests.cgroup_paths import container_cgroup
from tests.kernel.host_bed import python
from tests.kernel.warm_bed import Bed

TIMEOUT_S = 120.0
#: All of a test's processes are on one processor: time that the machine's host takes from it is taken from all of them.
BURN = """
import os
os.sched_setaffinity(0, {0})
print("up", flush=True)
while True: pass
"""
#: The beginning of a script that registers a job of its own. Its arguments are the agent's socket and the priority.
REGISTERS = """
import os, sys, time
from pathlib import Path
from penstock.client.blocking import BlockingAgent
agent = BlockingAgent.connect(Path(sys.argv[1]), "test")
job = agent.register_job("job", priority=float(sys.argv[2]))
def told():
    return sys.stdin.readline().strip()
def say(what):
    print(what, flush=True)
"""


class Process:
    """A process in a container of its own, which prints lines and reads lines."""

    def __init__(self, container: BlockingContainer, output: int, stdin: int) -> None:
        self.container = container
        self._output, self._stdin = output, stdin
        self._rest = b""

    @property
    def cgroup(self) -> Path:
        """Return the cgroup in which the kernel counts the use of this process."""
        path = container_cgroup(Path("/sys/fs/cgroup"), self.container.id)
        assert path is not None, f"{self.container.id} has no cgroup"
        return path

    def cpu_s(self) -> float:
        """CPU seconds that it was charged."""
        return int((self.cgroup / "cpu.stat").read_text().split()[1]) / 1e6

    def line(self, timeout_s: float = TIMEOUT_S) -> str:
        """Return the next line that the process prints.

        Raises:
            TimeoutError: the process prints none.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{self.container.id} said {self._rest!r} and no more in {timeout_s:g} s")
            piece = os.read(self._output, 1 << 16)
            assert piece, f"{self.container.id} ended, having said {self._rest!r}"
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def tell(self, line: object = "") -> None:
        """Send it a line."""
        os.write(self._stdin, f"{line}\n".encode())

    def close(self) -> None:
        """Kill it, and wait for that."""
        self.container.kill()
        self.container.wait()
        os.close(self._output)
        os.close(self._stdin)


class RankedBed(Bed):
    """A :class:`Bed` whose containers are ranked."""

    def __init__(self, directory: Path, **settings: object) -> None:
        chosen = {"job_wait_max_s": 1000, "repair_interval_s": 0, "sample_interval_s": 0.2, "preempt_dry_run": True}
        super().__init__(directory, **{**chosen, **settings})
        self.socket = directory / "run" / "agent.sock"
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        super().__enter__()
        self._client = BlockingAgent.connect(self.socket, "test")
        return self

    def without_quota(self) -> Self:
        """Take away the quota above all containers, which is there where ``cores`` are fewer than the host's.

        Since Linux 6.18 the last would never run beside one (docs/ranks.md).
        """
        (limit,) = Path("/sys/fs/cgroup").glob("**/containers/cpu.max")
        limit.write_text("max")
        return self

    def begin(self, script: str, *arguments: object, **spec: Any) -> Process:
        """Start a script of the standard library, in a container that is a job of its own."""
        return self._launch([*python(script), *map(str, arguments)], spec)

    def begin_job(self, script: str, priority: float, **spec: Any) -> Process:
        """Start a script that registers a job of this priority before all else."""
        return self._launch([sys.executable, "-c", REGISTERS + script, str(self.socket), str(priority)], spec)

    def hogs(self, count: int = 10, script: str = BURN) -> list[Process]:
        """So many jobs, each of which wants a whole processor; they run."""
        started = [self.begin(script) for _ in range(count)]
        assert [each.line() for each in started] == ["up"] * count
        return started

    def rank(self, process: Process) -> dict[str, Any] | None:
        """Return the container's rank in the status."""
        containers = self.status()["containers"]
        said: dict[str, Any] | None = next(c["rank"] for c in containers if c["container"] == process.container.id)
        return said

    def until_ranked(self, holds: Callable[[], bool] = lambda: True) -> None:
        """Wait until that holds, and the kernel has the weights that the agent has decided upon."""
        self.until(lambda: holds() and all(self._weighed()), TIMEOUT_S)

    def _weighed(self) -> Iterator[bool]:
        for process in self._processes:
            said = self.rank(process)
            if said is not None:
                yield int((process.cgroup / "cpu.weight").read_text()) == said["weight"]

    def clear(self) -> None:
        """End all work."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.close()
        super().clear()

    def __exit__(self, *error: object) -> None:
        self.clear()
        self._client.close()
        super().__exit__(*error)

    def _launch(self, argv: list[str], spec: dict[str, Any]) -> Process:
        read_out, out = os.pipe()
        stdin, write_in = os.pipe()
        with contextlib.ExitStack() as ours:
            ours.callback(os.close, out)
            ours.callback(os.close, stdin)
            made = self._client.launch(ContainerSpec(argv=tuple(argv), **spec), (stdin, out, 2))
        process = Process(made, read_out, write_in)
        self._processes.append(process)
        return process
