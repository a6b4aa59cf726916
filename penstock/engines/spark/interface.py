"""Public data about a Spark application: its Worker's and Master's pages, its driver's REST interface.

The Worker puts its own address into the environment of its executors (``SPARK_LOG_URL_STDOUT``). Its page names the
application and the Master; the Master's page of the application names the driver's address; the driver has the stages.
Plain HTTP only: if one of them is disabled (``spark.ui.enabled=false``) or uses TLS, the data behind it is unavailable.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import Any
from urllib.parse import urlsplit

from penstock.model.container import MOST_STAGES
from penstock.wire.agent_api import StageProgress

_TIMEOUT_S = 5.0
#: A driver that is busy, or answers its first request, is slow; a shorter timeout would lose its stages.
_DRIVER_TIMEOUT_S = 30.0
_MAX_BYTES = 32 << 20
_DRIVER_LINK = re.compile(r'href="([^"]+)"[^>]*>\s*Application Detail UI')
_SKIPPED, _COMPLETE = "SKIPPED", "COMPLETE"


class NotPublished(Exception):  # noqa: N818 - data that Spark does not publish is no failure of ours
    """Spark does not publish the data; the message names the server."""


async def fetch(url: str, timeout_s: float = _TIMEOUT_S) -> bytes:
    """Return a page's body.

    Raises:
        NotPublished: no server, too slow, a status other than 200, or too long.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme != "http" or parts.hostname is None:
            raise NotPublished(f"{url}: only plain HTTP is read")
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        async with asyncio.timeout(timeout_s):
            answer = await _get(parts.hostname, parts.port or 80, path)
    except (OSError, ValueError, TimeoutError) as error:
        raise NotPublished(f"{url}: {str(error) or f'no answer within {timeout_s:g} s'}") from None
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200" or len(answer) > _MAX_BYTES:
        raise NotPublished(f"{url}: answers {b' '.join(status[1:]).decode('latin-1') or 'nothing'}")
    return body


async def _get(host: str, port: int, path: str) -> bytes:
    """Send an HTTP/1.0 request: the body ends with the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: */*\r\n\r\n".encode())
        answer = bytearray()
        while len(answer) <= _MAX_BYTES and (part := await reader.read(1 << 16)):
            answer += part
        return bytes(answer)
    finally:
        writer.close()


class Interface:
    """One application, as seen by its executor. ``log_url`` is the executor's ``SPARK_LOG_URL_STDOUT``."""

    def __init__(self, log_url: str, application_id: str) -> None:
        parts = urlsplit(log_url)
        self._worker = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
        self._id = application_id
        self._driver = ""
        self._stages: dict[int, StageProgress] = {}

    async def name(self) -> str:
        """Return ``spark.app.name``.

        Raises:
            NotPublished: the Worker does not publish it.
        """
        worker = await self._worker_page()
        for executor in worker.get("executors", ()):
            if executor.get("appid") == self._id and (name := str(executor.get("appdesc", {}).get("name", ""))):
                return name
        raise NotPublished(f"{self._worker}: does not know {self._id}")

    async def stages(self) -> list[StageProgress]:
        """Return the stages so far, in the order of their numbers, including stages that the driver has dropped.

        Raises:
            NotPublished: the driver does not publish them.
        """
        if not self._driver:
            self._driver = await self._find_driver()
        try:
            listed = _json(await fetch(f"{self._driver}/api/v1/applications/{self._id}/stages", _DRIVER_TIMEOUT_S))
        except NotPublished:
            self._driver = ""  # find it again the next time
            raise
        self._stages |= read_stages(listed)
        return [self._stages[number] for number in sorted(self._stages)[:MOST_STAGES]]

    async def _worker_page(self) -> dict[str, Any]:
        if not self._worker:
            raise NotPublished("SPARK_LOG_URL_STDOUT: not in the executor's environment")
        page = _json(await fetch(f"{self._worker}/json/"))
        return page if isinstance(page, dict) else {}

    async def _find_driver(self) -> str:
        master = str((await self._worker_page()).get("masterwebuiurl", "")).rstrip("/")
        page = await fetch(f"{master}/app/?appId={self._id}")
        link = _DRIVER_LINK.search(page.decode("utf-8", "replace"))
        if link is None:
            raise NotPublished(f"{master}: has no address of the driver of {self._id}")
        return html.unescape(link[1]).rstrip("/")


def read_stages(listed: Any) -> dict[int, StageProgress]:
    """Return the latest attempt of each stage in Spark's ``/stages``, by number; skipped stages are omitted.

    Raises:
        NotPublished: the data has another format.
    """
    attempts: dict[int, tuple[int, StageProgress]] = {}
    try:
        for stage in listed:
            number, attempt, status = int(stage["stageId"]), int(stage["attemptId"]), stage["status"]
            if status == _SKIPPED or attempts.get(number, (-1,))[0] > attempt:
                continue
            tasks = int(stage["numTasks"])
            done = tasks if status == _COMPLETE else min(int(stage["numCompleteTasks"]), tasks)
            attempts[number] = (attempt, StageProgress(stage=str(number), tasks=tasks, done=done))
    except (KeyError, TypeError, ValueError) as error:
        raise NotPublished(f"the driver's stages cannot be read: {error!r}") from None
    return {number: progress for number, (_, progress) in attempts.items()}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise NotPublished(f"no JSON: {error}") from None
