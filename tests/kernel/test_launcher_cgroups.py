"""The launcher with a cgroup tree: its processes start in their cgroup, as another user, and outlive the client that
requested them.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.cgroup_root import cgroup2_mount
from agent.cgroups import Cgroup, CgroupTree, whole_disks
from agent.core.confinement import Confinement
from agent.launcher import Exited, Launcher, LaunchFailed, Start
from tests.escapes import ESCAPES, escape

TIMEOUT_S = 120
LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "cgroup": open("/proc/self/cgroup").read().strip(), "ids": os.getresuid() + os.getresgid(),
    "groups": sorted(os.getgroups()), "privileges": status["NoNewPrivs"].strip(),
    "oom": open("/proc/self/oom_score_adj").read().strip(), "home": os.environ["HOME"], "user": os.environ["USER"],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
}))
"""


class Bed:
    """A launcher with a tree, and this process as its agent."""

    def __init__(self, runtime: Path, root: Path) -> None:
        self.runtime = runtime
        self.root = root
        self.launcher: Launcher
        self.exits: asyncio.Queue[Exited] = asyncio.Queue()
        self.tree = CgroupTree(root, whole_disks())

    async def connect(self) -> None:
        """(Again.)"""
        self.exits = asyncio.Queue()
        self.launcher = await Launcher.connect(
            self.runtime, self.exits.put_nowait, on_lost=lambda: None, spawn=True, cgroup_root=self.root
        )
        assert self.launcher.cgroup_root == self.root

    async def exited(self) -> Exited:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.exits.get()

    async def start(
        self, container: str, *argv: str, user: str = "root", confinement: Confinement | None = None
    ) -> Cgroup:
        """A command in a cgroup; its output in ``<container>`` under the runtime directory."""
        cgroup = self.tree.create(container)
        assert cgroup.confine(confinement or Confinement()).failed == {}
        procs = cgroup.open_procs()
        nothing = os.open(os.devnull, os.O_RDWR)
        output = os.open(self.runtime / container, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            await self.launcher.start(
                Start(container=container, user=user, argv=argv, env={}, cwd="/"),
                procs_fd=procs, stdio=(nothing, output, output),
            )  # fmt: skip
        finally:
            for descriptor in (procs, nothing, output):
                os.close(descriptor)
        return cgroup

    def pid(self) -> int:
        """The launcher's."""
        return int((self.root / "holder/cgroup.procs").read_text().split()[0])


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    mount = cgroup2_mount()
    assert mount is not None
    made = Bed(tmp_path, mount / f"penstock-launcher-{secrets.token_hex(4)}")
    await made.connect()
    assert made.tree.prepare() == {}
    pid = made.pid()
    yield made
    await made.launcher.close()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    assert (await asyncio.to_thread(select.select, [pidfd], [], [], TIMEOUT_S))[0]
    os.close(pidfd)
    # It removes the tree that it made, and kills all processes that still ran in it.
    assert not made.root.exists(), (tmp_path / "launcher.log").read_text()


@pytest.mark.parametrize("user", ["root", "tester"])
async def test_a_command_is_born_in_its_cgroup_as_its_user(bed: Bed, user: str) -> None:
    Path(f"/proc/{bed.pid()}/oom_score_adj").write_text("-900")  # as a unit protects it
    await bed.start("looks", "python3", "-ISc", LOOK, user=user)
    assert (await bed.exited()).exit_status == 0
    found = json.loads((bed.runtime / "looks").read_text())
    entry = pwd.getpwnam(user)
    assert found == {
        "cgroup": f"0::/{bed.root.name}/containers/looks",
        "ids": [entry.pw_uid] * 3 + [entry.pw_gid] * 3,
        "groups": sorted(set(os.getgrouplist(user, entry.pw_gid))),
        "privileges": "1",
        "oom": "0",
        "home": entry.pw_dir,
        "user": user,
        "descriptors": [0, 1, 2, 3],
    }


async def test_memory_is_charged_from_the_first_page(bed: Bed) -> None:
    """A process that was moved in later would leave its charge behind, and would not be killed."""
    cgroup = await bed.start(
        "bloats",
        "python3",
        "-ISc",
        "x = b'x' * (200 << 20)",
        user="tester",
        confinement=Confinement(memory_max_bytes=64 << 20),
    )
    exited = await bed.exited()
    assert (exited.exit_status, exited.signal) == (137, 9)
    sample = cgroup.sample()
    assert sample is not None and sample.oom_kills == 1


async def test_a_cgroup_without_room_for_the_start_is_an_exit_like_any_other(bed: Bed) -> None:
    """Killed on the way to exec: no hang, and the launcher is not the victim."""
    await bed.start("tiny", "true", confinement=Confinement(memory_max_bytes=4096))
    assert (await bed.exited()).signal == 9
    assert [run.container for run in await bed.launcher.running()] == []


async def test_a_frozen_start_delays_no_other(bed: Bed) -> None:
    cgroup = bed.tree.create("frozen")
    cgroup.freeze(True)
    procs, nothing = cgroup.open_procs(), os.open(os.devnull, os.O_RDWR)
    start = Start(container="frozen", user="tester", argv=["true"], env={}, cwd="/")
    starting = asyncio.ensure_future(bed.launcher.start(start, procs_fd=procs, stdio=(nothing, nothing, nothing)))
    await bed.start("other", "true")
    assert (await bed.exited()).container == "other"
    assert not starting.done()
    cgroup.freeze(False)
    async with asyncio.timeout(TIMEOUT_S):
        assert await starting > 0
    assert (await bed.exited()).container == "frozen"
    os.close(procs)
    os.close(nothing)


CLIENT = """
import asyncio, os, sys
from pathlib import Path
from agent.cgroups import CgroupTree
from agent.launcher import Launcher, Start

async def main():
    launcher = await Launcher.connect(Path(sys.argv[1]), print, on_lost=print, spawn=False, cgroup_root=None)
    cgroup = CgroupTree(launcher.cgroup_root, []).create("orphan")
    nothing = os.open(os.devnull, os.O_RDWR)
    argv = ["sh", "-c", "read x < " + sys.argv[2] + "; exit 7"]
    start = Start(container="orphan", user="tester", argv=argv, env={}, cwd="/")
    print(await launcher.start(start, procs_fd=cgroup.open_procs(), stdio=(nothing,) * 3), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_container_and_its_exit_status_survive_the_agent(bed: Bed, tmp_path: Path) -> None:
    await bed.launcher.close()
    gate = Path("/tmp") / f"penstock-gate-{secrets.token_hex(4)}"  # where tester can reach it
    os.mkfifo(gate)
    gate.chmod(0o666)
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(bed.runtime), str(gate), stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    pid = int(await client.stdout.readline())
    client.kill()
    await client.wait()

    await bed.connect()
    (run,) = await bed.launcher.running()
    assert (run.container, run.pid, run.user) == ("orphan", pid, "tester")
    assert bed.tree.get("orphan").pids() == [pid]
    await asyncio.to_thread(gate.write_text, "go\n")
    assert (await bed.exited()).exit_status == 7
    gate.unlink()

    await bed.launcher.close()
    await bed.connect()
    assert bed.exits.get_nowait().exit_status == 7  # again: the end was not recorded
    await bed.launcher.acknowledge("orphan")
    assert bed.tree.get("orphan").remove()


async def test_a_stopped_launcher_takes_daemons_with_it(bed: Bed) -> None:
    """A process that left its session is still in the cgroup; the fixture checks that nothing of the tree is left."""
    gates = [bed.runtime / name for name in ("gate-1", "gate-2")]
    for gate in gates:
        os.mkfifo(gate)
    await bed.start("daemons", "sh", "-c", f"setsid sleep 1000 & echo up > {gates[0]}; sleep 1000")
    below = f"{bed.root}/containers/nested/below"
    await bed.start("nested", "sh", "-c", f"mkdir {below}; echo up > {gates[1]}; sleep 1000")
    for gate in gates:
        assert await asyncio.to_thread(gate.read_text) == "up\n"


@pytest.mark.parametrize("how", ESCAPES)
async def test_nothing_escapes(bed: Bed, how: str) -> None:
    cgroup = bed.tree.create("escapes")
    (cgroup.path / "pids.max").write_text("40")
    await escape(bed.launcher, bed.exits, cgroup.path, how)
    assert cgroup.remove()


async def test_the_kernel_kills_opportunistic_work_first(bed: Bed) -> None:
    Path(f"/proc/{bed.pid()}/oom_score_adj").write_text("-900")
    cgroup = bed.tree.create("offered")
    procs, nothing = cgroup.open_procs(), os.open(os.devnull, os.O_RDWR)
    output = os.open(bed.runtime / "offered", os.O_WRONLY | os.O_CREAT, 0o600)
    argv = ["cat", "/proc/self/oom_score_adj"]
    start = Start(container="offered", user="tester", argv=argv, env={}, cwd="/", oom_score_adj=1000)
    await bed.launcher.start(start, procs_fd=procs, stdio=(nothing, output, nothing))
    assert (await bed.exited()).exit_status == 0
    assert (bed.runtime / "offered").read_text() == "1000\n"
    for descriptor in (procs, nothing, output):
        os.close(descriptor)


GROWS = """
import sys
kept = [b"x" * (50 << 20)]
while True:
    print("up", flush=True)
    kept.append(b"x" * (int(sys.stdin.readline()) << 20))
"""


class Grown:
    """A process of tester's that was started elsewhere and has 50 MiB."""

    def __init__(self) -> None:
        argv = ["python3", "-ISc", GROWS]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user="tester")
        self.up()

    def up(self) -> None:
        assert self.process.stdout is not None and self.process.stdout.readline() == b"up\n"

    def grow(self, mib: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % mib)
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def grown() -> Iterator[Grown]:
    made = Grown()
    yield made
    made.close()


