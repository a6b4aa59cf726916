"""A host that can be measured by ``python -m bench.mix --host``."""

from __future__ import annotations

from bench.mix import door, slurm

#: A host that has everything.
WHOLE = door.Found(
    is_root=True,
    controllers=frozenset({"cpu", "cpuset", "io", "memory", "pids"}),
    has_systemd=True,
    programs=frozenset({
        "ar", "cc", "ip", "make", "setpriv", "tc", "useradd", "userdel", "xz", "apt-get", "tpchgen-cli", *slurm.PROGRAMS
    }),
    has_header=True,
    modules=frozenset({"duckdb", "dask", "pandas", "pyarrow", "distributed"}),
    processors=2,
    memory_bytes=4 << 30,
    free_bytes=100 << 30,
    has_tables=False,
    has_source=False,
    closed=(),
    left=(),
    others=(),
    own_slurm=(),
    penstock="",
)  # fmt: skip
