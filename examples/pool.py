"""Counts the words of files in a pool of processes, one CPU slot of the host each: ``python pool.py SOCKET FILE…``."""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack


def check_server(sock: socket.socket, path: str) -> None:
    """Close a connection to a path where another user may have put a socket, before anything is sent."""
    directory = Path(path).parent.stat()
    server_uid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if not {server_uid, directory.st_uid} <= {0, os.geteuid()} or directory.st_mode & 0o022:
        sock.close()
        raise PermissionError(f"another user may listen at {path}")


class Gate:
    def __init__(self, path: str, job: str = "") -> None:
        self.path, self.job, self.messages = path, job, None

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)
        check_server(self.sock, self.path)
        self.messages = msgpack.Unpacker(self.sock.makefile("rb", buffering=0))
        self.send(2, "hello", protocol=1, client="pool")
        self.send(0, 1, "register_job", name="pool", job=self.job)
        self.job = self.receive(1, 1, None)["job"]

    def send(self, *head: object, **params: object) -> None:
        with suppress(OSError):  # the wait for the answer reports it
            self.sock.sendall(msgpack.packb([*head, [params]]))

    def receive(self, *head: object) -> Any:
        message = next((m for m in self.messages if m[0] == 1 or m[1] in ("grant", "rejected", "error")), [])
        if message[: len(head)] != [*head]:
            raise ConnectionError(message[2] if message else "the agent closed the connection")
        return message[-1]

    def acquire(self, kind: str, input_bytes: int) -> None:
        try:
            if self.messages is None:
                self.connect()
            self.send(2, "submit", job=self.job, monotasks=[{"id": 1, "kind": kind, "input_bytes": input_bytes}])
            self.receive(2, "grant")
        except OSError as error:
            self.messages, self.job = None, ""  # the next one connects again, as a job of its own
            print(f"{os.getpid()}: going on without a grant: {error}", file=sys.stderr)

    def release(self, failed: bool) -> None:
        self.send(2, "complete", job=self.job, monotasks=[{"id": 1, "failed": failed}])


def start_worker(socket_path: str, job: str) -> None:
    """Give each process of the pool a connection of its own, for the job of all."""
    global gate
    gate = Gate(socket_path, job)


def count_words(file: str) -> int:
    """Do the unchanged work, between two lines."""
    failed = True
    gate.acquire("cpu", Path(file).stat().st_size)
    try:
        words = len(Path(file).read_bytes().split())
        failed = False
    finally:
        gate.release(failed)
    return words


def main(socket_path: str, files: Iterable[str]) -> None:
    """Print the words of each file, and of all."""
    parent = Gate(socket_path)
    with suppress(OSError):
        parent.connect()  # the job lives as long as a process is connected that has joined it
    workers = multiprocessing.get_context("spawn").Pool(4, start_worker, (socket_path, parent.job))
    with workers:
        counts = dict(zip(files, workers.imap(count_words, files), strict=True))
    for file, words in counts.items():
        print(f"{words:>10} {file}")
    print(f"{sum(counts.values()):>10} in all")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} SOCKET FILE...")
    main(sys.argv[1], sys.argv[2:])
