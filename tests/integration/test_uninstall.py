"""``penstock uninstall`` after a real agent, with a cgroup and a network namespace of the test's own."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import cgroup2_mount
from tests.integration.conftest import options

TIMEOUT_S = 60
#: Make a network namespace with a link on which an agent's root qdisc is, print a line, and keep it until its input
#: ends.
_NETWORK = """
import contextlib, ctypes, os, sys
from pyroute2 import IPRoute
from agent.network.htb import Htb
assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0
with IPRoute() as ip:
    ip.link("add", ifname="up0", kind="veth", peer={"ifname": "up1"})
with contextlib.closing(Htb()) as htb:
    assert htb.install(next(link for link in htb.links() if link.name == "up0")) is None
print("ready", flush=True)
sys.stdin.read()
"""

pytestmark = [
    pytest.mark.skipif(cgroup2_mount() is None, reason="elsewhere: needs a cgroup2 mount"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root removes the files of agents"),
]


@pytest.fixture
def network() -> Iterator[int]:
    """The process in whose network namespace the command is run."""
    command = [sys.executable, "-c", _NETWORK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid


@pytest.fixture
def root() -> Iterator[Path]:
    """Where the agent makes its tree."""
    mount = cgroup2_mount()
    assert mount is not None
    made = mount / f"penstock-uninstall-{secrets.token_hex(4)}"
    yield made
    assert not made.exists()


Uninstall = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def uninstall(tmp_path: Path, root: Path, network: int) -> Uninstall:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        places = options(runtime_dir=tmp_path / "run", state_dir=tmp_path / "state", cgroup_root=root)
        command = [sys.executable, "-I", "-m", "penstock.cli.main", "uninstall", *arguments, *places]
        return subprocess.run(
            ["nsenter", f"--net=/proc/{network}/ns/net", *command],
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip

    return run


def test_all_that_an_agent_left_is_gone(
    start_agent: Callable[..., Any], tmp_path: Path, root: Path, uninstall: Uninstall
) -> None:
    agent = start_agent(cgroup_root=root)
    client = subprocess.Popen(
        [sys.executable, "-I", "-m", "penstock.cli.main", "run", "--", "sh", "-c", "echo $$; exec sleep 1000"],
        env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with client:
        assert client.stdout is not None
        work = os.pidfd_open(int(client.stdout.readline()))
        refused = uninstall("--kill")
        assert refused.returncode == 1 and refused.stderr.startswith("penstock uninstall: an agent answers at ")
        agent.kill()  # first: it would end the client's containers when the client goes
        client.kill()
    container = next(iter((root / "containers").glob("*/"))).name
    refused = uninstall()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"penstock uninstall: containers run ({container})")

    dry = uninstall("--dry-run")
    assert dry.returncode == 0 and dry.stderr.count("\n") == 1
    assert dry.stderr.endswith(" run: without --kill nothing would be removed\n")
    planned = dry.stdout.replace("would remove", "removed")
    assert f"removed container {container} and its processes\n" in planned
    assert "removed traffic control on up0\n" in planned and f"removed cgroups in {root}\n" in planned
    assert root.exists() and not select.select([work], [], [], 0)[0]

    done = uninstall("--kill")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"container", "launcher", "traffic"} <= {line.split()[1] for line in done.stdout.splitlines()}
    assert set(done.stdout.splitlines()) <= set(planned.splitlines())  # the launcher took its tree and socket itself
    assert select.select([work], [], [], 0)[0]
    os.close(work)
    assert not root.exists() and list((tmp_path / "run").glob("*.sock")) == []
    assert (tmp_path / "state/journal").exists()

    again = uninstall()
    assert (again.returncode, again.stdout) == (0, "nothing of Penstock is set up here\n")
    purged = uninstall("--purge")
    assert purged.returncode == 0 and not (tmp_path / "state").exists()
