"""On a host: nothing is changed where something is missing, and all that was made is removed in any case."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pwd
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bench.mix import __main__ as command
from bench.mix import door, host, inputs, link, slurm
from bench.mix.jobs import USERS
from bench.mix.place import Place
from tests.fakes.measured_host import WHOLE

COMMANDS = ("useradd", "userdel", "systemctl", "systemd-run", "apt-get")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return commands that only record their arguments, and the reader of these. Users are there in name only."""
    programs, log = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    for name in COMMANDS:
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{log}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(host, "compile_packages", lambda: None)
    monkeypatch.setattr(host, "_SHARED", ())
    monkeypatch.setattr(host, "end_processes", lambda of_users, works: None)
    monkeypatch.setattr(link, "remove", lambda: None)
    monkeypatch.setattr(slurm, "is_left", lambda: False)

    def read() -> list[str]:
        return log.read_text().splitlines() if log.exists() else []

    def users() -> list[pwd.struct_passwd]:
        made = [line.split() for line in read() if line.startswith("useradd")]
        gone = removed(read())
        return [
            pwd.struct_passwd((words[-1], "x", 0, 0, "", words[words.index("--home-dir") + 1], ""))
            for words in made if words[-1] not in gone
        ]  # fmt: skip

    monkeypatch.setattr(pwd, "getpwall", users)
    return read


