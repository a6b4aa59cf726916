"""The cost of a gate: seconds from the request for a slot to its return, without other requests.

A real agent in a process of its own has a CPU slot for each thread. Beside it the floor, measured in the same run: a
bare MessagePack echo over a Unix socket, and the time to wake another thread's event loop and be woken by it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from bench import _echo
from bench._agent import agent_process, process
from bench.grant_latency import Quantiles
from penstock.client.executor import MonotaskExecutor
from penstock.client.gate import Gate

COUNT = 4000  # of all threads together
WARM_UP = 400
THREADS = (1, 8)
_CONNECT_S = 20.0


def hand_overs() -> list[float]:
    """Seconds to the thread of an event loop and back, with nothing done there."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    seconds = []
    done = threading.Lock()
    done.acquire()
    for _ in range(WARM_UP + COUNT):
        began = time.perf_counter()
        loop.call_soon_threadsafe(done.release)
        done.acquire()
        seconds.append(time.perf_counter() - began)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return seconds[WARM_UP:]


def cycles(gate: Gate, threads: int, count: int = COUNT) -> tuple[list[float], float]:
    """Seconds of each acquire and release, and the seconds that all of them took."""
    found: list[list[float]] = [[] for _ in range(threads)]
    ready = threading.Barrier(threads + 1)

    def work(seconds: list[float]) -> None:
        ready.wait()
        for _ in range(count // threads):
            began = time.perf_counter()
            gate.acquire("cpu", 1).release()
            seconds.append(time.perf_counter() - began)

    workers = [threading.Thread(target=work, args=(seconds,)) for seconds in found]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return [one for seconds in found for one in seconds], time.perf_counter() - began


def calls(gate: Gate, count: int = COUNT) -> float:
    """Seconds per call that does nothing, all submitted to an executor at once."""
    with MonotaskExecutor(gate, max(THREADS)) as executor:
        began = time.perf_counter()
        for future in [executor.submit(int) for _ in range(count)]:
            future.result()
        return (time.perf_counter() - began) / count


def measure(directory: Path) -> Iterator[tuple[str, Quantiles, float]]:
    """Return the name of each measurement, its quantiles, and its rate per second; the floor first."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        echo = directory / "echo.sock"
        with process([sys.executable, "-m", "bench._echo", str(echo), "uvloop"], echo):
            seconds = runner.run(_echo.echoes(echo, COUNT, WARM_UP))
        yield "bare echo (the floor)", Quantiles.of(seconds), COUNT / sum(seconds)
    seconds = hand_overs()
    yield "bare hand-over, and back", Quantiles.of(seconds), COUNT / sum(seconds)
    with (
        agent_process(directory, cores=max(THREADS)) as agent_socket,
        Gate("bench", socket=agent_socket) as gate,
    ):
        if not gate.wait_connected(_CONNECT_S):
            raise RuntimeError("the agent did not answer")
        yield from _of_gate(gate, "gated")
    with Gate("bench", socket=directory / "none", patience_s=0.0, warn=lambda _: None) as gate:
        yield from _of_gate(gate, "agent away")


def _of_gate(gate: Gate, state: str) -> Iterator[tuple[str, Quantiles, float]]:
    for threads in THREADS:
        cycles(gate, threads, WARM_UP)
        seconds, total = cycles(gate, threads)
        yield f"{state}, threads: {threads}", Quantiles.of(seconds), len(seconds) / total
    per_call = calls(gate)
    yield f"{state}, executor, per call", Quantiles(per_call, per_call), 1 / per_call


def main() -> int:
    """Print the table."""
    print(f"{'acquire → release':<30}{'p50 µs':>9}{'p99 µs':>9}{'p50 / floor':>13}{'a second':>11}")
    floor = 0.0
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for what, quantiles, rate in measure(Path(directory)):
            floor = floor or quantiles.p50
            figures = (
                f"{quantiles.p50 * 1e6:>9.1f}{quantiles.p99 * 1e6:>9.1f}{quantiles.p50 / floor:>13.2f}{rate:>11,.0f}"
            )
            print(f"{what:<30}{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
