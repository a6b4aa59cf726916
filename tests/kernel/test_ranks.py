"""Ranked jobs on a real kernel: the first has what it can use, the last moves on, and a promise is kept beside all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.host_bed import Host, python

pytestmark = pytest.mark.timeout(300)
#: All on one processor: what the machine's host takes from it, it takes from all of them.
BURN = "import os\nos.sched_setaffinity(0, {0})\nprint('up', flush=True)\nwhile True: pass"
SECONDS = 6.0


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("host"), cores=1, job_wait_max_s=1000)  # nobody gets a turn meanwhile
    yield host
    host.close()


@pytest.fixture
def burning(host: Host) -> Iterator[Any]:
    """Start a command that wants a whole processor, and wait until it runs; all are killed at the end."""
    with ExitStack() as ends:

        def start(name: str, *options: str) -> None:
            process = host.start("run", "--name", name, *options, "--", *python(BURN))
            ends.callback(process.wait)
            ends.callback(lambda: host.penstock("kill", host.container(name)["container"]))
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"

        yield start


def used_s(host: Host, names: list[str]) -> dict[str, float]:
    """CPU seconds that each has used within some seconds, from two samples of the kernel's counters."""
    until_ranked(host)
    paths = {name: cpu_stat(host.container(name)["container"]) for name in names}
    before = {name: seconds(path) for name, path in paths.items()}
    time.sleep(SECONDS)  # nothing tells of time that passes
    return {name: seconds(path) - before[name] for name, path in paths.items()}


def until_ranked(host: Host) -> None:
    """The kernel has the weights that the agent has decided upon: a busy machine starts work before that."""
    deadline = time.monotonic() + 60
    while True:
        said = {each["container"]: each["rank"] for each in host.status()["containers"] if each["ended"] is None}
        ranked = {container: rank["weight"] for container, rank in said.items() if rank is not None}
        weighed = {each: int(cpu_stat(each).with_name("cpu.weight").read_text()) for each in ranked}
        if weighed == ranked and len({rank["rank"] for rank in said.values() if rank is not None}) == len(ranked):
            return
        assert time.monotonic() < deadline, (weighed, ranked)
        time.sleep(0.1)


def cpu_stat(container: str) -> Path:
    (path,) = Path("/sys/fs/cgroup").glob(f"**/containers/{container}/cpu.stat")
    return path


def seconds(path: Path) -> float:
    return int(path.read_text().split()[1]) / 1e6


def test_jobs_stand_in_line_for_a_processor(host: Host, burning: Any) -> None:
    names = ["first", "second", "third", "fourth"]
    for name in names:
        burning(name)
    used = used_s(host, names)
    assert used["first"] > 0.8 * sum(used.values()), used
    assert used["second"] > 2 * max(used["third"], used["fourth"]), used
    assert min(used.values()) > 0, "the last stands still"
    ranks = [host.container(name)["rank"] for name in names]
    assert [rank["rank"] for rank in ranks] == [1, 2, 3, 4]
    assert ranks[0]["weight"] > ranks[1]["weight"] > ranks[2]["weight"]


def test_a_promise_is_not_outranked(host: Host, burning: Any) -> None:
    burning("promised", "--cpu", "0.5")
    names = [f"ranked{number}" for number in range(10)]
    for name in names:
        burning(name)
    used = used_s(host, ["promised", *names])
    assert used["promised"] >= 0.98 * 0.5 * sum(used.values()), used
