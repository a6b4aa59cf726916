"""Gating of unchanged Dask jobs by their hosts' agents; see ``docs/dask.md``.

``penstock.engines.dask.preload`` needs one line of configuration; the plugins do the same from code.
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