async def adopt(bed: Bed, container: str, pid: int, user: str = "tester") -> Cgroup:
    cgroup = bed.tree.create(container)
    procs = cgroup.open_procs()
    try:
        await bed.launcher.adopt(container, pid, user, procs_fd=procs)
    finally:
        os.close(procs)
    return cgroup


async def test_an_adopted_process_s_old_memory_stays_behind_and_its_new_memory_is_charged(
    bed: Bed, grown: Grown
) -> None:
    cgroup = await adopt(bed, "adopted", grown.process.pid)
    sample = cgroup.sample()
    assert sample is not None and sample.memory_current_bytes < 10 << 20, "50 MiB stayed where they were charged"
    grown.grow(30)
    await asyncio.to_thread(grown.up)
    sample = cgroup.sample()
    assert sample is not None and 30 << 20 <= sample.memory_current_bytes < 45 << 20


async def test_limits_bind_an_adopted_process(bed: Bed, grown: Grown) -> None:
    cgroup = await adopt(bed, "adopted", grown.process.pid)
    (cgroup.path / "memory.max").write_text(str(32 << 20))
    grown.grow(100)
    exited = await bed.exited()
    assert exited.container == "adopted"
    # Until its parent (this test) reaps it the kernel still has its exit status.
    assert (exited.exit_status, exited.signal) == (137, 9)
    sample = cgroup.sample()
    assert sample is not None and sample.oom_kills == 1


async def test_an_adopted_process_survives_the_agent_and_dies_with_its_cgroup(bed: Bed, grown: Grown) -> None:
    cgroup = await adopt(bed, "adopted", grown.process.pid)
    await bed.launcher.close()
    await bed.connect()
    assert [(run.container, run.pid) for run in await bed.launcher.running()] == [("adopted", grown.process.pid)]
    cgroup.kill()
    assert (await bed.exited()).signal == signal.SIGKILL
    assert bed.exits.empty()


async def test_a_process_in_a_container_is_not_adopted(bed: Bed, grown: Grown) -> None:
    cgroup = await bed.start("has-one", "sleep", "1000", user="tester")
    (pid,) = cgroup.pids()
    with pytest.raises(LaunchFailed, match=f"process {pid} is in container 'has-one' already"):
        await adopt(bed, "wants-it", pid)
    with pytest.raises(LaunchFailed, match=f"process {bed.pid()} is the host's init or Penstock's own"):
        await adopt(bed, "wants-us", bed.pid(), "root")
    with pytest.raises(LaunchFailed, match="process 2 is a kernel thread"):
        await adopt(bed, "wants-more", 2, "root")
