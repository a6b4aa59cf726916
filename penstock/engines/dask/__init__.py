"""Unchanged Dask jobs in Penstock's order: processes ranked, transfers, spills and tasks gated by their hosts' agents.

Started by: Dask, which loads ``penstock.engines.dask.preload`` by one line of configuration; a program that registers
the plugins or starts a ``PenstockCluster`` (:mod:`.cluster`); ``penstock dask-worker`` (:mod:`.command`).
Documented in docs/dask.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engines.dask.plugin import PenstockSchedulerPlugin, PenstockWorkerPlugin

__all__ = ["PenstockSchedulerPlugin", "PenstockWorkerPlugin"]


def __getattr__(name: str) -> Any:
    """Import on first use: the preload must be importable with any version of distributed, as it fails open."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.plugin"), name)
