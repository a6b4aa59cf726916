"""HTTP on loopback: the status page and its ``/events``; ``/status``, ``/explain``, ``/snapshot`` (JSON), ``/metrics``
(Prometheus), ``/healthz``, and ``/openapi.json``, which describes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from master import http_documents as documents
from master.explain.recording import Recording
from master.explain.why import UnknownJobError
from master.metrics import MasterCollector, Status
from penstock import openapi
from penstock.openapi import Operation, Refused
from penstock.security.http_access import HttpAccess
from penstock.trouble import Troubles
from penstock.web.history import Resources
from penstock.web.live import Live
from penstock.web.site import RETRY_S, Site

#: Returns the explanation of a job; raises UnknownJobError.
Explain = Callable[[str], dict[str, Any]]
_ABOUT = "What the master knows of the cluster, and why it decides as it does. Reservations can be changed."
#: Largest numbers shown on the page, oldest first; ``/status`` has all.
_MOST_NODES = 500
_MOST_JOBS = 200


class StatusSite:
    """Serves the master's status and the explanations of its decisions."""

    def __init__(
        self,
        status: Status,
        explain: Explain,
        snapshot: Callable[[], Recording],
        registry: CollectorRegistry,
        more: Sequence[Operation] = (),
        resources: Callable[[], Resources] | None = None,
    ) -> None:
        """``more``: operations of other parts; ``resources``: :func:`master.history.resources`, recorded for the page
        (None: only while the page is open).
        """
        self._status = status
        self._explain = explain
        self._snapshot = snapshot
        registry.register(MasterCollector(status))
        self._site = Site(
            title="Penstock master",
            about=_ABOUT,
            page="cluster.html",
            live=Live(lambda: shown(status()), resources),
            registry=registry,
            prefix="penstock_master",
            operations=[*self._operations(), *more],
        )

    @property
    def address(self) -> str:
        """Return the listening address."""
        return self._site.address

    async def listen(self, host: str, port: int, access: HttpAccess | None = None) -> None:
        """Open the port; :attr:`address` returns the chosen one. ``access`` limits the clients (None: every client).

        Raises: OSError: the port is taken.
        """
        await self._site.listen(host, port, access)

    async def listen_when_free(
        self, host: str, port: int, access: HttpAccess | None, troubles: Troubles, retry_s: float = RETRY_S
    ) -> None:
        """As :meth:`listen`; a port used by another process is reported as a trouble, and retried until it is free.

        Raises: OSError: the port is unavailable for another reason.
        """
        await self._site.listen_when_free(host, port, access, troubles, retry_s)

    async def close(self) -> None:
        """Close the port."""
        await self._site.close()

    def _operations(self) -> list[Operation]:
        return [
            Operation(
                path="/status", handler=self._get_status, summary="The status document.", answer=documents.Status
            ),
            Operation(
                path="/explain",
                handler=self._get_explanation,
                summary="Why a job waits.",
                query=documents.ExplainQuery,
                answer=documents.Explanation,
                faults={404: "There is no such job; the line names some that there are."},
            ),
            Operation(
                path="/snapshot",
                handler=self._get_snapshot,
                summary="The state that a scheduling round would see now: what `penstock place` reads.",
                answer=Recording,
                faults={503: "No node is connected."},
            ),
        ]

    async def _get_status(self, request: web.Request) -> web.Response:
        return openapi.json(self._status())

    async def _get_explanation(self, request: web.Request, query: documents.ExplainQuery) -> web.Response:
        try:
            return openapi.json(self._explain(query.job))
        except UnknownJobError as error:
            raise Refused(404, str(error), "job") from None

    async def _get_snapshot(self, request: web.Request) -> web.Response:
        recording = self._snapshot()
        if not recording.nodes:
            raise Refused(503, "no node is connected: there is nothing that a round would see")
        return openapi.json(recording)


def shown(status: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the status that the page shows: the same keys, with limited nodes and jobs, and the numbers of
    the rest in ``more``. Waiting jobs come first, because users ask about those. The page requests the reasons of ranks
    separately, as they change with time.
    """
    nodes, jobs = status["nodes"], status["jobs"]
    waiting_first = sorted(jobs, key=lambda job: jobs[job]["state"] != "waiting")
    return status | {
        "nodes": {name: nodes[name] for name in list(nodes)[:_MOST_NODES]},
        "jobs": {
            job: {key: said for key, said in jobs[job].items() if key != "reason"} for job in waiting_first[:_MOST_JOBS]
        },
        "more": {"nodes": max(0, len(nodes) - _MOST_NODES), "jobs": max(0, len(jobs) - _MOST_JOBS)},
    }
