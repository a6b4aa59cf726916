"""HTTP on loopback: the status page and its ``/events``; ``/status`` (JSON), ``/metrics`` (Prometheus), ``/healthz``,
and ``/openapi.json``, which describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web
from msgspec import structs

from agent.http_documents import Status
from agent.metrics import registry
from penstock import openapi
from penstock.documents import Resources
from penstock.openapi import Operation
from penstock.ticks import SAME_INSTANT
from penstock.web.live import Live
from penstock.web.site import Site

_ABOUT = "The state of this host, as its agent sees it. Read-only: changes are made on the agent's socket."
#: How many of the latest past items the page shows.
_MOST_ENDED = 20
_MOST_PREEMPTIONS = 20
_MOST_EVENTS = 30
_MOST_JOBS = 100


def status_site(status: Callable[[], Status], resources: Callable[[], Resources]) -> Site:
    """Return the site of one agent's status; ``resources`` is :meth:`agent.core.slack.Slack.by_resource`.

    Its history has no timer: a row is recorded when the agent calls ``resources_changed`` after a sample. The loop's
    lag is measured at whole seconds, when samples are taken, too. So an idle agent wakes once a second.
    """

    async def get_status(request: web.Request) -> web.Response:
        return openapi.json(status())

    of_status = Operation(
        path="/status",
        handler=get_status,
        summary="The status document of the host.",
        answer=Status,
        page="protocol.md#the-status-document",
    )
    return Site(
        title="Penstock agent",
        about=_ABOUT,
        page="node.html",
        live=Live(lambda: shown(status()), resources, has_timer=False),
        registry=registry(status),
        prefix="penstock",
        operations=[of_status],
        phase=SAME_INSTANT,
    )


def shown(status: Status) -> dict[str, Any]:
    """Return the part of the status for the page: the same keys, fewer past items, and their number in ``more``."""
    live = [each for each in status.containers if each.ended is None]
    ended = [each for each in status.containers if each.ended is not None]
    left_out = ("acts", "reaction", "uptime_s", "cores", "memory")
    return {key: value for key, value in structs.asdict(status).items() if key not in left_out} | {
        "containers": live + ended[:_MOST_ENDED],
        "jobs": status.jobs[:_MOST_JOBS],
        "preemptions": status.preemptions[-_MOST_PREEMPTIONS:],
        "events": status.events[-_MOST_EVENTS:],
        "more": {"ended": max(0, len(ended) - _MOST_ENDED), "jobs": max(0, len(status.jobs) - _MOST_JOBS)},
    }
