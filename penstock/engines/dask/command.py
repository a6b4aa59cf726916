"""``penstock dask-worker``: a Dask worker in a container on this host, gated from its start."""

from __future__ import annotations

from penstock.cli import run
from penstock.cli.errors import usage_error

_USAGE = """usage: penstock dask-worker [LIMITS] -- SCHEDULER [OPTIONS OF dask worker]

Start a Dask worker in a container on this host whose tasks, transfers, shuffles and spilling wait for their grants.
Limits are those of `penstock run` (--cpu 2 --memory 4G --name w1 …), which see; what follows -- is for `dask worker`,
the scheduler's address first.

example: penstock dask-worker --cpu 2 --memory 4G -- tcp://10.0.0.1:8786 --nthreads 2 --memory-limit 3.5GB"""


def main(argv: list[str]) -> int:
    """The command; returns the worker's exit status."""
    cut = argv.index("--") if "--" in argv else len(argv)
    if {"-h", "--help"} & set(argv[:cut]):
        print(_USAGE)  # noqa: T201 - a command's help
        return 0
    if not argv[cut + 1 :]:
        raise usage_error("no scheduler given; write for example `penstock dask-worker -- tcp://10.0.0.1:8786`")
    from penstock.engines.dask.cluster import worker_command

    return run.main([*argv[:cut], "--", *worker_command(*argv[cut + 1 :])])
