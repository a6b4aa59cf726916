"""The heap of a real JVM follows. Needs a JDK (17 or later); with CI=true there must be one."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.records import ContainerRecord, ContainerState
from agent.jvm import JvmHeaps
from penstock.model import ContainerSpec, Executor
from tests.integration.conftest import Daemon, penstock
from tests.integration.security_callers import open_directory

pytestmark = pytest.mark.skipif(
    shutil.which("jcmd") is None and os.environ.get("CI") != "true", reason="no JDK: openjdk-17-jdk-headless"
)
MIB = 1 << 20
OWN, OTHER = pwd.getpwuid(os.geteuid()).pw_name, "nobody"

#: Make garbage without end, of which 16 MiB live at a time; print again and again how large the heap is.
CHURN = """
public class Churn {
    public static void main(String[] arguments) throws Exception {
        byte[][] live = new byte[256][];
        for (long made = 0; System.in.available() == 0; made++) {
            byte[] block = new byte[64 << 10];
            java.util.Arrays.fill(block, (byte) 1);
            live[(int) (made % live.length)] = block;
            if (made % 128 == 0) {
                System.out.println(Runtime.getRuntime().totalMemory() >> 20);
                Thread.sleep(20);
            }
        }
    }
}
"""

#: Ends once its soft maximum is the expected one.
TOLD = """
public class Told {
    public static void main(String[] arguments) throws Exception {
        var options = java.lang.management.ManagementFactory.getPlatformMXBean(
            com.sun.management.HotSpotDiagnosticMXBean.class);
        while (!options.getVMOption("SoftMaxHeapSize").getValue().equals(arguments[0])) Thread.sleep(50);
    }
}
"""


class Churn:
    """The program, as a user."""

    def __init__(self, source: Path, user: str, *flags: str) -> None:
        other: dict[str, Any] = {}
        if user != OWN:
            account = pwd.getpwnam(user)
            other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        command = ["java", *flags, "-Xms16m", "-Xmx256m", str(source)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", bufsize=0, **other
        )
        self.record = ContainerRecord(
            container="c", user=user, spec=ContainerSpec(argv=("java",)), opportunistic=False, pid=self.process.pid,
            state=ContainerState.RUNNING, executor=Executor(application="churn", jvm=True),
        )  # fmt: skip
        assert self.process.stdout is not None
        self._said = self.process.stdout

    def until(self, holds: Callable[[int], bool]) -> None:
        """Wait for a size of the heap, in MiB. The test's time limit is for one that never comes."""
        while line := self._said.readline():
            if holds(int(line)):
                return
        pytest.fail(f"the JVM has ended: {self.process.wait()}; stderr says why")

    def resident_mib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) // 1024

    def soft_maximum(self) -> int:
        """Return the value by the JVM itself."""
        said = subprocess.run(
            ["jcmd", str(self.process.pid), "VM.flags", "-all"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"SoftMaxHeapSize\s+=\s+(\d+)", said)
        assert found is not None
        return int(found[1])


@pytest.fixture
def churn() -> Iterator[Callable[..., Churn]]:
    started: list[Churn] = []
    with open_directory() as directory:  # another user's JVM reads the source, too
        source = directory / "Churn.java"
        source.write_text(CHURN)

        def start(user: str, *flags: str) -> Churn:
            started.append(Churn(source, user, *flags))
            return started[-1]

        yield start
        for one in started:
            one.process.kill()
            one.process.communicate()


async def test_zgc_gives_memory_back_and_takes_it_again(churn: Callable[..., Churn]) -> None:
    jvm = churn(OTHER if os.geteuid() == 0 else OWN, "-XX:+UseZGC", "-XX:ZUncommitDelay=1")
    notes: list[tuple[str, dict[str, Any]]] = []
    heaps = JvmHeaps(None, lambda what, **facts: notes.append((what, facts)), 0.75)
    jvm.until(lambda heap_mib: heap_mib >= 200)
    full_mib = jvm.resident_mib()
    heaps.bring(jvm.record, 80 * MIB)
    await heaps.settled()
    assert notes == []
    assert jvm.soft_maximum() == 60 * MIB
    jvm.until(lambda heap_mib: heap_mib <= 90)
    assert jvm.resident_mib() < full_mib - 100, "the host has it back"
    heaps.bring(jvm.record, 800 * MIB)
    await heaps.settled()
    assert jvm.soft_maximum() == 256 * MIB, "its maximum"
    jvm.until(lambda heap_mib: heap_mib >= 200)
    await heaps.close()


async def test_g1_gets_its_maximum_and_it_is_reported_that_it_does_not_follow(churn: Callable[..., Churn]) -> None:
    jvm = churn(OWN, "-XX:+UseG1GC")
    notes: list[tuple[str, dict[str, Any]]] = []
    heaps = JvmHeaps(None, lambda what, **facts: notes.append((what, facts)), 0.75)
    jvm.until(lambda heap_mib: heap_mib > 0)
    for memory_mib in (160, 80):
        heaps.bring(jvm.record, memory_mib * MIB)
        await heaps.settled()
    assert jvm.soft_maximum() == 60 * MIB
    assert [(what, facts["pid"]) for what, facts in notes] == [("heap follows badly", jvm.process.pid)]
    assert "start it with -XX:+UseZGC -XX:ZUncommitDelay=5" in notes[0][1]["why"]
    await heaps.close()


def test_an_executor_that_asks_for_it_has_its_heap_set_by_the_agent(
    start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon], tmp_path: Path
) -> None:
    agent = start_agent(master=start_master(node_timeout_s=30).addresses["listen"])
    (tmp_path / "Told.java").write_text(TOLD)
    submit = ("submit", "--executors", "1", "--jvm", "--application", "told", "--memory", "400M", "--")
    said = penstock(agent, *submit, "java", "-Xmx512m", str(tmp_path / "Told.java"), str(300 * MIB))
    assert said.returncode == 0, said.stdout + said.stderr
    noted = [one for one in agent.status()["events"] if one["what"] == "heap follows badly"]
    assert len(noted) == 1, "G1, as OpenJDK chooses it, or the serial collector"
