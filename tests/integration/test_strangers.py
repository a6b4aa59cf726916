"""Leftovers of another installation on the host are not an agent's: it neither touches them nor fails because of them.

The stranger's are those of a killed agent: a launcher, its containers and their cgroups, sockets, and a journal, all in
other directories and in another tree; beside it, a tree in which nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import cgroup2_mount
from tests.integration.conftest import end_launcher

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]
SLEEP = {"argv": ["sleep", "1000"], "detach": True}


@dataclass
class Stranger:
    """The directories, the tree and the container of an agent that is gone; ``empty``: the tree without processes."""

    directory: Path
    root: Path
    empty: Path
    container: str

    def agent(self, start_agent: Start) -> Any:
        return start_agent(
            cgroup_root=self.root, runtime_dir=self.directory / "run", state_dir=self.directory / "state"
        )

    def everything(self) -> dict[str, object]:
        """Each cgroup with its processes and whether it is frozen, each file with its inode and its time of change."""
        found: dict[str, object] = {}
        for root in (self.root, self.empty):
            for cgroup in (root, *root.rglob("*/")):
                found[str(cgroup)] = [(cgroup / name).read_text() for name in ("cgroup.procs", "cgroup.events")]
        for path in sorted(self.directory.rglob("*")):
            shown = path.lstat()
            found[str(path)] = (shown.st_ino, shown.st_mtime_ns, shown.st_mode)
        return found


@pytest.fixture
async def stranger(tmp_path: Path, start_agent: Start, connect: Connect) -> AsyncIterator[Stranger]:
    if os.geteuid() != 0:
        pytest.skip("needs root: cgroups at the top of the mount")
    mount = cgroup2_mount()
    assert mount is not None
    # As launchers name their trees by themselves.
    root, empty = (mount / f"penstock-{secrets.token_hex(4)}" for _ in range(2))
    made = Stranger(tmp_path / "elsewhere", root, empty, "")
    agent = made.agent(start_agent)
    client = await connect(agent)
    made.container = (await client.call("launch", container=SLEEP))["container"]
    agent.kill()
    (empty / "containers/c-1").mkdir(parents=True)
    yield made
    end_launcher(made.directory / "run")
    for cgroup in (empty / "containers/c-1", empty / "containers", empty):
        cgroup.rmdir()


@pytest.mark.parametrize("tree", ["auto", "named"])
async def test_leftovers_of_others_are_neither_touched_nor_in_the_way(
    tree: str, stranger: Stranger, start_agent: Start, connect: Connect, tmp_path: Path
) -> None:
    own = "auto" if tree == "auto" else stranger.root.with_name(f"penstock-test-{secrets.token_hex(4)}")
    agent = start_agent(cgroup_root=own)
    client = await connect(agent)
    assert await _states(client) == {}
    kept = (await client.call("launch", container=SLEEP))["container"]
    with _of_the_same_name(stranger, kept) as process:
        before = stranger.everything()
        agent.kill()
        agent = start_agent(cgroup_root=own)  # takes back its predecessor's containers, and those alone
        client = await connect(agent)
        assert await _states(client) == {kept: "running"}
        await client.call("kill", container=kept)
        await client.call("launch", container={"argv": ["true"]})
        await client.recorder.wait_for("container_ended")
        await _all_ended(client)
        assert await asyncio.to_thread(agent.stop) == 0
        end_launcher(tmp_path / "run")  # so do the tests end theirs
        assert not isinstance(own, Path) or not own.exists()
        assert process.poll() is None
        assert stranger.everything() == before

    successor = stranger.agent(start_agent)
    assert await _states(await connect(successor)) == {stranger.container: "running"}
    successor.kill()  # so that nothing replaces the launcher, which ends now


async def _states(client: Any) -> dict[str, str]:
    status = (await client.call("status"))["status"]
    return {each["container"]: each["state"] for each in status["containers"]}


async def _all_ended(client: Any) -> None:
    """Poll until all have ended: the end of a container is reported only to the connection that launched it."""
    async with asyncio.timeout(60):
        while set((await _states(client)).values()) != {"ended"}:  # noqa: ASYNC110 - the status has no event
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def _of_the_same_name(stranger: Stranger, container: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the stranger's tree, in a cgroup with the name of a container of ours."""
    cgroup = stranger.root / "containers" / container
    cgroup.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            (cgroup / "cgroup.procs").write_text(str(process.pid))
            yield process
        finally:
            process.kill()
            process.wait()
            cgroup.rmdir()
