"""An ordinary Dask script, as a user would write it, but that its tasks note when they ran. It knows nothing of gates.

``python dask_jobs.py JOB[,JOB] SPANS STOP``: each task appends ``began ended`` (CLOCK_MONOTONIC, nanoseconds) to SPANS.
Several jobs run one after the other. After them the cluster stays until a line comes on the standard input.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import dask
from distributed import Client, LocalCluster, get_worker, wait, worker_client

SPANS = Path(sys.argv[2] if len(sys.argv) > 2 else os.devnull)
STOP = Path(sys.argv[3] if len(sys.argv) > 3 else os.devnull)


def note(spans: str, began: int) -> None:
    line = f"{began} {time.monotonic_ns()}\n".encode()
    descriptor = os.open(spans, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)


def work(number: int, spans: str, seconds: float = 0.02) -> int:
    began = time.monotonic_ns()
    time.sleep(seconds)
    note(spans, began)
    return number


def fails(number: int, spans: str) -> int:
    work(number, spans)
    raise ValueError(number)


def parent(number: int, spans: str) -> int:
    work(number, spans)
    with worker_client() as client:
        total = sum(client.gather(client.map(work, range(4), spans=spans, pure=False)))
    work(number, spans)
    return total


async def coroutine(number: int, spans: str) -> int:
    began = time.monotonic_ns()
    await asyncio.sleep(0.02)
    note(spans, began)
    return number


def dies(marker: str, spans: str) -> str:
    """The first time, its worker is killed in the middle of it."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    work(0, spans)
    return get_worker().address


def mixed(client: Client, spans: str) -> None:
    """Results, errors, cancelled tasks, nested tasks, coroutines, another executor."""
    results = client.map(work, range(40), spans=spans, pure=False)
    unwanted = client.map(work, range(30), spans=spans, pure=False)
    # Before any task connects as a client: distributed tells all clients of cancelled keys, and one that is just
    # connecting fails if it reads that together with the scheduler's greeting (2026.8: `assert len(msg) == 1`).
    client.cancel(unwanted)
    errors = client.map(fails, range(6), spans=spans, pure=False)
    parents = client.map(parent, range(4), spans=spans, pure=False)
    coroutines = [client.submit(coroutine, number, spans, pure=False) for number in range(6)]
    with dask.annotate(executor="offload"):
        offloaded = client.map(work, range(4), spans=spans, pure=False)
    assert client.gather(results) == list(range(40))
    assert client.gather(parents) == [6] * 4
    assert client.gather(coroutines) == list(range(6))
    assert client.gather(offloaded) == list(range(4))
    wait(errors)
    assert {future.status for future in errors} == {"error"}


def killed(client: Client, spans: str) -> None:
    """A worker dies in the middle of its tasks."""
    fatal = client.submit(dies, f"{spans}.{os.getpid()}", spans)
    results = client.map(work, range(60), spans=spans, pure=False)
    fatal.result()
    assert client.gather(results) == list(range(60))


def joined(client: Client, spans: str) -> None:
    """Return a P2P join whose partitions note when they are worked on, on workers that spill."""
    import dask.dataframe as frames
    import pandas as pd

    def note_partition(frame: pd.DataFrame) -> pd.DataFrame:
        work(0, spans)
        return frame

    def noted(frame: frames.DataFrame) -> frames.DataFrame:
        # Without `meta` Dask calls the function in the client too, to see the type of its result: that is no task.
        return frame.map_partitions(note_partition, meta=frame._meta)

    keys = pd.Series(range(20_000))
    left = noted(frames.from_pandas(pd.DataFrame({"k": keys, "x": keys * 1.5}), npartitions=8))
    right = noted(frames.from_pandas(pd.DataFrame({"k": keys[::2], "y": 2}), npartitions=7))
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        both = noted(left.merge(right, on="k", how="inner")).persist()
    blobs = client.map(bytes, range(400_000, 400_020))
    wait(blobs)
    assert both.y.sum().compute() == 20_000
    assert sum(client.gather(client.map(len, blobs))) == 8_000_190


def stream(client: Client, spans: str) -> None:
    """Submit tasks until the stop file exists."""
    print("streaming", flush=True)
    while not STOP.exists():
        client.gather(client.map(work, range(12), spans=spans, pure=False))


def main() -> None:
    known = {"mixed": mixed, "killed": killed, "joined": joined, "stream": stream}
    jobs = [known[name] for name in sys.argv[1].split(",")]
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0", host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        for job in jobs:
            job(client, str(SPANS))
        print("worked", flush=True)
        sys.stdin.readline()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
