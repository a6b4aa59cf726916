"""Ranked jobs on a real kernel: the first gets all that it can use, the last makes progress, and a promise is kept
beside all.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agent import disk_scheduler
from bench.enforcement.guest import slow_directory
from penstock.client.blocking import BlockingAgent
from penstock.model import ContainerSpec
from tests.kernel.host_bed import Host, python, until

pytestmark = pytest.mark.timeout(300)
#: All are on one processor: time that the machine's host takes from it is taken from all of them.
BURN = "import os\nos.sched_setaffinity(0, {0})\nprint('up', flush=True)\nwhile True: pass"
#: Four threads read a file around the page cache, again and again.
READ = """
import mmap, os, sys, threading
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
def read():
    block = mmap.mmap(-1, 65536)
    while True:
        for offset in range(0, 16 << 20, 65536):
            os.preadv(file, [block], offset)
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
print('up', flush=True)
"""
SECONDS, WINDOWS = 6.0, 4
K = TypeVar("K")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One core, of which no other container takes a share; the slow disk has a scheduler that applies weights."""
    directory = tmp_path_factory.mktemp("host")
    assert disk_scheduler.choose("bfq", ["nullb0"], directory / "before") == {}
    host = Host(directory, cores=1, job_wait_max_s=1000, repair_interval_s=0)
    # That core is a quota above all containers. A quota that runs out takes all tasks off the processor ten times a
    # second (since Linux 6.18 each task, not the group: kernel/sched/fair.c, throttle_task), and a task that returns
    # gets a new deadline, which at weight 1 lies half a second ahead. So the last would never run.
    (limit,) = Path("/sys/fs/cgroup").glob("**/containers/cpu.max")
    limit.write_text("max")
    yield host
    host.close()


@pytest.fixture
def burning(host: Host) -> Iterator[Any]:
    """Start a command that wants a whole processor, and wait until it runs; all are killed at the end."""
    with ExitStack() as ends:
        yield starter(host, ends)


