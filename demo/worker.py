"""A worker: the process that executes a job's monotasks and keeps their output partitions (Ursa's JP, §4.1.4).

It is forked before its job has any thread. It reads commands as JSON lines from its manager and hands each to the lane
of its resource; the lanes are threads, so that it can read and pull while it computes. One CPU monotask at a time: the
interpreter has one lock.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from demo import exchange
from demo.corpus import Corpus
from demo.operations import OPERATIONS, Cut
from penstock.model.units import counted

#: The lane of each command, by the resource that it uses. ``peers`` needs none.
LANES = {"read": "disk", "map": "cpu", "pull": "network", "merge": "cpu", "write": "disk"}
#: A read or a pull that is over shall not wait long for the interpreter that computes: it holds its disk or its link.
_SWITCH_S = 0.0005


class Spawned(NamedTuple):
    """A worker as its manager sees it."""

    pid: int
    socket: socket.socket
    port: int


class Worker:
    """The data that a worker holds and its operations on it. Each command returns the facts that its manager needs."""

    def __init__(self, corpus: Corpus, operation: str, directory: Path, token: bytes) -> None:
        self._corpus = corpus
        self._operation = OPERATIONS[operation]
        self._cut = Cut(len(corpus.ends) + 1, corpus.ends)
        self._directory = directory
        self.token = token
        self.ports: list[int] = []
        self._texts: dict[int, bytes] = {}
        self.outputs = exchange.Outputs(self._cut.reducers)
        self._pulled: dict[int, list[bytes]] = {}
        self._results: dict[int, bytes] = {}

    def read(self, task: int) -> int:
        """Disk: read an input partition, from the disk and not from the page cache."""
        partition = self._corpus.partitions[task]
        file = os.open(partition.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            text = os.read(file, partition.size)
        finally:
            os.close(file)
        if len(text) != partition.size:
            raise ValueError(f"{partition.path} has changed: {len(text)} of {counted(partition.size, 'byte')}")
        self._texts[task] = text
        return len(text)

    def map(self, task: int) -> list[int]:
        """CPU: the operation's map. The size of the output for each reducer."""
        blobs = self._operation.map(self._texts.pop(task), self._corpus.partitions[task].documents, self._cut)
        for partition, blob in enumerate(blobs):
            self.outputs.add(partition, task, blob)
        return [len(blob) for blob in blobs]

    def pull(self, task: int) -> int:
        """Network: one partition from every producing worker."""
        self._pulled[task] = exchange.pull(self.ports, self.token, task)
        return sum(map(len, self._pulled[task]))

    def merge(self, task: int) -> int:
        """CPU: the operation's merge. The size of the output."""
        self._results[task] = self._operation.merge(self._pulled.pop(task))
        return len(self._results[task])

    def write(self, task: int) -> int:
        """Disk: write the output, and wait until the disk reports it as written."""
        result = self._results.pop(task)
        with (self._directory / f"part-{task:04d}").open("wb", buffering=0) as file:
            view = memoryview(result)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        return len(result)


def spawn(make: Callable[[], Worker]) -> Spawned:
    """Fork a worker. Call it before any thread exists."""
    ours, theirs = socket.socketpair()
    listener = exchange.listen()
    pid = os.fork()
    if pid:
        theirs.close()
        port = listener.getsockname()[1]
        listener.close()
        return Spawned(pid, ours, port)
    status = 1
    try:
        ours.close()
        gc.disable()  # nothing here makes cycles, and indexes are many small objects
        sys.setswitchinterval(_SWITCH_S)
        _serve(make(), theirs, listener)
        status = 0
    except BaseException:  # noqa: BLE001 - the root of the forked process, which must never return into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(worker: Worker, manager: socket.socket, listener: socket.socket) -> None:
    """Serve until the manager closes its end."""
    server, leash = _server(worker, manager, listener)
    lock = threading.Lock()
    lanes: dict[str, queue.SimpleQueue[tuple[str, int]]] = {}
    for name in set(LANES.values()):
        lanes[name] = queue.SimpleQueue()
        threading.Thread(target=_lane, args=(worker, lanes[name], manager, lock), daemon=True).start()
    with manager.makefile("rb") as commands:
        for line in commands:
            command = json.loads(line)
            if command["do"] == "peers":
                worker.ports = command["ports"]
                # How much CPU time the process took before it had anything to do.
                with lock:
                    manager.sendall(json.dumps({**command, "result": time.process_time()}).encode() + b"\n")
            else:
                lanes[LANES[command["do"]]].put((command["do"], command["task"]))
    os.close(leash)
    os.waitpid(server, 0)  # so that its CPU time is the job's


def _server(worker: Worker, manager: socket.socket, listener: socket.socket) -> tuple[int, int]:
    """Fork the process that serves the worker's output. Its process id, and the descriptor that ends it if closed."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        listener.close()
        return pid, ours
    os.close(ours)
    manager.close()
    exchange.serve(listener, worker.token, worker.outputs, theirs)
    os._exit(0)


def _lane(
    worker: Worker, commands: queue.SimpleQueue[tuple[str, int]], manager: socket.socket, lock: threading.Lock
) -> None:
    while True:
        do, task = commands.get()
        answer: dict[str, Any] = {"do": do, "task": task}
        cpu = time.thread_time()
        try:
            answer["result"] = getattr(worker, do)(task)
        except Exception as error:  # noqa: BLE001 - the root of a monotask: its manager gets every error
            answer["error"] = f"{do} of task {task}: {type(error).__name__}: {error}"
        answer["cpu_s"] = time.thread_time() - cpu
        with lock:
            manager.sendall(json.dumps(answer).encode() + b"\n")
