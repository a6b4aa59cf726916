"""Limits that bind, through the command as its user types it, on a kernel with every cgroup v2 controller."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.host_bed import PENSTOCK, TIMEOUT_S, Host, python, running_host, until

pytestmark = pytest.mark.timeout(400)  # everything is ten to thirty times slower under emulation


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(tmp_path_factory.mktemp("host"), typed=True) as host:
        yield host


#: Spin in windows of two seconds and print the share of one core in each, by the process's own clocks.
SPIN = """
    import time
    for _ in range(4):
        wall, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - wall < 2:
            pass
        print((time.process_time() - cpu) / (time.monotonic() - wall))
    """


def shares(done: subprocess.CompletedProcess[str]) -> list[float]:
    assert done.returncode == 0, done.stderr
    return sorted(float(line) for line in done.stdout.split())


@pytest.mark.measured
def test_a_command_gets_its_cpu_limit(host: Host) -> None:
    """Never more; and as much, wherever the machine itself was not held up by its host for a moment."""
    cores = 0.25  # other shares: tests/kernel/test_enforcement.py
    done = host.penstock("run", "--cpu", str(cores), "--", *python(SPIN))
    assert not done.stderr
    got = shares(done)
    assert got[-1] == pytest.approx(cores, abs=0.03), got
    assert sum(got) / len(got) <= cores + 0.03, got


def test_more_memory_than_the_maximum_kills_and_the_status_has_the_reason(host: Host) -> None:
    done = host.penstock("run", "--name", "bloat", "--memory", "64M", "--", *python("b = bytearray(200 << 20)"))
    assert done.returncode == 137
    assert "more than memory.max (64 MiB)" in done.stderr
    bloat = host.container("bloat")
    assert bloat["ended"]["by"] == "oom" and "memory.max" in bloat["note"]
    assert bloat["ended"]["memory_peak_bytes"] <= 64 << 20


def test_throttling_instead_of_killing(host: Host) -> None:
    """The page cache of the file that it reads is reclaimed at memory.high; the process slows down and lives."""
    script = """
        import os
        path = "/var/tmp/penstock-throttle"
        with open(path, "wb") as file:
            for _ in range(120):
                file.write(bytes(1 << 20))
        os.unlink(path)
        print("done")
        input()
        """
    process = host.start(
        "run", "--name", "thirsty", "--memory", "64M", "--memory-policy", "throttle", "--", *python(script)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n", process.communicate()
    until(lambda: "memory.high" in host.container("thirsty")["note"])
    assert host.container("thirsty")["state"] == "running"
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


def _root_disk() -> Path:
    device = Path("/").stat().st_dev
    return Path("/dev") / Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name


@pytest.mark.measured
def test_direct_reads_keep_to_the_rate(host: Host) -> None:
    """5 MB/s asked for; 5 × 4 MiB read past the page cache, from the whole disk that the root is on."""
    script = f"""
        import mmap, os, time
        disk = os.open("{_root_disk()}", os.O_RDONLY | os.O_DIRECT)
        block = mmap.mmap(-1, 1 << 20)
        os.readv(disk, [block])
        for _ in range(5):
            started = time.monotonic()
            for _ in range(4):
                os.readv(disk, [block])
            print(4 * (1 << 20) / (time.monotonic() - started))
        """
    done = host.penstock("run", "--disk", "5MB/s", "--", *python(script))
    assert not done.stderr
    got = shares(done)
    assert got[-1] == pytest.approx(5e6, rel=0.12), got
    assert sum(got) / len(got) <= 5e6 * 1.06, got


@pytest.mark.measured
def test_opportunistic_work_yields_its_core(host: Host) -> None:
    """On one processor, regular work beside an opportunistic spinner gets nearly all of it."""
    hog = host.start("run", "--name", "hog", "--opportunistic", "--", "taskset", "-c", "0", *python("while True: pass"))
    until(lambda: any(c["name"] == "hog" and c["state"] == "running" for c in host.status()["containers"]))
    done = host.penstock("run", "--", "taskset", "-c", "0", *python(SPIN))
    hog.terminate()
    hog.communicate(timeout=TIMEOUT_S)
    assert shares(done)[-2] > 0.9


def test_memory_wanted_by_regular_work_preempts_the_newest_opportunistic(host: Host) -> None:
    """512 MiB offered: 2 × 150 opportunistic, then 300 regular; T_preempt is 0.9. One has to go: the newest."""
    hold = "import sys; b = bytearray({} << 20); print('held', flush=True); sys.stdin.read()"

    def start(name: str, megabytes: int, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [PENSTOCK, "run", "--name", name, "--memory", f"{megabytes + 20}M", *options, "--",
             *python(hold.format(megabytes))],
            env=host.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "held\n", process.communicate()
        return process

    old = start("old", 150, "--opportunistic")
    until(lambda: host.container("old")["sample"].get("memory_bytes", 0) > 140 << 20)
    new = start("new", 150, "--opportunistic")
    regular = start("wanted", 300)
    _, err = new.communicate(timeout=TIMEOUT_S)
    assert new.returncode == 137 and "T_preempt" in err
    assert host.container("new")["ended"]["by"] == "preempted"
    assert [host.container(name)["state"] for name in ("old", "wanted")] == ["running", "running"]
    assert host.status()["preemptions"][-1]["resource"] == "memory"
    for process in (old, regular):
        process.communicate("", timeout=TIMEOUT_S)
        assert process.returncode == 0


def test_check_passes_all_but_the_limits_that_need_hardware(host: Host) -> None:
    done = host.penstock("check")
    assert done.returncode == 1, done.stdout
    lines = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if not line.startswith("path ")}
    # Weights do something once an agent has chosen bfq (disk_scheduler), which outlives it.
    lacking = {name for name, answer in lines.items() if answer != "yes"}
    assert lacking - {"disk_weight", "prediction"} == {"network_promise"}
    assert {"cpu", "memory", "disk", "pids", "freeze", "kill", "opportunistic", "network", "users"} <= lines.keys()


@pytest.fixture
def shared_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One that every user reaches: the checkout is root's, and so is where pytest keeps its directories."""
    directory = tmp_path_factory.mktemp("shared")
    closed = {path: path.stat().st_mode for path in (Path("/root"), directory, *directory.parents[:2])}
    for path, mode in closed.items():
        path.chmod(mode | 0o011)
    host = Host(directory, container_pids_max=400)
    yield host
    host.close()
    for path, mode in closed.items():
        path.chmod(mode)


def test_a_fork_bomb_is_its_own_users_trouble(shared_host: Host) -> None:
    """The user who starts it sets no limit. The host, another user's container and its own end are not affected."""
    host = shared_host
    bomb = host.penstock("run", "--detach", "--", "bash", "-c", ":(){ :|:& };:; exec sleep 1000", user="tester")
    assert bomb.returncode == 0, bomb.stderr
    container = bomb.stdout.strip()
    (cgroup,) = Path("/sys/fs/cgroup").glob(f"**/containers/**/{container}")
    assert (cgroup / "pids.max").read_text() == "400\n"
    until(lambda: (cgroup / "pids.events").read_text() != "max 0\n")

    for user in ("root", "daemon"):
        done = host.penstock("run", "--", "true", user=user)
        assert done.returncode == 0, done.stderr
    assert host.penstock("kill", container, user="daemon").returncode != 0, "it is another user's"
    done = host.penstock("kill", container, user="tester")
    assert done.returncode == 0, done.stderr
    until(lambda: not cgroup.exists())
    left = subprocess.run(["pgrep", "-u", "tester"], capture_output=True, text=True, check=False)
    assert left.stdout == ""
