"""The traps of an order by weights, on a real kernel: who waits for a job behind, wakes up, or is the last of all."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.host_bed import python
from tests.kernel.ranked_bed import BURN, RankedBed

pytestmark = pytest.mark.timeout(300)
#: What the machine's host does meanwhile spoils a measurement and never embellishes it: one of so many must be right.
TRIES = 3


@pytest.fixture(scope="module")
def one_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankedBed]:
    """One slot of each kind; nobody gets a turn meanwhile, and no quota lies above the containers."""
    slots = {"cores": 1, "disk_concurrency": 1, "network_concurrency": 1}
    with RankedBed(tmp_path_factory.mktemp("one"), **slots) as bed:
        yield bed.without_quota()


@pytest.fixture(scope="module")
def two_cores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankedBed]:
    with RankedBed(tmp_path_factory.mktemp("two"), memory_bytes=900 << 20) as bed:
        yield bed


# ---------------------------------------------------------------- a slot that a job behind holds

#: It holds a slot, and gives it back once it has computed for a while in it.
HELD_CPU_S = 0.25
HOLDS = f"""
os.sched_setaffinity(0, {{0}})
kind = told()
with job.monotask(kind, 1 << 20):
    say("holds")
    told()
    until = time.process_time() + {HELD_CPU_S}
    while time.process_time() < until: pass
say("over")
told()
"""
WAITS = """
os.sched_setaffinity(0, {0})
kind = told()
asked = time.monotonic()
with job.monotask(kind, 1 << 20):
    say(time.monotonic() - asked)
told()
"""


@pytest.mark.parametrize("kind", ["disk", "network"])
def test_the_first_does_not_wait_for_jobs_in_the_middle(one_core: RankedBed, kind: str) -> None:
    """The last job of all holds the slot that the first waits for, and ten others want the processor."""
    with one_core.cleared() as bed:
        holder = bed.begin_job(HOLDS, -1.0)
        holder.tell(kind)
        assert holder.line() == "holds"
        bed.hogs()
        first = bed.begin_job(WAITS, 1.0)
        bed.until_ranked(lambda: ranks(bed, first, holder) == [1, 12])
        first.tell(kind)
        holder.tell("go on")
        waited_s = float(first.line())
        print("waited_s", waited_s)
        # The holder has a trickle of the processor, and takes many times as long.
        assert waited_s < HELD_CPU_S, f"{waited_s:.2f} s beside a slot held for {HELD_CPU_S} s of CPU time"


def ranks(bed: RankedBed, *processes: Any) -> list[int]:
    """Of those that have one."""
    return [said["rank"] for each in processes if (said := bed.rank(each)) is not None]


# ---------------------------------------------------------------- burst after idleness

#: It sleeps and wakes, and says the time by which nine in ten of its wakes were late at most.
SLEEPS = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print("up", flush=True)
while True:
    sys.stdin.readline()
    late_s = []
    for _ in range(100):
        due = time.monotonic() + 0.02
        time.sleep(0.02)
        late_s.append(time.monotonic() - due)
    print(sorted(late_s)[90], flush=True)
"""


def test_the_first_has_the_processor_when_it_wakes(one_core: RankedBed) -> None:
    """As soon as beside the same ten on plain Linux, which are on the other processor at the same time."""
    with one_core.cleared() as bed, ExitStack() as ends:
        sleeper = bed.begin(SLEEPS, 0)
        assert sleeper.line() == "up"
        bed.hogs()
        bed.until_ranked(lambda: ranks(bed, sleeper) == [1])
        for _ in range(10):
            plain(ends, BURN.replace("{0}", "{1}"))
        peer = plain(ends, SLEEPS, "1")
        late_s = []
        for _ in range(TRIES):
            assert peer.stdin is not None and peer.stdout is not None
            peer.stdin.write("go\n")
            peer.stdin.flush()
            sleeper.tell("go")
            late_s.append((float(sleeper.line()), float(peer.stdout.readline())))
            print("late_s", late_s[-1])
            if late_s[-1][0] <= 2 * late_s[-1][1]:
                return
        pytest.fail(f"it is late by (beside the same on plain Linux by): {late_s}")