def starter(host: Host, ends: ExitStack) -> Callable[..., None]:
    """The type of the value that the fixture ``burning`` yields."""
    started: dict[str, subprocess.Popen[str]] = {}

    @ends.callback
    def end() -> None:
        host.penstock("kill", *(host.container(name)["container"] for name in started))
        for process in started.values():
            process.wait()

    def start(name: str, *options: str, program: str = BURN, arguments: tuple[str, ...] = ()) -> None:
        process = host.start("run", "--name", name, *options, "--", *python(program), *arguments)
        started[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"

    return start


LENDS = """
import sys
from pathlib import Path
from penstock.client.gate import Gate
place = Path("/proc/self/cgroup").read_text()
gate = Gate("lent", socket=Path(sys.argv[1]), patience_s=60, rank=True, warn=lambda text: print(text, flush=True))
gate.wait_connected(60)
print(gate.job, flush=True)
if sys.argv[2] == "burn":
    while True: pass
sys.stdin.readline()
inside = Path("/proc/self/cgroup").read_text()
gate.close(done=True)
gate.wait_closed(60)
while Path("/proc/self/cgroup").read_text() != place: pass
print("lent" if inside != place else "never lent", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def lending(host: Host) -> Iterator[Any]:
    """Start a process outside all containers that lends itself for a job of its own; all are killed at the end."""
    with ExitStack() as ends:

        def start(what: str) -> tuple[subprocess.Popen[str], str]:
            process = subprocess.Popen(
                [sys.executable, "-c", LENDS, str(host.socket), what],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ends.callback(process.wait)
            ends.callback(process.kill)
            assert process.stdout is not None
            return process, process.stdout.readline().strip()

        yield start


def of_job(host: Host, job: str) -> list[dict[str, Any]]:
    """The containers of a job that run."""
    return [each for each in host.status()["containers"] if each["job"] == job and each["state"] == "running"]


def used_s(host: Host, names: list[str]) -> dict[str, float]:
    """CPU seconds that each has used within some seconds, from two samples of the kernel's counters."""
    until_ranked(host)
    return used({name: cpu_stat(host.container(name)["container"]) for name in names})


def used(paths: Mapping[K, Path]) -> dict[K, float]:
    """The same, by the counters of their cgroups."""
    before = {name: seconds(path) for name, path in paths.items()}
    time.sleep(SECONDS)  # no event marks the end of this time
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
    (path,) = Path("/sys/fs/cgroup").glob(f"**/containers/**/{container}/cpu.stat")
    return path


def seconds(path: Path) -> float:
    return int(path.read_text().split()[1]) / 1e6


def in_order(host: Host, names: list[str], of: Callable[[Path], float]) -> list[float]:
    """Return the use of each within some seconds without a change of the order, the first rank first.

    Equal ones change places, each time that the first has used as much again.
    """
    return in_one_order(host, {name: host.container(name)["container"] for name in names}, of)


def in_one_order(host: Host, containers: dict[str, str], of: Callable[[Path], float]) -> list[float]:
    """The same, of containers by some name."""
    stats, names = {name: cpu_stat(container) for name, container in containers.items()}, [*containers]
    got = [0.0] * len(names)
    measured_s = 0.0
    while measured_s < SECONDS:
        until_ranked(host)
        order = ranked(host, containers)
        before, began = {name: of(path) for name, path in stats.items()}, time.monotonic()
        time.sleep(0.3)  # no event marks the end of this time
        after, took_s = {name: of(path) for name, path in stats.items()}, time.monotonic() - began
        if ranked(host, containers) == order:
            got = [had + after[name] - before[name] for had, name in zip(got, order, strict=True)]
            measured_s += took_s
    return got


def ranked(host: Host, containers: dict[str, str]) -> list[str]:
    """The names in the order of their ranks."""
    said = {each["container"]: each["rank"] for each in host.status()["containers"] if each["rank"] is not None}
    return sorted(containers, key=lambda name: int(said[containers[name]]["rank"]))


def test_jobs_get_a_processor_in_order(host: Host, burning: Any) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        burning(name)
    first, second, third, fourth = used = in_order(host, names, seconds)
    assert first > 0.8 * sum(used), used
    assert second > 2 * max(third, fourth), used
    assert min(used) > 0, "the last stands still"
    said = sorted((host.container(name)["rank"] for name in names), key=lambda rank: rank["rank"])
    assert [rank["rank"] for rank in said] == [1, 2, 3, 4]
    assert said[0]["weight"] > said[1]["weight"] > said[2]["weight"]


def test_jobs_get_a_disk_in_order(host: Host, burning: Any) -> None:
    file = slow_directory() / "ranked"
    file.write_bytes(os.urandom(16 << 20))
    os.sync()
    names = ["one", "two", "three"]
    for name in names:
        burning(name, program=READ, arguments=(str(file),))
    first, second, third = read = in_order(host, names, read_bytes)
    file.unlink()
    # low_latency raises the weight of a process that has just begun, so the others may change places
    # (agent/disk_scheduler.py).
    assert first > 2 * max(second, third), read
    assert min(second, third) > 0, read


def read_bytes(stat: Path) -> float:
    """From all disks."""
    pairs = stat.with_name("io.stat").read_text().split()
    return float(sum(int(pair[7:]) for pair in pairs if pair.startswith("rbytes=")))


def test_a_promise_is_not_outranked(host: Host, burning: Any) -> None:
    burning("promised", "--cpu", "0.5")
    names = [f"ranked{number}" for number in range(10)]
    for name in names:
        burning(name)
    for _ in range(WINDOWS):  # a process that runs while the machine's host stops is charged for that time
        used = used_s(host, ["promised", *names])
        if used["promised"] >= 0.98 * 0.5 * sum(used.values()):
            break
    assert used["promised"] >= 0.98 * 0.5 * sum(used.values()), used


def test_no_job_waits_for_ever_where_a_quota_keeps_the_last_from_running(tmp_path: Path) -> None:
    """See the fixture ``host``: here the quota stays, and it is the turns that bound the wait."""
    with ExitStack() as ends:
        host = Host(tmp_path, cores=1, job_wait_max_s=2)
        ends.callback(host.close)
        start = starter(host, ends)
        names = ["first", "second", "third"]
        for name in names:
            start(name)
        paths = {name: cpu_stat(host.container(name)["container"]) for name in names}
        before = {name: seconds(path) for name, path in paths.items()}
        until(lambda: all(seconds(path) > before[name] + 0.3 for name, path in paths.items()))


def test_tenants_share_a_node_however_many_jobs_each_has(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Root has five commands, each ranked as a job, and a user has one: as much for each user."""
    with ExitStack() as ends:
        host = shared_host(tmp_path_factory.mktemp("shared"), ends)
        spins = ContainerSpec(argv=tuple(python(SPIN)))
        users = ["root"] * 5 + ["tester"]
        agents = {user: ends.enter_context(agent_of(user, host)) for user in users}
        agents["root"].register_job("told")  # the master reports tenants with its jobs
        stats = {at: cpu_stat(agents[user].launch(spins).id) for at, user in enumerate(users)}
        until(lambda: first_of(host) == {"root", "tester"})
        share_equally(stats)


def test_a_tenant_whose_first_job_waits_keeps_its_share(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ExitStack() as ends:
        host = shared_host(tmp_path_factory.mktemp("waiting"), ends)
        spins, waits = ContainerSpec(argv=tuple(python(SPIN))), ContainerSpec(argv=("sleep", "1000"))
        agents = {user: ends.enter_context(agent_of(user, host)) for user in ("root", "tester")}
        agents["root"].register_job("told")  # the master reports tenants with its jobs
        before = agents["root"].launch(waits)
        until(lambda: first_of(host) == {"root"})  # a container that starts from now on is in its tenant's cgroup
        before.kill()
        agents["root"].launch(waits)
        stats = {user: cpu_stat(agents[user].launch(spins).id) for user in agents}
        until(lambda: first_of(host) == {"root", "tester"})
        share_equally(stats)


def test_a_tenant_whose_first_detached_job_waits_keeps_its_share(tmp_path_factory: pytest.TempPathFactory) -> None:
    """That job is the first of its tenant on the node: its manager starts before the master knows the job."""
    directory = tmp_path_factory.mktemp("jobs")
    with ExitStack() as ends:
        host = shared_host(directory, ends)
        submit = submitter(host, directory, ends)
        submit("waits", "exec sleep 1000")
        job = submit("spin", SPINS)
        spins = ContainerSpec(argv=tuple(python(SPIN)))
        of_user = ends.enter_context(agent_of("tester", host)).launch(spins).id
        until(lambda: first_of(host) == {"root", "tester"})
        share_equally({"job": cpu_stat(of_job(host, job)[0]["container"]), "user": cpu_stat(of_user)})


def test_the_idle_manager_of_a_detached_job_takes_nothing_from_its_tenant(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("detached")
    with ExitStack() as ends:
        host = shared_host(directory, ends)
        job = submitter(host, directory, ends)("spin", SPINS)
        spins = ContainerSpec(argv=tuple(python(SPIN)))
        of_user = ends.enter_context(agent_of("tester", host)).launch(spins).id
        until(lambda: first_of(host) == {"root", "tester"})
        share_equally({"job": cpu_stat(of_job(host, job)[0]["container"]), "user": cpu_stat(of_user)})


SPIN = "import os\nos.sched_setaffinity(0, {0})\nwhile True: pass"
SPINS = f"exec {shlex.join(python(SPIN))}"


def submitter(host: Host, directory: Path, ends: ExitStack) -> Callable[[str, str], str]:
    """Return a function that submits a detached job of one command, waits until that runs, and returns the job's id."""

    def submit(name: str, command: str) -> str:
        job_file = directory / f"{name}.toml"
        job_file.write_text(f"name = '{name}'\n[[task]]\nname = 't'\ncommand = {json.dumps(command)}\n")
        job = host.penstock("submit", "--detach", str(job_file)).stdout.strip()

        @ends.callback
        def end() -> None:  # the node's end would leave its containers running
            host.penstock("cancel", job)
            until(lambda: not of_job(host, job))

        until(lambda: len(of_job(host, job)) == 1)
        return job

    return submit


def shared_host(directory: Path, ends: ExitStack) -> Host:
    """A node of one core whose master serves tenants by shares."""
    for path in (directory, directory.parent, directory.parent.parent):
        path.chmod(0o755)
    host = Host(directory, cores=1, job_wait_max_s=1000, repair_interval_s=0, of_master="weights = { root = 1.0 }")
    ends.callback(host.close)
    # The fixture ``host`` has its reason, and may be there, too.
    for limit in Path("/sys/fs/cgroup").glob("**/containers/cpu.max"):
        limit.write_text("max")
    return host


def share_equally(stats: Mapping[K, Path]) -> None:
    """The last one has as much as all others together."""
    for _ in range(WINDOWS):  # who runs while the machine's host stands still is charged for that time
        *many, one = used(stats).values()
        if 0.45 <= one / (one + sum(many)) <= 0.55:
            break
    assert 0.45 <= one / (one + sum(many)) <= 0.55, (many, one, weights())


def weights() -> dict[str, int]:
    """The weight of each cgroup of the agent, for the message of a test that failed."""
    root = Path("/sys/fs/cgroup")
    return {
        str(path.parent.relative_to(root)): int(path.read_text()) for path in root.glob("**/containers/**/cpu.weight")
    }


def first_of(host: Host) -> set[str]:
    """The tenants that have a first job."""
    ranks = [each["rank"] for each in host.status()["containers"] if each["rank"] is not None]
    return {rank["tenant"] for rank in ranks if rank["rank"] == 1}


def agent_of(user: str, host: Host) -> BlockingAgent:
    """Connect as another user: the kernel records the user of the connecting process."""
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        return BlockingAgent.connect(host.socket, "test")
    finally:
        os.seteuid(0)


def test_processes_that_no_container_holds_are_ranked_with_their_jobs(host: Host, lending: Any) -> None:
    """On one processor, which they contend for."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        jobs = [lending("burn")[1] for _ in range(2)]
    finally:
        os.sched_setaffinity(0, before)
    found = [until(lambda job=job: of_job(host, job))[0] for job in jobs]
    first, second = in_one_order(host, {each["job"]: each["container"] for each in found}, seconds)
    assert first > 4 * second > 0


def test_a_process_goes_on_where_it_was_when_its_job_is_over(host: Host, lending: Any) -> None:
    process, job = lending("rest")
    container = until(lambda: of_job(host, job))[0]["container"]
    process.stdin.write("over\n")
    process.stdin.flush()
    assert process.stdout.readline() == "lent\n"
    until(lambda: not of_job(host, job))
    (ended,) = (each["ended"] for each in host.status()["containers"] if each["container"] == container)
    assert "its processes go on" in ended["reason"]
    assert process.poll() is None
    until(lambda: not list(Path("/sys/fs/cgroup").glob(f"**/containers/**/{container}")))


def test_the_descendants_of_a_lent_process_go_on(host: Host, lending: Any) -> None:
    """A container ends with its first process, and its other processes are killed; not those of a lent process."""
    process, job = lending("rest")
    container = until(lambda: of_job(host, job))[0]["container"]
    (procs,) = Path("/sys/fs/cgroup").glob(f"**/containers/**/{container}/cgroup.procs")
    with subprocess.Popen(["sleep", "1000"]) as left:
        procs.write_text(str(left.pid))
        process.kill()
        until(lambda: not of_job(host, job))
        until(lambda: container not in Path(f"/proc/{left.pid}/cgroup").read_text())
        assert left.poll() is None
        left.kill()


def test_a_process_with_limits_of_its_own_is_not_moved_away_from_them(host: Host, lending: Any) -> None:
    limited = Path("/sys/fs/cgroup/limited-by-others")
    limited.mkdir()
    own = Path("/sys/fs/cgroup") / Path("/proc/self/cgroup").read_text().split("0::")[1].strip().lstrip("/")
    try:
        (limited / "cpu.max").write_text("50000 100000")
        (limited / "cgroup.procs").write_text("0")
        process, line = lending("rest")
        (own / "cgroup.procs").write_text("0")
        said = [line, process.stdout.readline().strip()]
        assert any("limits of its own: cpu.max of /sys/fs/cgroup/limited-by-others" in each for each in said), said
        (job,) = (each for each in said if "limits" not in each)
        assert not of_job(host, job)
        process.kill()
        process.wait()
    finally:
        (own / "cgroup.procs").write_text("0")
        limited.rmdir()
