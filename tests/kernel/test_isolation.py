"""Promises are kept: a regular container beside ten opportunistic hogs, through a real agent.

The assertions compare with the share that it gets alone in the same run; the benchmark (bench/enforcement) has the
longer version, with figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.enforcement import isolation
from bench.enforcement.bed import Bed
from bench.enforcement.figures import KEPT, KEPT_P1
from bench.enforcement.guest import SCRATCH, slow_directory

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with Bed(tmp_path_factory.mktemp("agent"), **isolation.SETTINGS) as made:
        yield made


def keeps(bed: Bed, case: isolation.Case, worst: float = KEPT_P1, rounds: int = 1, seconds: int = 3) -> None:
    """Its worst second is held against its worst second alone: the machine's host has other things to do, too.

    That spoils a measurement and never embellishes it, so one of three has to come out right.
    """
    figures = []
    for _ in range(3):
        figure = isolation.measure(bed, case, rounds, seconds)
        if figure.kept >= KEPT and figure.beside_p1 >= worst * min(figure.alone, figure.alone_p1):
            return
        figures.append(figure)
    pytest.fail(f"it keeps less: {figures}")


def test_a_core_beside_ten_that_burn_cpu(bed: Bed) -> None:
    keeps(bed, isolation.processor())


def test_a_core_beside_ten_that_fork(bed: Bed) -> None:
    keeps(bed, isolation.forks())


def test_a_disk_beside_ten_that_read(bed: Bed) -> None:
    keeps(bed, next(isolation.disks(slow_directory())))


def test_the_page_cache_beside_ten_that_write(bed: Bed, scratch: Path) -> None:
    # Its worst second, when the kernel reclaims, was 60 to 97 % of alone: the benchmark shows it.
    keeps(bed, next(isolation.memories(slow_directory(), scratch)), worst=0.0)


@pytest.fixture
def scratch() -> Iterator[Path]:
    yield SCRATCH
    for path in SCRATCH.glob("*"):
        if path.is_file():
            path.unlink()
