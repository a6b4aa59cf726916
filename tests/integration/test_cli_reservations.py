"""``penstock reserve`` and ``penstock reservations`` against a real master and agent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.client import AgentClient
from tests.integration.conftest import MasterProcess, agents
from tests.integration.conftest import penstock as command_on
from tests.integration.test_reservations_live import reservations

Start = Callable[..., Any]
RDL = "window(atom(<1GB,1core>,1,1,1h,1h),+1h,+3h)"


async def test_reserve_list_change_use_and_give_back(start_agent: Start, master: MasterProcess, tmp_path: Path) -> None:
    [agent] = await agents(start_agent, master, tmp_path, "alpha", cores=2)

    def penstock(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = command_on(agent, *arguments)
        assert done.returncode == status, done.stderr
        return done

    async with await AgentClient.connect(agent.socket, "test") as client:
        assert await reservations(client) == [], "the agent is linked"
    [made] = json.loads(penstock("reserve", RDL, "--name", "nightly", "--json").stdout)
    assert (made["name"], made["promised"][0]["bundles"]) == ("nightly", 1)
    name = made["reservation"]
    shown = penstock("reservations").stdout
    assert name in shown
    assert "1 × 1 core," in shown
    expression = tmp_path / "expression.json"
    expression.write_text(json.dumps({"window": [{"atom": [{"cpu_cores": 2.0}, 1, 1, "1h", "1h"]}, "+1h", "+3h"]}))
    assert "1 × 2 cores" in penstock("reserve", f"@{expression}", "--update", name).stdout
    then = penstock("reservations", "--at", "+170min").stdout
    assert "1 × 2 cores" in then, "in the last hour of its window"
    assert "free " in then
    [told] = json.loads(penstock("reservations", "--at", "+170min", "--json").stdout)["reservations"]
    assert told["reservation"] == name
    now = penstock("reservations", "--at", "now").stdout
    assert "no allocation at that time" in now
    assert "2 cores" in now, "all of it is free"
    job = tmp_path / "job.toml"
    job.write_text('name = "j"\n[[task]]\nname = "a"\ncommand = "true"\n')
    penstock("submit", str(job), "--reservation", name)
    assert "no reservation 'r-0'" in penstock("submit", str(job), "--reservation", "r-0", status=4).stderr
    for wrong, code, said in (
        (("reserve", "atom("), 2, "expected"),
        (("reserve", RDL.replace("1core", "9core")), 1, "the cluster has 2"),
        (("reserve", "@" + str(tmp_path / "none")), 2, "No such file"),
        (("reserve", RDL, "--update", name, "--name", "x"), 2, "--name cannot be changed"),
        (("reservations", "--delete", "r-0"), 4, "no reservation 'r-0'"),
        (("reservations", "--at", "tomorrow"), 2, "'tomorrow' is no time"),
        (("reservations", "--at", "+2x"), 2, "write now, +90s"),
    ):
        error = penstock(*wrong, status=code).stderr
        assert said in error
        assert error.count("\n") == 1, "one line"
    assert "nothing is reserved" in penstock("reservations", "--delete", name).stdout
