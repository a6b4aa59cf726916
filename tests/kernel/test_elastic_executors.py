"""Executors whose runs are known: their limits and guarantees follow the forecast in the kernel, and they bind.

The depository is filled with three equal runs, so that the fourth is forecast. The test then runs a user's commands:
``penstock up``, ``penstock submit --executors``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agent.core.records import ContainerRecord
from agent.journal import Journal
from master.prediction import Run, Settings
from master.store import Database, Depository
from tests.kernel.host_bed import TIMEOUT_S, Host, python, running_host, until

pytestmark = pytest.mark.timeout(400)
CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
SLOT_S, LEAD_S, LAG_S = 3.0, 0.7, 0.7
INPUT_BYTES, BOUND_MIB = 1000, 256
CACHED = Path("/scratch/elastic-executors")
FILLED = Path("/scratch/elastic-rates")
#: One process spins. Another, which starts first, holds 40 MiB that cannot be reclaimed and reads a file, whose pages
#: stay.
WORK = """
    import os, time
    if os.fork():
        os.nice(19)
        while True:
            pass
    held = []
    while len(held) < 40:
        held.append(bytearray(b"x" * (1 << 20)))
    file, buffer = os.open("/scratch/elastic-executors", os.O_RDONLY), [bytearray(1 << 20)]
    for number in range(900):
        os.preadv(file, buffer, number << 20)
        time.sleep(0.05)
    time.sleep(1000)
    """
#: Reads past the page cache, as fast as it may.
READ = """
    import mmap, os
    file, buffer = os.open("/scratch/elastic-rates", os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 256 << 10)]
    while True:
        for number in range(400):
            os.preadv(file, buffer, number * (256 << 10))
    """
SPIN_ON_BOTH = """
    import os
    os.fork()
    while True:
        pass
    """


@dataclass(frozen=True)
class Seen:
    """One observation: Unix time, the kernel's settings, the kernel's counters."""

    at: float
    quota: str  # cpu.max
    weight: int
    high_bytes: float
    low_bytes: int
    max_bytes: float
    cpu_s: float
    memory_bytes: int
    anonymous_bytes: int
    high_events: int
    killed: int


class Executor:
    """One that runs, as soon as its agent has journaled that: a look at the status would take a slot of its life."""

    def __init__(self, state: Path, application: str) -> None:
        ((self.record, self.path),) = until(lambda: list(running(state, application)), "it never ran")
        self.container = self.record.container

    def at(self, slot: int) -> float:
        """When a slot begins."""
        return self.record.profile_at + slot * SLOT_S

    def see(self) -> Seen:
        def read(name: str) -> str:
            return (self.path / name).read_text()

        def number(name: str) -> float:
            text = read(name).strip()
            return float("inf") if text == "max" else float(text)

        def fields(name: str) -> dict[str, int]:
            return {key: int(value) for key, value in map(str.split, read(name).splitlines())}

        events = fields("memory.events")
        return Seen(
            at=time.time(),
            quota=read("cpu.max").split()[0],
            weight=int(read("cpu.weight")),
            high_bytes=number("memory.high"),
            low_bytes=int(read("memory.low")),
            max_bytes=number("memory.max"),
            cpu_s=fields("cpu.stat")["usage_usec"] / 1e6,
            memory_bytes=int(read("memory.current")),
            anonymous_bytes=fields("memory.stat")["anon"],
            high_events=events["high"],
            killed=events["oom_kill"],
        )


def journaled(state: Path) -> list[ContainerRecord]:
    """Return the journal's present records, read from a copy, as opening a journal appends to it."""
    with tempfile.TemporaryDirectory() as copy:
        (journal,) = state.rglob("journal")
        return Journal(Path(shutil.copytree(journal, copy, dirs_exist_ok=True))).read("containers", ContainerRecord)


def running(state: Path, application: str) -> Iterator[tuple[ContainerRecord, Path]]:
    """Those of an application that have begun, each with its cgroup: one that has ended has none."""
    for record in journaled(state):
        named = record.executor is not None and record.executor.application == application
        if named and record.profile is not None and record.started_at > 0:
            yield from ((record, path) for path in CGROUPS.glob(f"**/containers/**/{record.container}"))


def remember(
    state: Path, application: str, cores: list[float], memory_mib: list[int], rates: list[float] | None = None
) -> None:
    """Record three runs with this use, slot by slot; of disk and network in bytes/s.

    Where these are not given the runs used no disk, and sent a little, as processes do on loopback.
    """
    disk, sent = (rates, rates) if rates else (np.zeros(len(cores)), np.full(len(cores), 1000.0))
    used = np.array([cores, disk, sent, np.array(memory_mib) * float(MIB)])
    store_runs(state, application, Run(Settings(INPUT_BYTES, 2.0, BOUND_MIB * MIB), used, used))


def store_runs(state: Path, application: str, run: Run) -> None:
    """Let the master have learnt three times the same."""
    state.mkdir(mode=0o700, exist_ok=True)
    database = Database(str(state / "master.db"))
    for number in range(3):
        Depository(database).add(f"root/{application}", run, ended_at=number, slot_s=SLOT_S, name=f"run-{number}")
    database.close()


