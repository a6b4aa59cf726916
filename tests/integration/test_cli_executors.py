"""`penstock submit --executors` with a real master and agent, and the output of `penstock profile` afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import Daemon, until
from tests.integration.conftest import penstock as command_on

PROGRAM = "import os, time; open(os.environ['PENSTOCK_EXECUTOR'], 'x').close(); time.sleep(0.6)"
APPLICATION = "works/sort & more"


def test_executors_run_and_are_known_afterwards(
    start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon], tmp_path: Path
) -> None:
    master = start_master(node_timeout_s=30, executor_slot_s=0.2)
    agent = start_agent(master=master.addresses["listen"], executor_slot_s=0.2, sample_interval_s=0.1)
    work = tmp_path / "work"
    work.mkdir(mode=0o777)

    def penstock(*argv: str) -> subprocess.CompletedProcess[str]:
        return command_on(agent, *argv, cwd=work, PENSTOCK_MASTER_HTTP=master.addresses["http"])

    said = penstock(
        "submit", "--json", "--executors", "2", "--application", APPLICATION, "--memory", "64M", "--cpu", "0.5",
        "--input-bytes", "1M", "--run", "monday", "--", sys.executable, "-I", "-c", PROGRAM,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    tasks = json.loads(said.stdout)["tasks"]
    assert [(task["task"], task["state"], task["exit_status"]) for task in tasks] == [
        ("executor-0", "done", 0),
        ("executor-1", "done", 0),
    ]
    assert sorted(path.name for path in work.iterdir()) == ["0", "1"], "each knew which it was"

    until(lambda: json.loads(master.get("/profiles")), "it is not stored in the background")
    (listed,) = json.loads(penstock("profile", "list", "--json").stdout)
    assert (listed["application"], listed["runs"]) == (APPLICATION, 1), "two executors of one run are one"
    shown = penstock("profile", "show", APPLICATION)
    assert shown.returncode == 0, shown.stderr
    assert "monday" in shown.stdout
    assert "0.5 cores, 64 MiB" in shown.stdout
    plotted = penstock("profile", "plot", APPLICATION)
    assert plotted.returncode == 0, plotted.stderr
    assert "run monday: █ used, without a forecast" in plotted.stdout
    assert "memory, mean of each slot" in plotted.stdout
    assert "too few runs have been recorded" in penstock("profile", "compare", APPLICATION).stdout
