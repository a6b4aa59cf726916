"""The commands of the mix do real work on their inputs, and a cost is a line through two measurements."""

from __future__ import annotations

import lzma
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from bench.mix import hog, receive, send, text
from bench.mix.calibration import fit
from bench.mix.kinds import ARCHIVED_BYTES, COMPRESS_BYTES, COPY_BYTES, SEND_BYTES, command
from bench.mix.link import ADDRESS, PORT


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("inputs")
    text.write(directory / "text", 4 << 20)
    return directory


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


def test_the_compressed_text_is_the_beginning_of_the_text(inputs: Path, tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v xz"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no xz here")
    packed = result_of("compress", (1 << 18) / COMPRESS_BYTES, inputs, tmp_path / "job")
    same = lzma.decompress(packed) == (inputs / "text").read_bytes()[: 1 << 18]
    assert same


@pytest.fixture
def tables(tpch: Path, tmp_path: Path) -> Path:
    """Inputs that have the tables of TPC-H."""
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "tpch").symlink_to(tpch)
    return inputs


def answered(said: str) -> set[str]:
    """Return the numbers of the queries that have an answer."""
    return {line.partition("\t")[0] for line in said.splitlines()}


@pytest.mark.parametrize(("kind", "units", "least"), [("query", 1.0, 1), ("analytics", 0.25, 6)])
def test_queries_are_answered(kind: str, units: float, least: int, tables: Path, tmp_path: Path) -> None:
    assert len(answered(result_of(kind, units, tables, tmp_path / "a job").decode())) >= least


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_queries_are_answered_on_a_cluster_of_dask(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs in this process, and its workers are threads: three processes would import pandas and Dask."""
    asked: dict[str, Any] = {}

    def of_threads(**options: Any) -> Any:
        asked.update(options)
        return LocalCluster(**options | {"processes": False})

    monkeypatch.setattr("distributed.LocalCluster", of_threads)
    directory = tmp_path / "a job"
    directory.mkdir()
    copied, _, run = command("dask", 2.0, tables, directory).partition(" && ")
    subprocess.run(["sh", "-euc", copied], check=True)
    exec_, env, _, python, script, *arguments = shlex.split(run)
    assert (exec_, env, python, Path(script).name) == ("exec", "env", sys.executable, "dask-report.py")
    monkeypatch.setattr("sys.argv", [script, *arguments])
    # As Python does for a script: its directory is where its imports are looked for first.
    subprocess.run([python, "-c", "import dask; print(dask.__path__)"], cwd=Path(script).parent, check=True)
    runpy.run_path(script, run_name="__main__")
    assert len(answered((directory / "result").read_text(encoding="utf-8"))) == 2
    assert (asked["n_workers"], asked["processes"]) == (2, True)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind"):
        command("dream", 1.0, Path("/in"), Path("/out"))


def test_the_text_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        text.write(tmp_path / name, 1 << 18)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_cost_goes_through_both_measurements() -> None:
    cost = fit((0.7, 0.6), (2.5, 1.6))
    assert (cost.cpu_s(1.0), cost.alone_s(1.0)) == pytest.approx((0.7, 0.6))
    assert (cost.cpu_s(4.0), cost.alone_s(4.0)) == pytest.approx((2.5, 1.6))


def test_no_part_of_a_cost_is_negative() -> None:
    assert fit((0.5, 0.5), (0.1, 0.1)).unit_cpu_s == 0
    assert fit((0.1, 0.1), (6.0, 6.0)).base_s == 0


@pytest.fixture
def receiver() -> Iterator[int]:
    """The port of a receiver on loopback."""
    argv = [sys.executable, receive.__file__, "127.0.0.1", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def test_sent_data_arrives_also_where_it_is_more_than_the_file(receiver: int, inputs: Path, tmp_path: Path) -> None:
    whole = (inputs / "text").stat().st_size
    for size_bytes in (1, whole, 2 * whole + 5):
        send.main("127.0.0.1", receiver, size_bytes, str(inputs / "text"), str(tmp_path / "result"))
        assert (tmp_path / "result").read_text() == str(size_bytes)


def test_a_copy_over_the_network_goes_to_the_peer() -> None:
    said = command("send", 2.0, Path("/in"), Path("/out"))
    assert said.endswith(f"send.py {ADDRESS} {PORT} {2 * SEND_BYTES} /in/text /out/result")


def test_a_copy_without_a_receiver_fails(inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="refused"):
        send.main("127.0.0.1", 1, 5, str(inputs / "text"), str(tmp_path / "result"))
    assert not (tmp_path / "result").exists()


def test_a_hog_takes_its_configured_memory(tmp_path: Path) -> None:
    hog.main(str(tmp_path / "result"), 20 << 20)
    assert (tmp_path / "result").read_text() == "2 pieces\n"
    assert command("hog", 1.0, Path("/in"), Path("/out")).endswith("hog.py /out/result")


def run_archive(inputs: Path, directory: Path, pieces: int) -> None:
    """Run the archive until it has so many pieces."""
    argv = ["sh", "-euc", command("archive", 1.0, inputs, directory)]
    with subprocess.Popen(argv, start_new_session=True) as process:
        give_up_s = time.monotonic() + 60
        while not (directory / f"{pieces - 1}.xz").exists():
            assert process.poll() is None and time.monotonic() < give_up_s
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)


def test_an_archive_goes_on_where_it_was_stopped_and_begins_the_text_again(inputs: Path, tmp_path: Path) -> None:
    if subprocess.run(["sh", "-c", "command -v xz"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no xz here")
    whole = (inputs / "text").read_bytes()[: 2 * ARCHIVED_BYTES + 7]
    short, directory = tmp_path / "short", tmp_path / "job"
    short.mkdir()
    directory.mkdir()
    (short / "text").write_bytes(whole)
    run_archive(short, directory, 2)
    first = (directory / "1.xz").stat().st_mtime_ns
    run_archive(short, directory, 4)
    assert (directory / "1.xz").stat().st_mtime_ns == first
    packed = [lzma.decompress((directory / f"{n}.xz").read_bytes()) for n in range(4)]
    kept = packed[0] == whole[:ARCHIVED_BYTES] and packed[1] == whole[ARCHIVED_BYTES:][:ARCHIVED_BYTES]
    assert kept and packed[2] == whole[2 * ARCHIVED_BYTES :]
    begun_again = 3 * ARCHIVED_BYTES % len(whole)
    again = packed[3] == whole[begun_again:][:ARCHIVED_BYTES]
    assert again
