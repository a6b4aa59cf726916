"""Nice values of a container's processes, which are those of its cgroup."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from agent.cgroups import CgroupTree
from agent.core import instructions as i
from agent.executor import Executor
from agent.limit_enforcer import LimitEnforcer
from tests.fakes.fake_cgroups import FakeCgroups


@pytest.mark.skipif(os.geteuid() != 0, reason="only root ranks by nice values")
async def test_the_processes_of_a_containers_cgroup_are_reniced_without_a_look_at_all_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host may have thousands of processes, and ranks change several times for each job."""
    fake = FakeCgroups(controllers=())
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    tree.prepare()
    one = Executor(cast(Any, None), tree, LimitEnforcer(tree, None, print), cast(Any, None), cast(Any, None))
    path = tree.create("c-1").path
    fake.mkdir(str(path / "made-by-its-process").encode())
    monkeypatch.setattr(psutil, "pids", lambda: pytest.fail("all processes of the host were listed"))
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:  # noqa: ASYNC220 - for one turn
        try:
            fake.write(str(path / "made-by-its-process" / "cgroup.procs").encode(), str(process.pid))
            one.renice(i.Renice("c-1", process.pid, 7))
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7
        finally:
            process.kill()
            fake.close()
