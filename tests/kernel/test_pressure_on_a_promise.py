"""The kernel reports that a promised container stalls for memory: opportunistic work makes room at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.host_bed import TIMEOUT_S, Host, python

pytestmark = pytest.mark.timeout(400)
CGROUPS = Path("/sys/fs/cgroup")
#: Takes memory a little at a time and goes on for as long as it gets some.
GROW = """
    import time
    held = []
    print("up", flush=True)
    while len(held) < 350:
        held.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.1)
    time.sleep(1000)
    """
HOLD = "import time; held = bytearray(b'x' * (60 << 20)); print('held', flush=True); time.sleep(1000)"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Neither its samples nor its looks would find anything: use is far below T_preempt."""
    host = Host(tmp_path, sample_interval_s=2, repair_interval_s=0, t_preempt_memory=1.0)
    yield host
    host.close()


def test_a_promise_that_stalls_is_helped_though_nothing_is_full(host: Host) -> None:
    """Another container squeezes it: it has less than its promise, and not because of a limit of its own."""
    slack = host.start("run", "--opportunistic", "--name", "slack", "--", *python(HOLD))
    assert slack.stdout is not None and slack.stdout.readline() == "held\n"
    promised = host.start("run", "--name", "promised", "--memory", "400M", "--memory-policy", "throttle", "--",
                          *python(GROW))  # fmt: skip
    assert promised.stdout is not None and promised.stdout.readline() == "up\n"
    container = host.container("promised")["container"]
    (path,) = CGROUPS.glob(f"**/containers/**/{container}")
    time.sleep(2.5)  # a tick, at which its pressure begins to be watched: no event marks that
    (path / "memory.high").write_text(str(24 << 20))
    _, err = slack.communicate(timeout=TIMEOUT_S)
    assert slack.returncode == 137 and "promised work stalls for memory" in err, err
    assert host.status()["preemptions"][-1]["container"] == host.container("slack")["container"]
    assert host.container("promised")["state"] == "running"
    (path / "memory.high").write_text("max")
    host.penstock("kill", container)
    promised.communicate(timeout=TIMEOUT_S)
