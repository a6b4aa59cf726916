"""A little object store: the input of applications comes over the network, each stream at a rate of its own.

``GET /NAME?part=I&of=N`` is the I-th of N parts of ``/data/input/NAME``, cut at ends of lines.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

#: include/uapi/asm-generic/socket.h, Linux 3.13; Python 3.11 has no name for it.
_SO_MAX_PACING_RATE = 47


@contextlib.contextmanager
def serving(directory: Path, bytes_per_s: int) -> Iterator[str]:
    """Serve the directory's files on loopback while inside; gives the address, ``http://HOST:PORT/``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            numbers = parse_qs(asked.query)
            file = directory / Path(asked.path).name
            self.connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, bytes_per_s)
            with file.open("rb") as source:
                size, part, parts = file.stat().st_size, int(numbers["part"][0]), int(numbers["of"][0])
                first, last = (_line_at(source, size * each // parts) for each in (part, part + 1))
                self.send_response(200)
                self.send_header("Content-Length", str(last - first))
                self.end_headers()
                self.wfile.flush()
                with contextlib.suppress(ConnectionError):  # the reader has enough
                    self.connection.sendfile(source, first, last - first)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Drop the log, which is not read."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def _line_at(file: BinaryIO, position: int) -> int:
    """Where the first line begins that is not before ``position``."""
    if position == 0:
        return 0
    file.seek(position - 1)
    file.readline()
    return file.tell()
