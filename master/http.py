"""HTTP on loopback: the status page and its ``/events``; ``/status``, ``/explain``, ``/snapshot`` (JSON), ``/metrics``
(Prometheus), ``/healthz``, and ``/openapi.json``, which describes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from aiohttp import web
from msgspec import structs
from prometheus_client import CollectorRegistry

from master import http_documents as documents
from master.explain.recording import Recording
from master.explain.why import JobExplainer, UnknownJobError
from master.http_documents import Status
from master.metrics import MasterCollector
from master.overview import MOST_JOBS, MOST_NODES, waiting_first
from penstock import openapi
from penstock.documents import Resources
from penstock.openapi import Operation, Refused
from penstock.web.live import Live
from penstock.web.site import Site

_ABOUT = "What the master knows of the cluster, and why it decides as it does. Reservations can be changed."


def status_site(
    status: Callable[[], Status],
    totals: Callable[[], Resources],
    explainer: JobExplainer,
    recording: Callable[[], Recording],
    registry: CollectorRegistry,
    more: Sequence[Operation],
) -> Site:
    """Return the site of the master's status and the explanations of its decisions.

    ``totals``: the sums of the nodes' resources; ``more``: operations of other parts.
    """
    registry.register(MasterCollector(status))
    return Site(
        title="Penstock master",
        about=_ABOUT,
        page="cluster.html",
        live=Live(lambda: shown(status()), totals),
        registry=registry,
        prefix="penstock_master",
        operations=[*_operations(status, explainer, recording), *more],
    )


def _operations(
    status: Callable[[], Status], explainer: JobExplainer, recording: Callable[[], Recording]
) -> list[Operation]:
    async def get_status(request: web.Request) -> web.Response:
        return openapi.json(status())

    async def get_explanation(request: web.Request, query: documents.ExplainQuery) -> web.Response:
        try:
            return openapi.json(explainer.document(query.job, time.monotonic()))
        except UnknownJobError as error:
            raise Refused(404, str(error), "job") from None

    async def get_snapshot(request: web.Request) -> web.Response:
        recorded = recording()
        if not recorded.nodes:
            raise Refused(503, "no node is connected: there is nothing that a round would see")
        return openapi.json(recorded)

    return [
        Operation(
            path="/status",
            handler=get_status,
            summary="The status document of the cluster.",
            answer=Status,
            page="master-status.md#status",
        ),
        Operation(
            path="/explain",
            handler=get_explanation,
            summary="Why a job waits.",
            query=documents.ExplainQuery,
            answer=documents.Explanation,
            faults={404: "The job is unknown; `error` names some known ones."},
            page="master-status.md#why-is-my-job-waiting",
        ),
        Operation(
            path="/snapshot",
            handler=get_snapshot,
            summary="The state that a round sees now, without slack, executors and turns: what `penstock place` reads.",
            answer=Recording,
            faults={503: "No node is connected."},
        ),
    ]


def shown(status: Status) -> dict[str, Any]:
    """Return the part of the status that the page shows: the same keys, with limited nodes and jobs, and the numbers of
    the rest in ``more``. The page requests the reasons of ranks separately, as they change with time.
    """
    nodes, jobs = status.nodes, status.jobs
    return structs.asdict(status) | {
        "nodes": dict(islice(nodes.items(), MOST_NODES)),
        "jobs": {
            job: {key: said for key, said in structs.asdict(jobs[job]).items() if key != "reason"}
            for job in waiting_first(jobs)
        },
        "more": {"nodes": max(0, len(nodes) - MOST_NODES), "jobs": max(0, len(jobs) - MOST_JOBS)},
    }