def plain(ends: ExitStack, script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of plain Linux, which is up."""
    process = subprocess.Popen([*python(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ends.callback(process.wait)
    ends.callback(process.send_signal, signal.SIGKILL)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    return process


# ---------------------------------------------------------------- the last must answer

#: Spark gives an executor up that was not heard for so long (spark.network.timeout; it says something every 10 s,
#: spark.executor.heartbeatInterval). Ray gives a node up that has not answered five checks in a row within so long
#: (health_check_timeout_ms, health_check_failure_threshold).
SPARK_S, RAY_S = 120.0, 10.0
#: It computes for 5 ms every second, as a JVM or a raylet does to answer, and says when it has.
ANSWERS = """
while True:
    until = time.process_time() + 0.005
    while time.process_time() < until: pass
    say(time.monotonic())
    time.sleep(1)
"""
BURN_ANYWHERE = "print('up', flush=True)\nwhile True: pass"
WATCHED_S = 10.5


#: All of a cluster is in one container; a task of its own wants the processor as well.
DASK = """
import threading
import dask.config
from distributed import Client, LocalCluster
def burn():
    while True: pass
cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
client = Client(cluster)
burning = client.submit(burn)
say(dask.config.get("distributed.scheduler.worker-ttl"))
told()
beat = cluster.scheduler.handlers["heartbeat_worker"]
def heard(*arguments, **more):
    say(time.monotonic())
    return beat(*arguments, **more)
cluster.scheduler.handlers["heartbeat_worker"] = heard
threading.Event().wait()
"""
#: distributed.scheduler.worker-ttl, the "5 minutes" of the script.
DASK_S = 300.0


def test_the_last_are_heard_in_time(two_cores: RankedBed) -> None:
    """What Spark and Ray wait for, and a Dask worker, which is the last of all."""
    with two_cores.cleared() as bed:
        dask = bed.begin_job(DASK, -2.0)
        assert dask.line() == "5 minutes"
        answers = bed.begin_job(ANSWERS, -1.0)
        answers.line()
        bed.hogs(script=BURN_ANYWHERE)
        bed.until_ranked(lambda: ranks(bed, answers, dask) == [11, 12])
        dask.tell()
        with ThreadPoolExecutor(2) as threads:
            longest_s, dask_longest_s = threads.map(longest_gap_s, (answers, dask))
        print("longest_s", longest_s, dask_longest_s)
        # Who never answers has been silent for all the time that was looked at.
        assert longest_s < RAY_S < min(WATCHED_S, SPARK_S), f"{longest_s:.2f} s"
        assert dask_longest_s < DASK_S / 30 < WATCHED_S, f"{dask_longest_s:.2f} s"


def longest_gap_s(process: Any) -> float:
    """Between answers that come within some time, its beginning and its end included."""
    began = time.monotonic()
    times = [began]
    while times[-1] < began + WATCHED_S:
        try:
            said = float(process.line(timeout_s=max(0.0, began + WATCHED_S - time.monotonic())))
        except TimeoutError:
            said = began + WATCHED_S
        times.append(max(began, said))
    return max(after - before for before, after in pairwise(times))


# ---------------------------------------------------------------- below every rank


def test_opportunistic_work_is_below_the_last_rank(one_core: RankedBed) -> None:
    """By the kernel alone: preemption, which would pause it, only notes what it would do."""
    with one_core.cleared() as bed:
        slack = bed.begin(BURN, opportunistic=True)
        jobs = [bed.begin_job(BURN, priority) for priority in (3.0, 2.0, 1.0)]
        assert [each.line() for each in (slack, *jobs)] == ["up"] * 4
        bed.until_ranked(lambda: ranks(bed, *jobs) == [1, 2, 3])
        before = [each.cpu_s() for each in (*jobs, slack)]
        time.sleep(6.0)  # nothing tells of time that passes
        *ranked, idle = (each.cpu_s() - had for each, had in zip((*jobs, slack), before, strict=True))
        print("used_s", [*ranked, idle])
        assert min(ranked) > 1.5 * idle, (ranked, idle)


def test_opportunistic_work_alone_is_behind_what_runs_outside_of_penstock(one_core: RankedBed) -> None:
    """A cgroup of its own right below the top, as a service of the host has; it is no container's sibling."""
    with one_core.cleared() as bed:
        slack = bed.begin(BURN, opportunistic=True)
        assert slack.line() == "up"
        with outside(BURN) as other_cpu_s:
            before = other_cpu_s(), slack.cpu_s()
            time.sleep(4.0)  # nothing tells of time that passes
            other_s, slack_s = other_cpu_s() - before[0], slack.cpu_s() - before[1]
            assert slack_s < other_s / 20, (slack_s, other_s)

            regular = bed.begin(BURN)  # with it the containers have their weight again
            assert regular.line() == "up"
            before = other_cpu_s(), regular.cpu_s()
            time.sleep(4.0)
            other_s, regular_s = other_cpu_s() - before[0], regular.cpu_s() - before[1]
            assert regular_s > other_s / 3, (regular_s, other_s)


#: It holds this much memory on the processor that all others want, too.
HELD_BYTES = 200 << 20
HOLDS_MEMORY = f"""
import os
held = bytearray({HELD_BYTES})
os.sched_setaffinity(0, {{0}})
print("up", flush=True)
while True: pass
"""


@pytest.mark.parametrize("where", ["containers", "outside"])
def test_killed_opportunistic_work_gives_its_memory_back_while_others_compute(two_cores: RankedBed, where: str) -> None:
    """A killed process has to run to its end. In the idle class it took 18 to 25 s beside two that compute."""
    with two_cores.cleared() as bed, ExitStack() as others:
        slack = bed.begin(HOLDS_MEMORY, opportunistic=True)
        assert slack.line() == "up"
        other_cpu_s = others.enter_context(outside(BURN)) if where == "outside" else bed.hogs(2)[0].cpu_s
        held = slack.cgroup / "memory.current"
        assert int(held.read_text()) > HELD_BYTES
        used_s = other_cpu_s()
        slack.container.kill()
        with suppress(FileNotFoundError):  # the cgroup is removed
            while int(held.read_text()) > HELD_BYTES / 2:
                assert other_cpu_s() - used_s < 3.0, "it does not end while others compute"
                time.sleep(0.01)


@contextmanager
def outside(script: str) -> Iterator[Callable[[], float]]:
    """Run a script in a cgroup of its own; give what it has used, in CPU seconds."""
    cgroup = Path("/sys/fs/cgroup/outside-of-penstock")
    cgroup.mkdir()
    try:
        enter = f"from pathlib import Path; Path('{cgroup}/cgroup.procs').write_text('0')\n"
        with subprocess.Popen(python(enter + script), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"up\n"
                yield lambda: int((cgroup / "cpu.stat").read_text().split()[1]) / 1e6
            finally:
                process.kill()
    finally:
        cgroup.rmdir()


# ---------------------------------------------------------------- beyond a promise

PROMISED_CORES = 0.25
#: It says so once it computes on both processors.
BURN_ON_BOTH = """
first = os.fork() > 0
os.sched_setaffinity(0, {int(not first)})
if first: say("up")
while True: pass
"""


def test_what_is_used_beyond_a_promise_goes_by_rank(two_cores: RankedBed) -> None:
    """Two that are promised a quarter of a core each and have no limit, as executors: both want both processors."""
    with two_cores.cleared() as bed:
        both = [bed.begin_job(BURN_ON_BOTH, priority, cpu_cores=PROMISED_CORES) for priority in (2.0, 1.0)]
        assert [each.line() for each in both] == ["up"] * 2
        bed.until_ranked(lambda: ranks(bed, *both) == [1, 2])
        for _ in range(TRIES):
            before = [each.cpu_s() for each in both]
            time.sleep(6.0)  # nothing tells of time that passes
            used_s = [each.cpu_s() - had for each, had in zip(both, before, strict=True)]
            promised_s = sum(used_s) * PROMISED_CORES / 2
            first_s, second_s = (each - promised_s for each in used_s)
            print("used_s", used_s, "beyond_s", first_s, second_s)
            if second_s >= -0.02 * promised_s and first_s >= 4 * second_s:
                return
        pytest.fail(f"used {used_s}, of which {promised_s:.2f} s are promised to each")
