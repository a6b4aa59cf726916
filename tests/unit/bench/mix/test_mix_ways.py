"""The program that starts a job in each way, and the configuration of each."""

from __future__ import annotations

import dataclasses
import subprocess
import tomllib
from pathlib import Path

import pytest

from bench.mix import slurm
from bench.mix.guest import BY_THE_KERNEL, rounds
from bench.mix.jobs import USERS, Job
from bench.mix.kinds import DASK, SEND, SEND_BYTES
from bench.mix.through_penstock import BYTES_PER_CPU_S, DASK_LINE, job_file, reservation, submit
from bench.mix.ways import CLAIRVOYANT, WAYS, exists, make_slices, master_settings
from master.config import MasterConfig
from master.reservations import rdl
from penstock.cli.jobfile import of_file

JOB = Job(1, USERS[0], "sort", "series", recurring=True, units=2.0, cpu_s=1.5, alone_s=1.4, arrival_s=10.7)
NIGHTLY = dataclasses.replace(JOB, memory_bytes=256 << 20, deadline_s=30.9)
ARCHIVE = dataclasses.replace(JOB, kind="archive", memory_bytes=128 << 20, leftovers=True)
HERE = Path("/nowhere")
COMMAND = "sort in >out; mv out result"


def test_each_way_has_a_starter() -> None:
    known = {*BY_THE_KERNEL, *slurm.OVERSUBSCRIBE, "penstock", "penstock-known", CLAIRVOYANT}
    assert set(WAYS) == known and all(map(exists, WAYS))


@pytest.mark.parametrize("way", sorted(BY_THE_KERNEL))
def test_by_the_kernel_a_job_runs_as_its_user_in_a_shell(way: str) -> None:
    argv = BY_THE_KERNEL[way](JOB, HERE, COMMAND)
    assert argv[-3:] == ["sh", "-euc", COMMAND]
    assert any(USERS[0] in word for word in argv)


def test_a_static_split_is_a_part_of_the_cores_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    set_: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda argv, check: set_.append(argv))
    make_slices(2)
    quotas = [argv[-1] for argv in set_ if argv[-2].startswith("static")]
    assert quotas == ["CPUQuota=67%"] * len(USERS) and len(USERS) == 3
    [scope] = [word for word in BY_THE_KERNEL["static"](JOB, HERE, COMMAND) if "--slice" in word]
    assert scope == f"--slice={set_[1][-2]}"


def test_slurm_is_asked_for_the_cores_that_a_job_can_use() -> None:
    argv = slurm.slurm(JOB, HERE, COMMAND)
    assert "srun" in argv and "--cpus-per-task=1" in argv and argv[-3:] == ["sh", "-euc", COMMAND]
    both = slurm.slurm(dataclasses.replace(JOB, kind="compile"), HERE, COMMAND)
    assert "--cpus-per-task=2" in both


def test_a_way_of_penstock_names_its_order_or_none() -> None:
    assert master_settings("penstock") == master_settings("penstock-known") == {}
    assert master_settings("penstock-las_mq-known") == {"ordering": "las_mq"}
    assert master_settings("penstock-known-unreserved") == {}
    assert master_settings("penstock-las-unreserved") == {"ordering": "las"}
    assert exists("penstock-known-unreserved") and exists("penstock-unreserved") and not exists("plain-unreserved")
    assert exists("penstock-las_mq-known") and not exists("penstock-fast") and not exists("penstock-")


@pytest.mark.parametrize("way", ["plain", "slices", "static", "slurm"])
def test_an_archive_is_out_of_the_way_as_users_of_that_way_would_have_it(way: str) -> None:
    start = slurm.slurm if way == "slurm" else BY_THE_KERNEL[way]
    added = set(start(ARCHIVE, HERE, COMMAND)) - set(start(JOB, HERE, COMMAND))
    expected = {
        "plain": {"nice", "-n", "19"},
        "slurm": {"--nice=10000", "nice", "-n", "19", "--mem=128", "--job-name=archive"},
    }
    assert added == expected.get(way, {"--property=CPUWeight=idle", f"--property=MemoryMax={128 << 20}"})


