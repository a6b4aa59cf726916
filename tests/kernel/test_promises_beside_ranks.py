"""The master's promises are kept beside ten ranked jobs, on a real kernel: executors' guarantees, and reservations.

All work is on one processor: time that the machine's host takes from it is taken from all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.core.rank_weights import unpromised_weight
from master.prediction import Run, Settings
from tests.kernel.host_bed import TIMEOUT_S, Host, python, until
from tests.kernel.test_elastic_executors import Executor, store_runs
from tests.kernel.test_ranks import BURN, WINDOWS, cpu_stat, starter, until_ranked, used

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
INPUT_BYTES, BOUND_MIB = 1000, 64
RANKED = [f"ranked{number}" for number in range(10)]
#: The part of its promise that a container has at least.
KEPT = 0.98
#: Cores, slot by slot, of applications whose forecast is known.
PHASES = {"steady": [0.4] * 100, "rising": [0.2] * 4 + [0.6] * 20}
#: A sample would end the time in which a guarantee that has risen is not protected yet.
SAMPLE_S = 20.0


def known(directory: Path, application: str) -> None:
    """Let the master know the demand of an application."""
    used = np.zeros((4, len(PHASES[application])))
    used[0], used[3] = PHASES[application], 16 * MIB
    store_runs(directory / "state", application, Run(Settings(INPUT_BYTES, 1.0, BOUND_MIB * MIB), used, used))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One core, no turns, and no quota above all containers: see the fixture in test_ranks.py."""
    directory = tmp_path_factory.mktemp("promises")
    known(directory, "steady")
    host = Host(directory, cores=1, job_wait_max_s=1000, repair_interval_s=0, reprovision_rho=1000)
    (limit,) = Path("/sys/fs/cgroup").glob("**/containers/cpu.max")
    limit.write_text("max")
    yield host
    host.close()


@pytest.fixture
def beside_ranked(host: Host) -> Iterator[None]:
    """Ten ranked jobs, each of which wants the processor."""
    with ExitStack() as ends:
        ten_ranked(host, ends)
        yield


def ten_ranked(host: Host, ends: ExitStack) -> None:
    start = starter(host, ends)
    for name in RANKED:
        start(name)


@contextmanager
def submitted(host: Host, *arguments: str) -> Iterator[None]:
    """Run ``penstock submit`` with these arguments, and kill it at the end."""
    submit = host.start("submit", *arguments)
    try:
        yield
    finally:
        host.penstock("kill", *(each["container"] for each in placed(host)))
        submit.communicate(timeout=TIMEOUT_S)


def executor_of(application: str, cores: float, sizing: str = "shared") -> list[str]:
    """Return the arguments of a submit whose executor wants the processor.

    As Spark's, it may use more than its guarantee.
    """
    return [
        "--executors", "1", "--application", application, "--input-bytes", str(INPUT_BYTES), "--cpu", f"{cores:g}",
        "--memory", f"{BOUND_MIB}M", "--sizing", sizing, "--", *python(BURN),
    ]  # fmt: skip


def placed(host: Host) -> list[dict[str, Any]]:
    """The containers of the master's jobs that run."""
    return [each for each in host.status()["containers"] if each["job"] and each["state"] == "running"]


def weight(stat: Path) -> int:
    """By the kernel."""
    return int(stat.with_name("cpu.weight").read_text())


def assert_kept(host: Host, promised: Path, cores: float) -> None:
    """Check the kernel's share for a container that was promised so much of the one core and wants more."""
    until_ranked(host)
    stats = {name: cpu_stat(host.container(name)["container"]) for name in RANKED}
    for _ in range(WINDOWS):  # a process that runs while the machine's host stops is charged for that time
        got = used({"promised": promised, **stats})
        part = got["promised"] / sum(got.values())
        print(f"{part:.3f} of the processor, promised {cores:g}")
        if part >= KEPT * cores:
            return
    pytest.fail(f"promised {cores:g}, got {part:.3f}: {got}")


# ---------------------------------------------------------------- executors


@pytest.mark.parametrize(("application", "cores", "guaranteed"), [("unknown", 0.5, 0.5), ("steady", 1.0, 0.42)])
def test_an_executor_keeps_its_guarantee(
    host: Host, beside_ranked: None, application: str, cores: float, guaranteed: float
) -> None:
    """That is the request, where the application is unknown, and otherwise the forecast with its headroom of 5 %."""
    with submitted(host, *executor_of(application, cores)):
        (executor,) = until(lambda: placed(host))
        stat = cpu_stat(executor["container"])
        promised, all_ranks = round(100 * guaranteed), unpromised_weight(1.0, guaranteed)
        until(lambda: promised < weight(stat) <= promised + all_ranks, f"weight {weight(stat)}")
        assert_kept(host, stat, guaranteed)


def test_a_guarantee_that_rises_is_kept_at_once(tmp_path: Path) -> None:
    """By the weights, which decide where all want both processors: those of the ranked jobs fall as it rises.

    With a limit that follows its guarantee it has no rank, so that its weight is that of its guarantee.
    """
    known(tmp_path, "rising")
    with ExitStack() as ends:
        host = Host(tmp_path, cores=2, sample_interval_s=SAMPLE_S, reprovision_rho=1000)
        ends.callback(host.close)
        ten_ranked(host, ends)
        ends.enter_context(submitted(host, *executor_of("rising", 1.0, "hard")))
        stat = cpu_stat(Executor(tmp_path / "state", "rising").container)
        until_ranked(host)
        ranked = [cpu_stat(host.container(name)["container"]) for name in RANKED]

        def is_kept() -> bool:
            return sum(map(weight, [stat, *ranked])) <= 2 * 100 / KEPT

        assert weight(stat) == 21 and is_kept()
        until(lambda: weight(stat) == 63, "its guarantee never rises")
        rose = time.monotonic()
        until(is_kept, "the ranked jobs outweigh it")
        assert time.monotonic() - rose < SAMPLE_S / 10, "it was a sample that did it"


# ---------------------------------------------------------------- reservations


def test_a_job_keeps_its_reserved_cores(host: Host, beside_ranked: None, tmp_path: Path) -> None:
    """From its time on, though it is the last in the order: it has used more than any other job."""
    task = f'name = "job"\n[[task]]\nname = "t"\ncommand = {json.dumps(python(BURN))}\n'
    (tmp_path / "job.toml").write_text(task)
    asked = host.penstock("reserve", "window(atom(<64MB,0.5core>, 1, 1, 5min, 5min), +3s, +303s)", "--json")
    (reservation,) = (each["reservation"] for each in json.loads(asked.stdout))
    with submitted(host, "--reservation", reservation, str(tmp_path / "job.toml")):
        (container,) = until(lambda: placed(host))
        stat = cpu_stat(container["container"])
        until(lambda: weight(stat) == 51 and placed(host)[0]["rank"]["rank"] == len(RANKED) + 1)
        assert_kept(host, stat, 0.5)
    host.penstock("reservations", "--delete", reservation)
