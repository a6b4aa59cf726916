"""The commands of the mix do real work on their inputs, and a cost is a line through two measurements."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import pytest

from bench.mix import text
from bench.mix.guest import fit
from bench.mix.kinds import COMPRESS_BYTES, COPY_BYTES, KINDS, command
from bench.tpch import data


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "inputs"
    directory.mkdir()
    text.write(directory / "text", 4 << 20)
    return directory


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.prepare(0.01, 1, tmp_path_factory.mktemp("tpch"))


def result_of(kind: str, units: float, inputs: Path, directory: Path) -> bytes:
    directory.mkdir()
    subprocess.run(["sh", "-euc", command(kind, units, inputs, directory)], check=True)
    return (directory / "result").read_bytes()


def test_sort_leaves_the_lines_in_order(inputs: Path, tmp_path: Path) -> None:
    lines = result_of("sort", 0.01, inputs, tmp_path / "a job").splitlines()
    assert lines == sorted(lines)
    assert len(lines) > 1


def test_a_copy_is_as_large_as_was_asked(inputs: Path, tmp_path: Path) -> None:
    copied = result_of("copy", (2 << 20) / COPY_BYTES, inputs, tmp_path / "job")
    same = copied == (inputs / "text").read_bytes()[: 2 << 20]
    assert same  # pytest would print how megabytes differ


def test_the_text_begins_again_where_it_ends(inputs: Path, tmp_path: Path) -> None:
    whole = (inputs / "text").read_bytes()
    copied = result_of("copy", (7 << 20) / COPY_BYTES, inputs, tmp_path / "job")
    same = copied == (whole * 2)[: 7 << 20]
    assert same


def test_what_was_compressed_is_the_beginning_of_the_text(inputs: Path, tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v xz"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no xz here")
    packed = result_of("compress", (1 << 18) / COMPRESS_BYTES, inputs, tmp_path / "job")
    same = lzma.decompress(packed) == (inputs / "text").read_bytes()[: 1 << 18]
    assert same


@pytest.mark.parametrize(("kind", "units", "least"), [("query", 1.0, 1), ("analytics", 0.25, 6)])
def test_queries_are_answered(kind: str, units: float, least: int, tpch: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "tpch").symlink_to(tpch)
    said = result_of(kind, units, inputs, tmp_path / "a job").decode()
    assert len({line.partition("\t")[0] for line in said.splitlines()}) >= least


def test_every_kind_has_a_command() -> None:
    assert all(command(kind.name, 1.0, Path("/in"), Path("/out")) for kind in KINDS)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind"):
        command("dream", 1.0, Path("/in"), Path("/out"))


def test_the_text_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        text.write(tmp_path / name, 1 << 18)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_cost_goes_through_both_measurements() -> None:
    cost = fit(0.5, 2.5)
    assert cost.cpu_s(1.0) == pytest.approx(0.5)
    assert cost.cpu_s(6.0) == pytest.approx(2.5)


def test_no_part_of_a_cost_is_negative() -> None:
    assert fit(0.5, 0.1).unit_cpu_s == 0
    assert fit(0.1, 6.0).base_cpu_s == 0
