"""Gates an unchanged Dask job: list this module in ``distributed.worker.preload`` or ``distributed.scheduler.preload``.

In the environment: ``DASK_DISTRIBUTED__WORKER__PRELOAD='["penstock.engines.dask.preload"]'``. The scheduler's preload
also gates its workers, without further configuration. In ``distributed.client.preload`` it ranks the client's process,
in ``distributed.nanny.preload`` that of a nanny before its workers start, once its cluster has a job on the host.
"""

from __future__ import annotations

import logging
from typing import Any

_LOG = logging.getLogger(__name__)
_lenders: dict[int, Any] = {}  # of clients and nannies, by their ids


async def dask_setup(server: Any) -> None:
    """Called by Dask when a worker, a nanny or a scheduler listens, or a client is connected."""
    try:
        from distributed import Client, Nanny, Scheduler, Worker

        from penstock.engines.dask.plugin import NAME, PenstockSchedulerPlugin, PenstockWorkerPlugin, lend_this
    except ImportError as error:  # an untested version of distributed: fail open
        _LOG.warning("nothing is gated: %s", error)
        return
    if isinstance(server, Worker):
        await server.plugin_add(plugin=PenstockWorkerPlugin(), name=NAME)
    elif isinstance(server, Scheduler):
        plugin = PenstockSchedulerPlugin()
        server.add_plugin(plugin, name=NAME)
        await plugin.start(server)
    elif isinstance(server, Client | Nanny):
        other: Any = server
        _lenders[id(other)] = lend_this(
            lambda: other.scheduler.get_metadata(keys=["penstock"], default=None),
            starts_workers=isinstance(server, Nanny),
        )


async def dask_teardown(server: Any) -> None:
    """Called by Dask when one of these closes; the plugins have been removed before."""
    if (lender := _lenders.pop(id(server), None)) is not None:
        lender.stop()
