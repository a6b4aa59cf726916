"""One job: a Dask cluster of its own in processes of its own, and its queries one after the other, or all at once.

``python -m bench.tpch.job SPEC``: gets ready, prints ``ready``, waits for a line, runs, writes its result.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psutil

from bench.tpch.frames import Tables
from bench.tpch.queries import QUERIES
from bench.tpch.records import JobResult, JobSpec
from bench.tpch.shares import Share


def main(spec: JobSpec) -> None:
    """Everything, from the start of the workers to the result."""
    Share("", spec.share, spec.cores).join()
    import distributed

    dask: Any = distributed  # its classes have no types for their constructors
    cluster = dask.LocalCluster(
        n_workers=spec.workers,
        threads_per_worker=spec.threads,
        processes=True,
        memory_limit=spec.memory_bytes,
        dashboard_address=":0",
    )
    with cluster, dask.Client(cluster) as client:
        tables = Tables.open(Path(spec.data), spec.scale)
        tables.nation.merge(
            tables.region, left_on="n_regionkey", right_on="r_regionkey"
        ).compute()  # imports, everywhere
        print("ready", flush=True)
        sys.stdin.readline()
        time.sleep(spec.arrives_s)
        in_tasks = task_cpu_s(client)
        began, before = time.monotonic(), cpu_s()
        query_s, rows = {}, {}
        submitted = {number: client.compute(QUERIES[number].plan(tables)) for number in spec.queries if spec.at_once}
        for number in spec.queries:
            query = QUERIES[number]
            started = time.monotonic()
            computed = submitted.pop(number).result() if spec.at_once else query.plan(tables).compute()
            rows[query.name] = len(query.answer(computed))
            query_s[query.name] = time.monotonic() - started
        ended, used = time.monotonic(), cpu_s() - before
        in_tasks = task_cpu_s(client) - in_tasks
    JobResult(spec.name, began, ended, used, in_tasks, query_s, rows).save(Path(spec.result))


def cpu_s() -> float:
    """CPU time of this process and its descendants so far, in seconds."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def task_cpu_s(client: Any) -> float:
    """CPU time of the workers' threads in tasks so far, by the metrics that Dask keeps itself, in seconds."""
    return float(sum(client.run(_digested).values()))


def _digested(dask_worker: Any) -> float:
    return sum(
        float(value)
        for key, value in dask_worker.digests_total.items()
        if isinstance(key, tuple)
        and key[0] == "execute"
        and key[-1] == "seconds"
        and str(key[-2]).endswith("-cpu")  # thread-cpu, and its parts with names of their own, as P2P's
    )


if __name__ == "__main__":
    main(JobSpec.load(Path(sys.argv[1])))
