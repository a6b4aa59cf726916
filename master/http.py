"""HTTP on loopback: the status page and its ``/events``; ``/status``, ``/explain``, ``/snapshot`` (JSON), ``/metrics``
(Prometheus), ``/healthz``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from master.explain.recording import Recording
from master.explain.why import UnknownJobError
from penstock.http_access import HttpAccess
from penstock.web import pages
from penstock.web.history import Resources
from penstock.web.live import Live

Status = Callable[[], dict[str, Any]]
#: Of a job; raises UnknownJobError.
Explain = Callable[[str], dict[str, Any]]
#: The page shows so many, those that were known first; all are in ``/status``.
_MOST_NODES = 500
_MOST_JOBS = 200


class MasterCollector(Collector):
    """Reads one status document per scrape. Labels are bounded: states and reasons; no ids, no nodes."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Nothing is collected at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        status = self._status()
        nodes, jobs = status["nodes"].values(), status["jobs"].values()
        yield _by("nodes", "Nodes.", "state", Counter(node["state"] for node in nodes))
        yield _by("jobs", "Jobs that have not ended.", "state", Counter(job["state"] for job in jobs))
        tasks = {state: status["tasks"][state] for state in ("ready", "placed")}
        yield _by("tasks", "Tasks that have not ended.", "state", tasks)
        for key, text in (
            ("reservable_bytes", "Memory of the connected nodes that jobs may reserve."),
            ("reserved_bytes", "Memory reserved for admitted jobs."),
        ):
            yield GaugeMetricFamily(f"penstock_master_{key}", text, value=status["memory"][key])
        free = sum(max(0, node["memory_free_bytes"]) for node in nodes if node["state"] == "connected")
        yield GaugeMetricFamily("penstock_master_memory_free_bytes", "Memory not promised on any node.", value=free)
        for name, number in status["decisions"].items():
            text = f"Since the start of the master: {name.replace('_', ' ')}."
            yield CounterMetricFamily(f"penstock_master_{name}", text, value=number)
        ends = CounterMetricFamily("penstock_master_tasks_ended", "Tasks that ended.", labels=["by"])
        for by, number in status["tasks"]["ended"].items():
            ends.add_metric([by], number)
        yield ends


def _by(name: str, text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"penstock_master_{name}", text, labels=[label])
    for value, number in sorted(values.items()):
        gauge.add_metric([value], number)
    return gauge


def _json(said: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(said), content_type="application/json", status=status)


class StatusSite:
    """Serves the master's status, and why it decides as it does."""

    def __init__(
        self,
        status: Status,
        explain: Explain,
        snapshot: Callable[[], Recording],
        registry: CollectorRegistry,
        more: Sequence[web.RouteDef] = (),
        resources: Callable[[], Resources] | None = None,
    ) -> None:
        """``more`` are pages that others have; ``resources`` is :func:`master.history.resources`, to be kept for the
        page (None: only while it is watched)."""
        self._status = status
        self._explain = explain
        self._snapshot = snapshot
        self._registry = registry
        self._more = more
        registry.register(MasterCollector(status))
        self._live = Live(lambda: shown(status()), resources)
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def listen(self, host: str, port: int, access: HttpAccess | None = None) -> None:
        """Open the port; :attr:`address` tells which it was. ``access`` says who may look (None: all who can connect).

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(middlewares=access.middlewares if access is not None else ())
        app.on_response_prepare.append(pages.add_headers)
        app.on_shutdown.append(self._hang_up)
        app.add_routes(
            [
                *pages.routes("cluster.html"),
                web.get("/events", self._live.get),
                web.get("/status", self._get_status),
                web.get("/explain", self._get_explanation),
                web.get("/snapshot", self._get_snapshot),
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_health),
                *self._more,
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, host, port, ssl_context=access.ssl if access is not None else None).start()
        self._live.start()
        address = runner.addresses[0]
        self.address = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"

    async def close(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _hang_up(self, app: web.Application) -> None:
        self._live.close()

    async def _get_status(self, request: web.Request) -> web.Response:
        return _json(self._status())

    async def _get_explanation(self, request: web.Request) -> web.Response:
        job = request.query.get("job")
        if not job:
            return _json({"error": "which job? ask for /explain?job=ID; /status lists the jobs"}, 400)
        try:
            return _json(self._explain(job))
        except UnknownJobError as error:
            return _json({"error": str(error)}, 404)

    async def _get_snapshot(self, request: web.Request) -> web.Response:
        return _json(self._snapshot())

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")


def shown(status: dict[str, Any]) -> dict[str, Any]:
    """What of the status the page shows: the same keys, nodes and jobs as far as a page goes, and how many there are in
    ``more``. Jobs that wait come first: of those it is asked why."""
    nodes, jobs = status["nodes"], status["jobs"]
    waiting_first = sorted(jobs, key=lambda job: jobs[job]["state"] != "waiting")
    return status | {
        "nodes": {name: nodes[name] for name in list(nodes)[:_MOST_NODES]},
        "jobs": {job: jobs[job] for job in waiting_first[:_MOST_JOBS]},
        "more": {"nodes": max(0, len(nodes) - _MOST_NODES), "jobs": max(0, len(jobs) - _MOST_JOBS)},
    }