#: Cores and MiB, slot by slot. In the first slots of the first phase the process starts up.
PHASES = {
    "hard": ([0.9] * 3 + [0.3] * 3 + [0.9] * 3 + [0.3] * 5, [80] * 6 + [160] * 4 + [100] * 2 + [24] * 2),
    "high-first": ([1.5] * 3 + [0.3] * 7, [32] * 10),
    "low-first": ([0.3] * 5 + [1.5] * 3, [32] * 8),
}
#: Bytes/s of the disk and of sent data, slot by slot.
RATES = [16e6] * 2 + [4e6] * 2 + [16e6] * 2 + [4e6] * 2


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("elastic-executors")
    for application, (cores, memory_mib) in PHASES.items():
        remember(directory / "state", application, cores, memory_mib)
    remember(directory / "state", "rates", [0.5] * len(RATES), [80] * len(RATES), RATES)
    return directory


@pytest.fixture(scope="module")
def host(state: Path) -> Iterator[Host]:
    # These processes demand more than predicted all the time: they are held to their plan, without correction.
    with running_host(
        state, sample_interval_s=0.5, elastic_lead_s=LEAD_S, elastic_lag_s=LAG_S, repair_interval_s=5,
        reprovision_rho=1000,
    ) as host:  # fmt: skip
        yield host
    log = (state / "up.log").read_text()
    assert "network_rate_bytes_per_s" not in log, "no part of a link of unknown rate is promised"


@contextmanager
def submitted(host: Host, state: Path, *applications: str, script: str, sizing: str) -> Iterator[list[Executor]]:
    """An executor of each known application, submitted at once."""
    submits = [
        host.start(
            "submit", "--executors", "1", "--application", application, "--input-bytes", str(INPUT_BYTES), "--cpu", "2",
            "--memory", f"{BOUND_MIB}M", "--sizing", sizing, "--", *python(script),
        )
        for application in applications
    ]  # fmt: skip
    executors: list[Executor] = []
    try:
        executors.extend(Executor(state, application) for application in applications)  # one by one
        yield executors
    finally:
        for executor in executors:
            host.penstock("kill", executor.container)
        for submit in submits:
            if len(executors) < len(applications):
                submit.kill()
            submit.communicate(timeout=TIMEOUT_S)


def watch(until: float, *executors: Executor) -> list[list[Seen]]:
    """Ten looks a second: the time over which is measured."""
    seen: list[list[Seen]] = [[] for _ in executors]
    while time.time() < until:
        for executor, looks in zip(executors, seen, strict=True):
            looks.append(executor.see())
        time.sleep(0.1)
    return seen


def during(seen: list[Seen], begin: float, end: float) -> list[Seen]:
    found = [each for each in seen if begin <= each.at < end]
    assert len(found) > 3, "the machine stood still"
    return found


def cores(seen: list[Seen]) -> float:
    return (seen[-1].cpu_s - seen[0].cpu_s) / (seen[-1].at - seen[0].at)


def steady(executor: Executor, seen: list[Seen], first: int, last: int) -> list[Seen]:
    """In the slots ``first`` to ``last``, when nothing is about to change and nothing has just changed."""
    return during(seen, executor.at(first) + LAG_S + 0.5, executor.at(last + 1) - LEAD_S - 0.2)


@dataclass(frozen=True)
class Rates:
    """One observation: Unix time, the kernel's limits of disk and network in bytes/s, and the bytes that were read."""

    at: float
    disk: frozenset[int]
    sent: frozenset[int]
    read_bytes: int


def rates(executor: Executor) -> Rates:
    """Return the limits of any disk (``io.max``), and the ceilings of HTB classes that bind: no other container has a
    limit here.
    """
    limited = re.findall(r"[rw]bps=(\d+)", (executor.path / "io.max").read_text())
    shown = subprocess.run(["tc", "class", "show", "dev", "eth0"], capture_output=True, text=True, check=True)
    ceilings = {int(kbit) * 125 for kbit in re.findall(r"\bceil (\d+)Kbit", shown.stdout)}
    read = re.findall(r"rbytes=(\d+)", (executor.path / "io.stat").read_text())
    return Rates(time.time(), frozenset(map(int, limited)), frozenset(ceilings), sum(map(int, read)))


@pytest.fixture(scope="module")
def filled() -> Iterator[None]:
    """A file to be read from the disk."""
    with FILLED.open("wb") as file:
        for _ in range(100):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())
    yield
    FILLED.unlink()


