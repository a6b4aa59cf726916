"""SIGHUP on real daemons: the values of their files are in force from then on; a wrong file changes nothing."""

from __future__ import annotations

import getpass
import json
import select
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.errors import RpcError
from tests.integration.conftest import Daemon, penstock, until

Connect = Callable[..., Awaitable[Any]]


class Log:
    """The lines that a daemon writes, as they come."""

    def __init__(self, path: Path) -> None:
        self._tail = subprocess.Popen(["tail", "-n", "+1", "-f", path], stdout=subprocess.PIPE, bufsize=0)

    def until(self, begins: str) -> dict[str, Any]:
        """The next line of this event."""
        assert self._tail.stdout is not None
        while select.select([self._tail.stdout], [], [], 60)[0]:
            line = json.loads(self._tail.stdout.readline())
            if line["event"].startswith(begins):
                return dict(line)
        pytest.fail(f"nobody said {begins!r}")

    def close(self) -> None:
        self._tail.kill()
        self._tail.communicate()


class Reloaded:
    """A daemon with a file."""

    def __init__(self, daemon: Daemon, file: Path) -> None:
        self.daemon = daemon
        self.file = file
        self.log = Log(daemon.log)

    def reload(self, text: str) -> dict[str, Any]:
        """Write the file, send the signal to the daemon, and return its log line."""
        self.file.write_text(text)
        self.daemon.process.send_signal(signal.SIGHUP)
        return self.log.until("configuration")


@pytest.fixture
def agent(start_agent: Callable[..., Daemon], tmp_path: Path) -> Iterator[Reloaded]:
    file = tmp_path / "agent.toml"
    file.write_text("t_alloc = 0.8\n")
    running = Reloaded(start_agent("--config", str(file)), file)
    yield running
    running.log.close()


@pytest.fixture
def master(start_master: Callable[..., Daemon], tmp_path: Path) -> Iterator[Reloaded]:
    file = tmp_path / "master.toml"
    file.write_text('ordering = "ejf"\n')
    running = Reloaded(start_master("--config", str(file)), file)
    yield running
    running.log.close()


async def test_an_agent_applies_the_keys_that_it_can(agent: Reloaded, connect: Connect) -> None:
    assert agent.daemon.status()["t_alloc"] == 0.8
    client = await connect(agent.daemon)
    line = agent.reload("t_alloc = 0.5\nmax_frame_bytes = 8192\n")
    assert line["changed"] == {"t_alloc": "0.8 → 0.5"}
    assert line["restart_needed"] == {"max_frame_bytes": '"8MiB" → "8KiB"'}
    assert agent.daemon.status()["t_alloc"] == 0.5

    line = agent.reload('t_alloc = 0.5\nt_aloc = 0.4\nlease_s = "long"\n')
    assert line["event"].startswith("configuration not reloaded") and line["level"] == "error"
    assert f"{agent.file}:2: unknown key 't_aloc'; did you mean 't_alloc'?" in line["why"]
    assert f"{agent.file}:3: lease_s: " in line["why"]
    assert agent.daemon.status()["t_alloc"] == 0.5

    assert agent.reload("opportunistic = false\n")["changed"] == {
        "opportunistic": "true → false",
        "t_alloc": "0.5 → 0.9",
    }
    with pytest.raises(RpcError, match="nothing runs on slack"):
        await client.call("launch", container={"argv": ["true"], "opportunistic": True})
    with pytest.raises(RpcError, match="this host has no master"):
        await client.call("show_config", daemon="master")
    agent.reload("")
    await client.call("launch", container={"argv": ["true"], "opportunistic": True})


async def test_agents_learn_other_tenants(
    master: Reloaded, start_agent: Callable[..., Daemon], connect: Connect
) -> None:
    agent = start_agent(master=master.daemon.addresses["listen"])

    def has_tenant(tenant: str) -> bool:
        (container,) = agent.status()["containers"]
        return container["rank"] is not None and container["rank"]["tenant"] == tenant

    client = await connect(agent)
    await client.call("launch", container={"argv": ["sleep", "1000"]})
    until(lambda: has_tenant(""))
    set_ = penstock(agent, "config", "set", "--daemon", "master", f'tenants={{{getpass.getuser()}="research"}}')
    assert set_.returncode == 0, set_.stderr
    until(lambda: has_tenant("research"))
    master.reload('ordering = "ejf"\n')
    until(lambda: has_tenant(""))
    assert agent.log.read_text().count("linked to the master") == 1, "calls under way would have failed"


def test_a_master_takes_another_order(master: Reloaded) -> None:
    assert master.daemon.status()["ordering"] == "ejf"
    line = master.reload('ordering = "las_mq"\nheartbeat_s = "2s"\n')
    assert (line["changed"], line["restart_needed"]) == (
        {"ordering": '"ejf" → "las_mq"'}, {"heartbeat_s": '"1s" → "2s"'}
    )  # fmt: skip
    assert master.daemon.status()["ordering"] == "las_mq"
    assert "ept_s: 0.01 is below interval_s" in master.reload('ept_s = "10ms"\n')["why"]
    assert master.daemon.status()["ordering"] == "las_mq"
