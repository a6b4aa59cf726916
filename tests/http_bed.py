"""A real master and a real agent with something of everything, so that their HTTP answers have every field."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from master.prediction import Run, Settings
from master.store import Depository
from master.store.database import Database
from penstock.client.blocking import BlockingAgent
from penstock.model.container import ContainerSpec, Limits
from penstock.model.profile import Profile
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import TaskRequest
from tests.integration.conftest import Daemon, agents_in, masters_in
from tests.security_bed import authority, files, settings

TOKEN = "0123456789abcdef-operator"
RDL = "window(atom(<1GB,1core>,1,1,60s,60),+1s,+2h)"


@dataclass
class Bed:
    """Both daemons, and the job and reservation that they know."""

    agent: Daemon
    master: Daemon
    job: str
    token_file: Path

    def ask(self, daemon: Daemon, method: str, path: str, body: object = None, token: str = TOKEN) -> Any:
        """A JSON document."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{daemon.addresses['http']}{path}"
        request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def bed(directory: Path) -> Iterator[Bed]:
    """Up, over mutual TLS: a task that waits, containers of both classes, one that ended, a reservation, a profile."""
    token_file = directory / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    _remember_runs(directory / "kept.db")
    ca = authority(directory / "ca")
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(masters_in(directory))(
            listen="127.0.0.1:0", http_token_file=token_file, **settings(files(ca, "head", master=True))
        )
        agent = stack.enter_context(agents_in(directory))(
            node="alpha", master=master.addresses["listen"], master_name="head", **settings(files(ca, "alpha"))
        )
        client = stack.enter_context(BlockingAgent.connect(agent.socket))
        yield _filled(Bed(agent, master, "", token_file), client, stack)


def _filled(made: Bed, client: BlockingAgent, stack: contextlib.ExitStack) -> Bed:
    sleep = ("sleep", "300")
    client.launch(ContainerSpec(argv=("true",))).wait()
    limits = Limits(cpu_cores=0.5, memory_max_bytes=2**29)
    running = client.launch(ContainerSpec(argv=sleep, cpu_cores=0.5, memory_bytes=2**29, limits=limits))
    running.follow(Profile(slot_s=3600.0, cpu_cores=(0.5, 0.4), memory_bytes=(2**29, 2**28)))
    client.launch(ContainerSpec(argv=sleep, opportunistic=True, cpu_cores=0.1, memory_bytes=2**20))
    job = client.register_job("nightly", memory_bytes=2**20)
    made.job = job.id
    job.admitted()
    stack.enter_context(job.monotask(ResourceKind.DISK, 2**20, stage="read"))
    tasks = [TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=300 * 2**20) for name in ("c-1", "c-2")]
    job.place("count", tasks)  # beside the container there is room for one
    job.placed("c-1")
    made.ask(made.master, "POST", "/reservations", {"rdl": RDL, "user": "eve", "name": "nightly"})
    return made


def _remember_runs(path: Path) -> None:
    database = Database(str(path))
    used = np.full((4, 6), 0.5)
    for number in range(4):
        run = Run(Settings(2**20 * (1 + number // 2), 1.0, 2**28), used, 2 * used)
        Depository(database).add("eve/word count", run, ended_at=1e9 + number, slot_s=3.0, name=f"run-{number}")
    database.close()
