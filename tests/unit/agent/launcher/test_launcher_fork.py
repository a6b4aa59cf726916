"""Into the cgroup at birth, where the kernel can do that, and right afterwards where it cannot."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 60
ME = pwd.getpwuid(os.geteuid()).pw_name
#: One thread, as the launcher has: many starts, and how many commands found themselves in the cgroup.
SPAWNS = """
import errno, os, sys
from agent.launcher import child
from agent.launcher.messages import Start

def cannot(procs_fd):
    raise OSError(errno.ENOSYS, "no clone3")

cgroup, user, how = sys.argv[1:]
if how == "fork":
    child.fork_into = cannot
spawner = child.Spawner()
procs = os.open(cgroup + "/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
reading, writing = os.pipe2(os.O_CLOEXEC)
argv = ["cat", "/proc/self/cgroup"]
for _ in range(40):
    pid, pidfd, report = spawner.spawn(Start("x", user, argv, {}, "/"), procs, (nothing, writing, nothing))
    while os.read(report, 4096):
        pass
    os.close(report)
    os.close(pidfd)
    assert os.waitpid(pid, 0)[1] == 0
    where = os.read(reading, 4096).decode().split("0::")[-1].strip()
    assert where.endswith("/" + os.path.basename(cgroup)), where
print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("how", ["clone3", "fork"])
def test_every_command_is_in_its_cgroup_and_no_descriptor_stays_open(cgroup: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", SPAWNS, str(cgroup), ME, how],
        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert int(done.stdout) < 20


BORN = """
import os, sys
from agent.launcher.syscalls import fork_into

procs = os.open(sys.argv[1] + "/cgroup.procs", os.O_WRONLY)
pid = fork_into(procs)
if pid == 0:
    os._exit(0 if open("/proc/self/cgroup").read().rstrip().endswith(os.path.basename(sys.argv[1])) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), open("/proc/self/cgroup").read())
try:
    fork_into(os.open("/dev/null", os.O_WRONLY))
except OSError as error:
    print(error.strerror)
"""


def test_the_child_is_there_from_the_first_and_the_parent_is_not(cgroup: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", BORN, str(cgroup)], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("0 ")
    assert cgroup.name not in done.stdout
    assert last == "Bad file descriptor"
