"""Limits that move while a container runs, through the command as its user types it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.host_bed import TIMEOUT_S, Host, python, running_host, until

pytestmark = pytest.mark.timeout(400)
CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
SPIN = "while True: pass"
#: Hold anonymous memory and page cache, print a line, free memory on demand, and go on allocating a little.
HOLD = """
    import sys
    held = [bytearray(b"x" * (1 << 20)) for _ in range({anonymous})]
    with open("/scratch/elastic", "wb") as f:
        for _ in range({cached}):
            f.write(b"y" * (1 << 20))
    with open("/scratch/elastic", "rb") as f:
        while f.read(1 << 20):
            pass
    print("held", flush=True)
    for line in sys.stdin:
        del held[{left}:]
        print("let go", flush=True)
    """


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(tmp_path_factory.mktemp("elastic"), sample_interval_s=0.2, repair_interval_s=1) as host:
        yield host


def cgroup_of(host: Host, name: str) -> tuple[str, Path]:
    container = host.container(name)["container"]
    (path,) = CGROUPS.glob(f"**/containers/**/{container}")
    return container, path


def detached(host: Host, name: str, *command: str) -> tuple[str, Path]:
    done = host.penstock("run", "--detach", "--name", name, "--", *command)
    assert done.returncode == 0, done.stderr
    return cgroup_of(host, name)


def cores(path: Path, seconds: float = 2.0) -> float:
    """Return the cores used over some seconds, by the kernel's accounting."""

    def usage() -> int:
        return int((path / "cpu.stat").read_text().split()[1])

    before, at = usage(), time.monotonic()
    time.sleep(seconds)  # the time over which is measured
    return (usage() - before) / 1e6 / (time.monotonic() - at)


def uses(path: Path, asked: float) -> None:
    """Wait for two seconds in which the container uses the cores that it may.

    A busy host stops the whole machine now and then: the kernel charges that time to the process that it runs,
    and gives no quota for the periods that it misses. A process whose limit does not bind is charged a whole core.
    """
    seen: list[float] = []

    def as_asked() -> bool:
        seen.append(cores(path))
        return seen[-1] == pytest.approx(asked, abs=0.04)

    until(as_asked, seen)


@pytest.mark.measured
def test_a_limit_moves_in_place(host: Host) -> None:
    container, path = detached(host, "spinner", *python(SPIN))
    assert cores(path) > 0.6
    for asked in (0.25, 0.5):
        done = host.penstock("resize", container, "--cpu", str(asked))
        assert done.returncode == 0, done.stderr
        assert (path / "cpu.max").read_text().split()[0] == str(int(asked * 100_000))
        uses(path, asked)
    host.penstock("resize", container, "--cpu", "none")
    assert (path / "cpu.max").read_text().split()[0] == "max"
    assert host.container("spinner")["limits"] == {}
    host.penstock("kill", container)


@pytest.mark.measured
def test_limits_follow_a_profile(host: Host, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"slot_s": 3, "cpu_cores": [0.2, 0.6, 0.3], "memory_bytes": [64 * MIB, 32 * MIB]}))
    container, path = detached(host, "follower", *python(SPIN))
    following = host.start("follow", container, str(profile))  # slots pass while the command comes to its end
    seen: list[str] = []

    def all_three() -> bool:
        quota = (path / "cpu.max").read_text().split()[0]
        if quota not in seen:
            seen.append(quota)
        return quota == "30000"

    until(all_three)
    _, err = following.communicate(timeout=TIMEOUT_S)
    assert following.returncode == 0, err
    assert seen[-3:] == ["20000", "60000", "30000"]
    assert (path / "memory.max").read_text().strip() == str(32 * MIB)
    uses(path, 0.3)
    host.penstock("kill", container)


def test_memory_shrinks_as_far_as_no_process_is_killed_and_then_on(host: Host) -> None:
    """60 MiB of memory and 60 MiB of cache: the cache goes, the memory stays until it is let go."""
    script = python(HOLD.format(anonymous=60, cached=60, left=5))
    holder = subprocess.Popen(
        ["penstock", "run", "--name", "holder", "--", *script], env=host.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    container, path = cgroup_of(host, "holder")

    def maximum() -> int:
        text = (path / "memory.max").read_text().strip()
        return 1 << 60 if text == "max" else int(text)

    assert int((path / "memory.current").read_text()) > 110 * MIB
    done = host.penstock("resize", container, "--memory", "90M")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert maximum() == 90 * MIB
    assert int((path / "memory.current").read_text()) <= 90 * MIB
    done = host.penstock("resize", container, "--memory", "30M")
    assert "cannot be reclaimed" in done.stderr
    assert 60 * MIB < maximum() < 90 * MIB
    assert holder.poll() is None, "shrinking killed it"
    assert "cannot be reclaimed" in host.container("holder")["not_enforced"]["memory_max_bytes"]
    holder.stdin.write("go\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "let go\n"
    until(lambda: maximum() == 30 * MIB)
    assert holder.poll() is None
    until(lambda: not host.container("holder")["not_enforced"])
    holder.communicate(timeout=TIMEOUT_S)
    assert holder.returncode == 0


def test_a_limit_that_another_program_changed_is_restored(host: Host) -> None:
    container, path = detached(host, "meddled", *python("import time; time.sleep(1000)"))
    host.penstock("resize", container, "--cpu", "0.5", "--memory", "64M")
    (path / "cpu.max").write_text("max 100000")
    (path / "memory.max").write_text("max")
    (path.parent / "memory.max").write_text("max")
    until(lambda: (path / "cpu.max").read_text().split()[0] == "50000")
    until(lambda: (path / "memory.max").read_text().strip() == str(64 * MIB))
    until(lambda: (path.parent / "memory.max").read_text().strip() == str(512 * MIB))
    until(lambda: any(event["what"] == "repaired" for event in host.status()["events"]))
    host.penstock("kill", container)


@pytest.mark.measured
def test_a_process_is_adopted_and_bound(host: Host) -> None:
    process = subprocess.Popen(python(SPIN))
    done = host.penstock("adopt", str(process.pid), "--cpu", "0.3", "--name", "adopted")
    assert done.returncode == 0, done.stderr
    container, path = cgroup_of(host, "adopted")
    assert (path / "cgroup.procs").read_text().split() == [str(process.pid)]
    uses(path, 0.3)
    host.penstock("kill", container)
    assert process.wait(TIMEOUT_S) == -9
    until(lambda: host.container("adopted")["state"] == "ended")
    assert host.container("adopted")["ended"]["by"] == "cancelled"
