"""``penstock dask-worker``: a Dask worker in a container on this host, gated from its start."""

from __future__ import annotations

from penstock.cli import run
from penstock.cli.errors import usage_error

_ABOUT = "Start a Dask worker in a container here whose tasks, transfers, shuffles and spilling wait for their grants."
_OPERAND = ("-- SCHEDULER [ARGUMENT…]", "the scheduler's address, then further arguments of `dask worker`")


def main(argv: list[str]) -> int:
    """Run the command; return the worker's exit status."""
    cut = argv.index("--") if "--" in argv else len(argv)
    if {"-h", "--help"} & set(argv[:cut]):
        run.parser("dask-worker", _ABOUT, _OPERAND).print_help()
        return 0
    if not argv[cut + 1 :]:
        raise usage_error(
            "no scheduler given, and its address is required; write for example `penstock dask-worker -- tcp://10.0.0.1:8786`"
        )
    from penstock.engines.dask.cluster import worker_command

    return run.main([*argv[:cut], "--", *worker_command(*argv[cut + 1 :])])