def test_limits_of_disk_and_network_move_and_the_disk_s_binds(host: Host, state: Path, filled: None) -> None:
    with submitted(host, state, "rates", script=READ, sizing="hard") as (executor,):
        seen: list[Rates] = []
        while time.time() < executor.at(len(RATES)) - 1:
            seen.append(rates(executor))
            time.sleep(0.1)
    said = "\n".join(f"{each.at - executor.at(0):6.2f} {each}" for each in seen)
    for first, last, planned in ((2, 3, 4.2e6), (4, 5, 16.8e6), (6, 7, 4.2e6)):
        begin, end = executor.at(first) + LAG_S + 0.5, executor.at(last + 1) - LEAD_S - 0.5
        found = [each for each in seen if begin <= each.at < end]
        assert len(found) > 3, said
        assert {each.disk for each in found} == {frozenset({int(planned)})}, said
        assert {each.sent for each in found} == {frozenset({int(planned)})}, said
        read = (found[-1].read_bytes - found[0].read_bytes) / (found[-1].at - found[0].at)
        assert 0.4 * planned < read < 1.1 * planned, said  # a machine whose host is busy reads less


@pytest.fixture(scope="module")
def cached() -> Iterator[None]:
    """A file with nothing in it but its size: its pages need no disk."""
    with CACHED.open("wb") as file:
        file.truncate(900 * MIB)
    yield
    CACHED.unlink()


@pytest.mark.measured
def test_hard_limits_move_ahead_of_a_rise_and_after_a_fall_and_bind(host: Host, state: Path, cached: None) -> None:
    with submitted(host, state, "hard", script=WORK, sizing="hard") as (executor,):
        (seen,) = watch(executor.at(14) - 0.5, executor)
    seen = [each for each in seen if each.at > executor.at(2)]
    said = "\n".join(f"{each.at - executor.at(0):6.2f} {each}" for each in seen)

    assert {each.quota for each in seen} == {"31500", "94500"}, said
    falls = next(each.at for each in seen if each.quota == "31500")
    rises = next(each.at for each in seen if each.at > falls and each.quota == "94500")
    assert executor.at(3) <= falls < executor.at(3) + LAG_S + 2, said
    assert executor.at(6) - LEAD_S - 0.2 < rises <= executor.at(6), said
    calm, busy, after = (steady(executor, seen, *slots) for slots in ((3, 5), (6, 8), (9, 13)))
    assert max(cores(calm), cores(after)) < 0.315 + 0.04, said
    assert 1.8 * max(cores(calm), cores(after)) < cores(busy) < 0.945 + 0.04, said
    assert [{each.weight for each in found} for found in (calm, busy, after)] == [{32}, {94}, {32}], said

    more = next(each.at for each in seen if each.high_bytes > 1.5 * 84 * MIB)
    assert executor.at(6) - LEAD_S - 0.2 < more <= executor.at(6), said
    assert all(each.anonymous_bytes < each.high_bytes < float("inf") for each in seen), said
    for first, last, planned in ((3, 5, 84), (6, 9, 168), (10, 11, 105)):
        found = steady(executor, seen, first, last)
        assert all(planned * MIB <= each.high_bytes < 1.3 * planned * MIB for each in found), said
        assert all(each.memory_bytes < each.high_bytes + 4 * MIB for each in found), said
        assert {each.low_bytes for each in found} == {planned * MIB}, said
    assert steady(executor, seen, 6, 9)[-1].memory_bytes > 140 * MIB, said
    # Memory that cannot be reclaimed stays above the plan of 24 MiB. While reading stalls for memory, the limit is
    # raised, but not far.
    found = steady(executor, seen, 12, 13)
    assert all(40 * 1.1 * MIB < each.high_bytes < 105 * MIB for each in found), said
    assert min(each.high_bytes for each in found) < 80 * MIB, said
    assert seen[-1].high_events > 0 and seen[-1].killed == 0
    assert {each.max_bytes for each in seen} == {BOUND_MIB * MIB}


def test_shared_guarantees_move_and_decide_where_two_want_all(host: Host, state: Path) -> None:
    """Both executors could use both processors.

    One is planned to get five times as much as the other, and then they change.
    """
    with submitted(host, state, "high-first", "low-first", script=SPIN_ON_BOTH, sizing="shared") as (falling, rising):
        of_falling, of_rising = watch(rising.at(7), falling, rising)
        host.penstock("kill", rising.container)
        (left,) = watch(time.time() + 2, falling)
    said = "\n".join(f"{a.at - rising.at(0):6.2f} {a}\n       {b}" for a, b in zip(of_falling, of_rising, strict=True))
    assert {each.quota for each in (*of_falling, *of_rising, *left)} == {"max"}
    assert {each.high_bytes for each in (*of_falling, *of_rising)} == {float("inf")}
    before = max(rising.at(0), falling.at(0)) + 2, falling.at(3) - LEAD_S - 0.2
    after = rising.at(5) + LAG_S + 0.5, rising.at(7)
    for (begin, end), high, low in ((before, of_falling, of_rising), (after, of_rising, of_falling)):
        high, low = during(high, begin, end), during(low, begin, end)
        # Beside its promise each has a part of its rank: of the 0.11 cores that are not promised.
        assert all(round(100 * 1.575) < each.weight <= round(100 * 1.575) + 10 for each in high), said
        assert all(round(100 * 0.315) < each.weight <= round(100 * 0.315) + 10 for each in low), said
        assert cores(high) > 3 * cores(low), said
    assert cores(left) > 1.2 * 0.315, "its plan is so much, and it also gets the cores that no other container wants"
