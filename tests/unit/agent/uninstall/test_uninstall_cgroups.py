"""Ending containers; directories represent cgroups, and the processes are real."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.uninstall import cgroups


@pytest.fixture
def work() -> Iterator[subprocess.Popen[bytes]]:
    """Something that runs until it is ended."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """Return a container on a kernel before 5.14, with a cgroup below it; its events report at once that it is
    empty.
    """
    made = tmp_path / "c-1"
    (made / "below").mkdir(parents=True)
    (made / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    (made / "cgroup.freeze").write_text("0")
    (made / "cgroup.procs").write_text("")
    return made


def test_before_there_was_a_kill_file_each_process_is_killed(container: Path, work: subprocess.Popen[bytes]) -> None:
    (container / "below/cgroup.procs").write_text(f"{work.pid}\n")
    cgroups.kill(container)
    assert work.wait(60) == -signal.SIGKILL
    assert not (container / "cgroup.kill").exists()
    assert (container / "cgroup.freeze").read_text() == "0"


def test_a_kill_file_is_enough(container: Path, work: subprocess.Popen[bytes]) -> None:
    (container / "below/cgroup.procs").write_text(f"{work.pid}\n")
    (container / "cgroup.kill").touch()
    cgroups.kill(container)
    assert (container / "cgroup.kill").read_text() == "1" and work.poll() is None


def test_a_container_that_vanished(tmp_path: Path) -> None:
    cgroups.kill(tmp_path / "gone")
    cgroups.remove(tmp_path / "gone")
    assert cgroups.running(tmp_path) == [] and not cgroups.populated(tmp_path / "gone")


def test_a_launcher_is_waited_for(work: subprocess.Popen[bytes]) -> None:
    cgroups.end(work.pid)
    assert work.wait(0) == -signal.SIGTERM


def test_a_launcher_that_does_not_end(work: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "END_TIMEOUT_S", 0)
    work.send_signal(signal.SIGSTOP)
    with pytest.raises(TimeoutError, match="does not end"):
        cgroups.end(work.pid)
    work.send_signal(signal.SIGCONT)


def test_running_containers_are_found_in_groups_and_beside_them(tmp_path: Path) -> None:
    for name, populated in (("c-1", 1), ("j-1.job", 1), ("j-1.job/c-2", 1), ("j-1.job/c-3", 0), ("t.job/j.job/c-4", 1)):
        (tmp_path / "containers" / name).mkdir(parents=True)
        (tmp_path / "containers" / name / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    assert [each.name for each in cgroups.running(tmp_path)] == ["c-1", "c-2", "c-4"]