@pytest.fixture(autouse=True)
def _signals_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A measurement takes over signals, the path and the umask of its process; tests have a lock of their own."""
    monkeypatch.setattr(host, "_LOCK", tmp_path / "lock")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", "")
    umask = os.umask(0o022)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    os.umask(umask)
    for each, handler in handlers.items():
        signal.signal(each, handler)


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch) -> Callable[[door.Found], None]:
    """Let this host have the parts that a test names, and all inputs."""
    monkeypatch.setattr(inputs, "prepare", lambda directory, say: directory.mkdir(exist_ok=True))
    return lambda found: monkeypatch.setattr(door, "look", lambda directory: found)


def removed(lines: list[str]) -> list[str]:
    return [line.split()[-1] for line in lines if line.startswith("userdel --remove")]


def test_a_host_that_lacks_something_is_left_as_it_is(
    tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    has(dataclasses.replace(WHOLE, is_root=False, processors=1))
    assert command.main(["--host", str(tmp_path / "mix"), "--ways", "plain"]) == 69
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert asked() == [] and not (tmp_path / "mix").exists()


def test_a_machine_s_memory_is_no_matter_of_a_host(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--host", "--memory", "4096"])
    assert "--memory: with --host there is no machine" in capsys.readouterr().err


def test_slurm_is_left_out_where_it_was_not_asked_for(
    tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    has(dataclasses.replace(WHOLE, own_slurm=("/etc/slurm/slurm.conf",)))
    used: list[list[str]] = []
    status = host.measured(tmp_path / "mix", None, "plain,slurm,penstock", lambda _, ways: used.append(ways) or 7)
    assert status == 7 and used == [["plain", "penstock"]]
    assert "/etc/slurm/slurm.conf" in capsys.readouterr().err
    assert host.measured(tmp_path / "mix", "slurm", "plain", lambda _, ways: 7) == 69


@pytest.mark.parametrize("end", ["well", "error", "SIGINT", "SIGTERM", "SIGHUP"])
def test_all_that_was_made_is_removed(
    end: str, tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None]
) -> None:
    has(WHOLE)
    works: list[Path] = []

    def use(place: Place, ways: list[str]) -> int:
        works.append(place.work)
        assert place.work.stat().st_mode & 0o777 == 0o755
        (place.work / "left").write_text("behind")
        if end == "error":
            raise OSError("nothing listens")
        if end != "well":
            signal.raise_signal(signal.Signals[end])
        return 0

    try:
        status = host.measured(tmp_path / "mix", "slices", "", use)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == {"well": 0, "error": 1, "SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[end]
    lines = asked()
    assert [line.split()[-1] for line in lines if line.startswith("useradd")] == list(USERS)
    assert removed(lines) == list(USERS)
    set_ = [line.split()[3] for line in lines if "set-property" in line]
    [started] = [line.split()[2:] for line in lines if line.startswith("systemctl start")]
    [reverted] = [line.split()[3:] for line in lines if " revert " in line]
    assert sorted(set_) == sorted(reverted) == sorted(started) and len(set_) == 2 * len(USERS)
    assert "systemctl --quiet stop penstockmix.slice staticpenstockmix.slice" in lines
    assert list((tmp_path / "mix").iterdir()) == [] and works


def test_parts_made_before_a_failure_are_removed(
    tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None]
) -> None:
    has(WHOLE)
    useradd = tmp_path / "bin" / "useradd"
    useradd.write_text(f"{useradd.read_text()}! echo $* | grep -q {USERS[1]}\n")
    assert host.measured(tmp_path / "mix", "plain", "", lambda place, ways: 0) == 1
    assert removed(asked()) == list(USERS[:2])
    assert list((tmp_path / "mix").iterdir()) == []


@pytest.mark.parametrize("error", [FileNotFoundError("userdel"), psutil.AccessDenied(1)])
def test_a_step_that_fails_is_reported_and_the_others_are_made(
    error: Exception, tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(*_: object) -> None:
        raise error

    has(WHOLE)
    monkeypatch.setattr(host, "end_processes", fails)
    monkeypatch.setattr(link, "remove", fails)
    before = signal.getsignal(signal.SIGINT)
    assert host.measured(tmp_path / "mix", "plain", "", lambda place, ways: 0) == 0
    assert f"removing processes: {error}" in capsys.readouterr().err
    assert removed(asked()) == list(USERS) and list((tmp_path / "mix").iterdir()) == []
    assert signal.getsignal(signal.SIGINT) == before


def test_signals_are_handled_again_even_if_removing_breaks(
    tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(directory: Path) -> bool:
        raise RuntimeError("broken")

    has(WHOLE)
    monkeypatch.setattr(host, "remove", breaks)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="broken"):
        host.measured(tmp_path / "mix", "plain", "", lambda place, ways: 0)
    assert signal.getsignal(signal.SIGINT) == before


def test_while_a_host_is_measured_no_other_run_measures_it_or_removes_anything(
    tmp_path: Path, asked: Callable[[], list[str]], has: Callable[[door.Found], None],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    has(WHOLE)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert host.measured(tmp_path / "mix", "plain", "", lambda place, ways: 0) == 69
        assert host.main([str(tmp_path / "mix")]) == 69
        lines = capsys.readouterr().err.splitlines()
        assert asked() == [] and len(lines) == 2 and all("is being measured already" in line for line in lines)
    assert host.measured(tmp_path / "mix", "plain", "", lambda place, ways: host.main([str(tmp_path)])) == 69


def test_penstock_s_remains_are_removed_and_no_containers_of_other_agents(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    penstock = tmp_path / "bin" / "penstock"
    penstock.write_text(f'#!/bin/sh\necho penstock "$@" $PENSTOCK_RUNTIME_DIR >>{tmp_path}/asked\necho refused >&2\n')
    penstock.chmod(0o755)
    monkeypatch.setattr(host, "COMMAND", str(penstock))
    work = tmp_path / "mix" / f"{door.ROUNDS}1"
    work.mkdir(parents=True)
    (work / "penstock.log").touch()
    assert host.remove(tmp_path / "mix")
    assert f"penstock uninstall {work / 'run'}" in asked()
    assert "bench.mix: refused" in capsys.readouterr().err


def test_daemons_of_a_round_are_ended_and_no_others(tmp_path: Path) -> None:
    def sleeping(runtime: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], env=os.environ | {"PENSTOCK_RUNTIME_DIR": str(runtime)})

    ours, other = sleeping(tmp_path / "rounds" / "run"), sleeping(tmp_path / "rounds-2")
    try:
        host.end_processes(set(), [tmp_path / "rounds"])
        assert not psutil.pid_exists(ours.pid)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_files_of_the_users_are_removed_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "dask-scratch-space").mkdir()
    (tmp_path / "file").touch()
    host.remove_files(tmp_path, {os.getuid() + 1})
    assert len(list(tmp_path.iterdir())) == 2
    host.remove_files(tmp_path, {os.getuid()})
    assert list(tmp_path.iterdir()) == []


def test_slurm_s_configuration_is_removed_with_its_files(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"_STATE": tmp_path / "mix", "_SPOOL": tmp_path / "mix-node", "_LOGS": tmp_path}
    for name, path in names.items():
        monkeypatch.setattr(slurm, name, path)
        path.mkdir(exist_ok=True)
    monkeypatch.setattr(slurm, "_FILES", (tmp_path / "slurm.conf", tmp_path / "cgroup.conf"))
    for file in ("slurm.conf", "cgroup.conf", "penstockmix-slurmd.log", "plugstack.conf"):
        (tmp_path / file).write_text(slurm._CONF)
    slurm.remove()
    assert {each.name for each in tmp_path.iterdir()} == {"plugstack.conf", "bin", "asked"}


def test_lists_of_packages_become_lists_of_sources() -> None:
    lists = "# deb\ndeb [arch=amd64] http://deb.debian.org/debian bookworm main\n"
    assert inputs.of_sources(lists) == lists.replace("\ndeb ", "\ndeb-src ")
    assert inputs.of_sources("Types: deb\nURIs: http://x/\n") == "Types: deb-src\nURIs: http://x/\n"


def test_the_source_is_fetched_by_lists_of_its_own(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, etc, directory = tmp_path / "lua-5.4", tmp_path / "apt", tmp_path / "mix"
    for each in (made / "src", etc, directory / "tpch"):
        each.mkdir(parents=True)
    (made / "src" / "lapi.c").touch()
    (etc / "sources.list").write_text("deb http://x bookworm main\n")
    (directory / "text").touch()
    with tarfile.open(tmp_path / "lua.tar.gz", "w:gz") as archive:
        archive.add(made, "lua-5.4")
    apt = tmp_path / "bin" / "apt-get"
    apt.write_text(f"{apt.read_text()}case $* in *source*Lua*|*download-only*) cp {tmp_path}/lua.tar.gz "
                   "lua5.4_5.4.4.orig.tar.gz; touch lua5.4_5.4.4.orig.tar.gz.asc;; esac\n")  # fmt: skip
    monkeypatch.setattr(inputs, "_APT", etc)
    inputs.prepare(directory, lambda line: None)
    assert sorted(each.name for each in directory.iterdir()) == ["source", "text", "tpch"]
    assert (directory / "source" / "src" / "lapi.c").exists()
    assert all("Dir::Etc::SourceList=/dev/null" in line for line in asked()) and len(asked()) == 2


def test_an_input_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(scratch: Path) -> Path:
        (scratch / "text").write_text("half")
        raise OSError("no space left on device")

    monkeypatch.setattr(inputs, "_text", breaks)
    with pytest.raises(OSError, match="no space"):
        inputs.prepare(tmp_path / "mix", lambda line: None)
    assert list((tmp_path / "mix").iterdir()) == []


def test_the_remains_of_a_run_that_was_killed_are_removed_and_nothing_else(
    tmp_path: Path, asked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    directory = tmp_path / "mix"
    ours = {directory / f"{door.ROUNDS}1", directory / f"{inputs.MAKING}1"}
    for each in (*ours, directory / "rounds-2024", directory / "making-films"):
        each.mkdir(parents=True)
    homes = (directory / f"{door.ROUNDS}1" / "home", Path("/home"))
    lines = [f"useradd --home-dir {home / user} {user}\n" for home, user in zip(homes, USERS, strict=False)]
    (tmp_path / "asked").write_text("".join(lines))
    assert {f"the directory {each}" for each in ours} < set(door.left(directory))
    assert host.main([str(directory)]) == 0
    assert sorted(each.name for each in directory.iterdir()) == ["making-films", "rounds-2024"]
    assert removed(asked()) == [USERS[0]]
    assert f"the user {USERS[1]} with its home in /home/{USERS[1]} is not of a run in" in capsys.readouterr().err


def test_only_root_removes_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit):
        host.main([])
    assert "run it with sudo" in capsys.readouterr().err
