"""Pages of a Spark Worker, Master and driver, all at one address, for tests of their readers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

APPLICATION = "app-20261122024815-0005"


class SparkPages:
    """``stages`` is the answer of the driver's REST interface; None: there is no such page."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = "word count"
        self.stages: list[dict[str, Any]] | None = []
        self.asked: list[str] = []

    @property
    def log_url(self) -> str:
        """Return the value that the Worker puts into its executors' environment."""
        return f"{self.address}/logPage/?appId={APPLICATION}&executorId=0&logType=stdout"

    def body(self, path: str) -> str | None:
        """A page, if there is one."""
        self.asked.append(path)
        if path == "/json/":
            executors = [{"id": 0, "appid": APPLICATION, "appdesc": {"name": self.name, "cores": 2}}]
            return json.dumps({"masterwebuiurl": self.address, "executors": executors})
        if path == f"/app/?appId={APPLICATION}":
            return f'<li><strong>\n<a href="{self.address}">Application Detail UI\n</a></strong></li>'
        if path == f"/api/v1/applications/{APPLICATION}/stages" and self.stages is not None:
            return json.dumps(self.stages)
        return None


def stage(number: int, tasks: int, done: int, status: str = "ACTIVE", attempt: int = 0) -> dict[str, Any]:
    """One of the driver's stages, as far as it is read."""
    return {
        "stageId": number, "attemptId": attempt, "status": status, "numTasks": tasks, "numCompleteTasks": done,
        "name": "collect at job.py:7",
    }  # fmt: skip


@contextmanager
def spark_pages() -> Iterator[SparkPages]:
    """They are served on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.body(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pages = SparkPages(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield pages
        finally:
            server.shutdown()
            serving.join()
