"""The JAVA_HOME that ``penstock spark-config`` makes: executors go through Penstock, nothing else notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.errors import CommandError
from penstock.engines.spark import command, java_home
from penstock.engines.spark.executor_command import BACKEND


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A Java that prints its arguments."""
    home = tmp_path / "real java"
    (home / "bin").mkdir(parents=True)
    (home / "conf").mkdir()
    (home / "bin/jcmd").touch()
    program = home / "bin/java"
    program.write_text('#!/bin/sh\necho "$JAVA_HOME|$*"\n')
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command that runs is in no environment."""
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "penstock")])


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(home)}
    return subprocess.run([home / "bin/java", *arguments], env=environment, capture_output=True, text=True, timeout=60)


def test_a_command_of_no_executor_runs_at_once(real: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    java_home.make(ours, real)
    ran = run(ours, "-Xmx1g", "org.apache.spark.deploy.worker.Worker")
    assert ran.stdout == f"{real}|-Xmx1g org.apache.spark.deploy.worker.Worker\n"
    assert ran.stderr == ""
    assert (ours / "conf").resolve() == real / "conf"
    assert (ours / "bin/jcmd").resolve() == real / "bin/jcmd"


def test_an_executor_goes_through_the_stand_in(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "it's python"
    python.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    java_home.make(tmp_path / "ours", real)
    ran = run(tmp_path / "ours", "-cp", "a b", BACKEND, "--cores", "1")
    module = ["-I", "-m", "penstock.engines.spark.stand_in"]
    assert ran.stdout.splitlines() == [*module, f"{real}/bin/java", "-cp", "a b", BACKEND, "--cores", "1"]


def test_without_its_python_an_executor_runs_all_the_same(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    java_home.make(tmp_path / "ours", real)
    ran = run(tmp_path / "ours", BACKEND, "--cores", "1")
    assert ran.stdout == f"{real}|{BACKEND} --cores 1\n"
    assert ran.stderr == "penstock: no /nowhere/python; this executor runs outside of Penstock\n"


def test_it_goes_through_the_stand_in_of_the_environment_that_an_upgrade_brings(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("old", "new"):
        python = tmp_path / f"venvs/{version}/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\necho "$0"\n')
        python.chmod(0o755)
        python.with_name("penstock").touch()
    present, found = tmp_path / "venv", tmp_path / "penstock"
    present.symlink_to("venvs/old")
    found.symlink_to("venv/bin/penstock")
    monkeypatch.setattr(sys, "argv", [str(found), "spark-config"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venvs/old"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venvs/old/bin/python"))
    java_home.make(tmp_path / "ours", real)
    assert run(tmp_path / "ours", BACKEND).stdout == f"{tmp_path}/venvs/old/bin/python\n", "not by the link"
    present.unlink()
    present.symlink_to("venvs/new")
    shutil.rmtree(tmp_path / "venvs/old")
    assert run(tmp_path / "ours", BACKEND).stdout == f"{tmp_path}/venvs/new/bin/python\n"


def test_it_can_be_made_again_and_is_known_as_ours(real: Path, tmp_path: Path) -> None:
    java_home.make(tmp_path / "ours", real)
    java_home.make(tmp_path / "ours", real)
    assert java_home.is_ours(tmp_path / "ours")
    assert not java_home.is_ours(real)


def test_java_is_found_where_it_really_is(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real / "bin/java")
    monkeypatch.setenv("PATH", str(links))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java_home.find_java() == real
    java_home.make(tmp_path / "ours", real)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "ours"))
    assert java_home.find_java() == real


def test_the_command_prints_the_settings_that_a_job_needs(
    real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "ours"
    arguments = ["--java-home", str(real), "--directory", str(ours)]
    assert command.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == f"spark.executorEnv.JAVA_HOME {ours}\n"
    assert captured.err == (
        f"penstock spark-config: wrote {ours}: a JAVA_HOME of links to {real}; name another place with --directory\n"
    )
    said = ["--application", "sort", "--cores", "0.5", "--input-bytes", "1k", "--sizing", "hard"]
    assert command.main([*arguments, *said]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"spark.executorEnv.JAVA_HOME {ours}",
        "spark.executorEnv.PENSTOCK_APPLICATION sort",
        "spark.executorEnv.PENSTOCK_CORES 0.5",
        "spark.executorEnv.PENSTOCK_INPUT_BYTES 1024",
        "spark.executorEnv.PENSTOCK_SIZING hard",
    ]
    assert command.main([*arguments, "--speculation"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["spark.speculation true"], (
        "only the requested settings change a job"
    )


def test_a_java_that_is_none_is_named(real: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    with pytest.raises(CommandError, match="is not executable"):
        command.main(["--java-home", str(tmp_path), "--directory", str(ours)])
    java_home.make(ours, real)
    with pytest.raises(CommandError, match="name the real one"):
        command.main(["--java-home", str(ours), "--directory", str(ours)])
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="name another with --directory"):
        command.main(["--java-home", str(real), "--directory", str(tmp_path / "file")])


@pytest.mark.parametrize("within", ["real java", "real java/ours", "link", "other"])
def test_a_real_java_is_not_overwritten(real: Path, tmp_path: Path, within: str) -> None:
    (tmp_path / "link").symlink_to(real)
    shutil.copytree(real, tmp_path / "other")
    before = (real / "bin/java").read_text()
    with pytest.raises(CommandError, match=r"--directory: .*; name another") as caught:
        command.main(["--java-home", str(real), "--directory", str(tmp_path / within)])
    assert caught.value.status == 2
    assert (real / "bin/java").read_text() == (tmp_path / "other/bin/java").read_text() == before
    assert not (real / "ours").exists()