def test_slurm_limits_memory_by_the_promise_or_by_the_kind() -> None:
    assert "--mem=256" in slurm.slurm(NIGHTLY, HERE, COMMAND)
    assert "--mem=512" in slurm.slurm(JOB, HERE, COMMAND)
    assert "--mem=1024" in slurm.slurm(dataclasses.replace(JOB, kind=DASK), HERE, COMMAND)


def task_of(job: Job, tmp_path: Path, *, clairvoyant: bool = False) -> dict[str, object]:
    """Return the task of a job file that ``penstock submit`` reads."""
    file = tmp_path / "job.toml"
    file.write_text(job_file(job, 'echo "a \\n b" >c', clairvoyant=clairvoyant))
    of_file(file)
    read = tomllib.loads(file.read_text())
    [task] = read.pop("task")
    return read | task | {"job": read["name"]}


def test_a_job_file_has_the_application_and_the_command(tmp_path: Path) -> None:
    task = task_of(JOB, tmp_path)
    assert task == {"job": "series", "name": "sort", "command": 'echo "a \\n b" >c'}


def test_a_job_file_states_its_user_s_promise(tmp_path: Path) -> None:
    assert task_of(NIGHTLY, tmp_path)["memory"] == 256 << 20
    assert "cpu" not in task_of(NIGHTLY, tmp_path), "its reservation promises it a core, within its time"
    assert task_of(ARCHIVE, tmp_path)["opportunistic"] == "only"
    assert task_of(dataclasses.replace(JOB, kind=SEND), tmp_path)["kind"] == "network"


def test_a_clairvoyant_master_gets_each_size_and_takes_no_other_job_for_it(tmp_path: Path) -> None:
    assert master_settings(CLAIRVOYANT) == {"ordering": "srjf"}
    task = task_of(JOB, tmp_path, clairvoyant=True)
    assert (task["job"], task["input_bytes"]) == ("series-1", 1.5 * BYTES_PER_CPU_S)
    assert MasterConfig().default_cpu_bytes_per_s == BYTES_PER_CPU_S
    sent = task_of(dataclasses.replace(JOB, kind=SEND), tmp_path, clairvoyant=True)
    assert sent["input_bytes"] == 2 * SEND_BYTES


def test_a_job_is_submitted_as_its_user_with_its_reservation(tmp_path: Path) -> None:
    start = submit(Path("/run/agent.sock"), {1: "r-5"}, clairvoyant=False)
    argv = start(JOB, tmp_path, COMMAND)
    assert f"--reuid={USERS[0]}" in argv and "PENSTOCK_SOCKET=/run/agent.sock" in argv
    assert "submit --quiet --reservation r-5" in argv[-1]
    assert "--reservation" not in start(dataclasses.replace(JOB, number=2), tmp_path, COMMAND)[-1]


def test_a_program_of_dask_is_run_as_it_is_with_one_line_of_configuration(tmp_path: Path) -> None:
    argv = submit(Path("/run/agent.sock"), {}, clairvoyant=False)(dataclasses.replace(JOB, kind=DASK), HERE, COMMAND)
    assert DASK_LINE in argv and argv[-3:] == ["sh", "-euc", COMMAND]
    name, _, value = DASK_LINE.partition("=")
    documented = (Path(__file__).parents[4] / "docs/dask.md").read_text(encoding="utf-8")
    assert f"export {name}='[\"{value}\"]'" in documented


def test_a_reservation_is_a_core_within_the_time_of_its_job() -> None:
    said = reservation(NIGHTLY)
    assert said == f"window(atom(<{256 << 20}B,1core>, 1, 1, 3s, 3s), +10s, +30s)"
    rdl.parse(said)


def test_ways_take_turns_with_and_without_the_archive() -> None:
    first, second = list(rounds(["a", "b"], 1)), list(rounds(["a", "b"], 2))
    assert sorted(first) == sorted(second) == [("a", False), ("a", True), ("b", False), ("b", True)]
    assert first[0] == ("b", True) and second[0] == ("a", False)


def test_rounds_with_the_archive_or_without_it_can_be_left_out() -> None:
    assert list(rounds(["a", "b"], 2, "without")) == [("a", False), ("b", False)]
    assert list(rounds(["a", "b"], 2, "with")) == [("a", True), ("b", True)]
