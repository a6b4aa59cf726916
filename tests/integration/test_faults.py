"""The agent dies at every step of creating, adopting, resizing, preempting and destroying; its successor repairs the
state.

The tests are one life: each kills the successor of the one before, whose container lives through all of them. After
each death the containers that should live do. The cgroups, network classes, BPF programs and processes that should be
gone are. The container of the step is either whole or gone. On a host without cgroup v2 controllers memory can neither
be shrunk nor reclaimed: those points are reached in the virtual machine (tests/kernel/test_faults_memory.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import cgroup2_mount
from agent.fault_injection import Point
from agent.network import bpf, probe
from agent.network.htb import HANDLE
from tests.network_bed import UPLINK, Bed

Start, Connect = Callable[..., Any], Callable[..., Any]
#: Burns 40 % of a core: enough to be in the way, and the agent under test is left some.
BURN = """
import time
while True:
    began = time.monotonic()
    while time.monotonic() - began < 0.02:
        pass
    time.sleep(0.03)
"""
SPIN = [sys.executable, "-ISc", BURN]
HOLD = [sys.executable, "-ISc", "import time; x = b'x' * (60 << 20); time.sleep(1000)"]
SLEEP = ["sleep", "1000"]
#: Of all regular and of all opportunistic containers without a class of their own.
_SHARED_CLASSES = 2
#: Only memory that the kernel accounts for comes here.
MEMORY = {Point.CONFINE_MEMORY_SHRUNK, Point.RECLAIM_ASKED, Point.RECLAIM_DONE}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces, BPF programs, qdiscs")
    if refusal := probe():
        pytest.skip(f"elsewhere: {refusal}")
    made = Bed()
    yield made
    made.close()


class Scene:
    """An agent that will die at a point, on a node with a container that has nothing to do with it."""

    def __init__(self, start_agent: Start) -> None:
        self._start_agent = start_agent
        self.connect: Connect = None  # type: ignore[assignment] # that of the test that runs
        self.agent: Any = None
        self.client: Any = None
        mount = cgroup2_mount()
        assert mount is not None
        self.root = mount / f"penstock-test-{secrets.token_hex(4)}"  # others on this host have trees of their own
        self.innocent = ""
        self.outsider: asyncio.subprocess.Process | None = None  # which is to be adopted

    async def begin(self, point: Point | None) -> None:
        """Start the agent, or its successor."""
        times = 2 if point in STEPS and STEPS[point] is _resize_one else 1  # taking back confines the innocent
        environment = {"PENSTOCK_DIE_AT": f"{point.value}:{times}"} if point is not None else {}
        self.agent = self._start_agent(
            environment=environment, cgroup_root=self.root, t_alloc=2.0, t_preempt_cpu=0.2, t_preempt_memory=0.5,
            preempt_after=1, preempt_cooldown_s=1.0, sample_interval_s=0.05, memory_bytes=100 << 20,
            repair_interval_s=0.1,
        )  # fmt: skip
        self.client = await self.connect(self.agent)

    async def kill(self) -> None:
        """Let the agent of the test before die, where there is one; else begin with the innocent container."""
        if not self.innocent:
            await self.begin(None)
            self.innocent = await self.launch(*SLEEP, memory_bytes=1 << 20)
        self.agent.kill()

    async def launch(self, *argv: str, **spec: object) -> str:
        container = {"argv": argv, "detach": True, "env": {"PATH": "/usr/bin:/bin"}, **spec}
        return str((await self.client.call("launch", container=container))["container"])

    async def dies(self) -> None:
        """Send a request that makes the agent reach the point, and check that it dies there."""
        await asyncio.to_thread(self.agent.process.wait, 60)
        assert self.agent.process.returncode == -9, self.agent.log.read_text()

    async def containers(self) -> dict[str, dict[str, Any]]:
        status = (await self.client.call("status"))["status"]
        return {c["container"]: c for c in status["containers"]}

    async def states(self) -> dict[str, str]:
        """Container → its state."""
        return {container: found["state"] for container, found in (await self.containers()).items()}


async def eventually(check: Callable[[], Any], timeout_s: float = 60) -> None:
    """Neither the kernel nor the status notifies of its changes: poll until the condition is true."""
    why: Exception | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await check()
                except (AssertionError, FileNotFoundError) as error:  # a cgroup may go while it is looked at
                    why = error
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise why or AssertionError("it never ran") from None


async def _start_one(scene: Scene) -> None:
    limits = {"network_egress_bytes_per_s": 1_000_000, "network_ingress_bytes_per_s": 1_000_000}
    await scene.launch(*SLEEP, limits=limits, opportunistic=True)


async def _adopt_one(scene: Scene) -> None:
    scene.outsider = await asyncio.create_subprocess_exec(*SLEEP)
    await scene.client.call("adopt", pid=scene.outsider.pid, container={"argv": SLEEP, "opportunistic": True})


async def _resize_one(scene: Scene) -> None:
    container = await scene.launch(*SLEEP)
    await scene.client.call("resize", container=container, limits={"network_egress_bytes_per_s": 2_000_000})


async def _pause_one(scene: Scene) -> None:
    await scene.launch(*SPIN, opportunistic=True)
    await scene.launch(*SPIN, cpu_cores=1.9)


async def _pause_one_and_let_it_go_on(scene: Scene) -> None:
    await scene.launch(*SPIN, opportunistic=True)
    regular = await scene.launch(*SPIN, cpu_cores=1.9)

    async def it_is_paused() -> None:
        assert "paused" in (await scene.states()).values()

    await eventually(it_is_paused)
    await scene.client.call("kill", container=regular)


async def _warn_one(scene: Scene) -> None:
    notice = {"signal": 18, "grace_s": 60.0}
    await scene.launch(*HOLD, opportunistic=True, notice=notice)
    await scene.launch(*SLEEP, memory_bytes=70 << 20)


async def _preempt_one(scene: Scene) -> None:
    await scene.launch(*HOLD, opportunistic=True)
    await scene.launch(*SLEEP, memory_bytes=70 << 20)


async def _end_one(scene: Scene) -> None:
    await scene.launch("true")


STEPS: dict[Point, Callable[[Scene], Any]] = {
    **{point: _start_one for point in Point if point.value.startswith("start")},
    **{point: _resize_one for point in Point if point.value.startswith("confine")},
    **{point: _pause_one for point in Point if point.value.startswith("freeze")},
    **{point: _pause_one_and_let_it_go_on for point in Point if point.value.startswith("thaw")},
    **{point: _preempt_one for point in Point if point.value.startswith("kill")},
    Point.WARN_DONE: _warn_one,
    **{point: _end_one for point in Point if point.value.startswith(("exit", "remove"))},
}


@pytest.fixture(scope="module")
def stage(bed: Bed, start_shared_agent: Start) -> Scene:
    return Scene(start_shared_agent)


@pytest.fixture
def scene(stage: Scene, connect: Connect) -> Scene:
    stage.connect = connect
    return stage


def test_every_point_has_its_step() -> None:
    assert set(STEPS) | MEMORY == set(Point)


@pytest.mark.parametrize(("point", "step"), [(point, step) for point, step in STEPS.items() if point not in MEMORY])
async def test_a_death_leaves_nothing_behind_and_affects_no_other(
    scene: Scene, point: Point, step: Callable[[Scene], Any]
) -> None:
    await _play(scene, point, step)


@pytest.mark.parametrize("point", [point for point in Point if point.value.startswith("start")])
async def test_adopting_likewise(scene: Scene, point: Point) -> None:
    await _play(scene, point, _adopt_one)


async def _play(scene: Scene, point: Point, step: Callable[[Scene], Any]) -> None:
    await scene.kill()
    await scene.begin(point)
    doing = asyncio.ensure_future(step(scene))
    await scene.dies()
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)

    await scene.begin(None)
    await eventually(lambda: _only_the_living_are_left(scene))
    states = await scene.states()
    assert states[scene.innocent] == "running", states
    await _kill_all(scene, states.keys() - {scene.innocent})
    if scene.outsider is not None:
        with contextlib.suppress(ProcessLookupError):  # it had been adopted
            scene.outsider.kill()
        await scene.outsider.wait()
        scene.outsider = None


async def test_at_the_end_nothing_is_left(scene: Scene) -> None:
    await scene.kill()
    await scene.begin(None)
    await _kill_all(scene, {scene.innocent})
    assert set((await scene.states()).values()) == {"ended"}
    assert not await asyncio.to_thread(_kernel, scene.root)


async def _kill_all(scene: Scene, containers: set[str]) -> None:
    for container, state in (await scene.states()).items():
        if container in containers and state != "ended":
            await scene.client.call("kill", container=container)
    await eventually(lambda: _ended(scene, containers))


async def _ended(scene: Scene, containers: set[str]) -> None:
    await _only_the_living_are_left(scene)
    states = await scene.states()
    assert {states.get(container, "ended") for container in containers} <= {"ended"}, states


async def _only_the_living_are_left(scene: Scene) -> None:
    """The kernel's view is the status: a cgroup for each that lives, frozen if it is paused, and nothing else."""
    states = {container: state for container, state in (await scene.states()).items() if state != "ended"}
    assert set(states.values()) <= {"running", "paused", "warned"}, states
    kernel = await asyncio.to_thread(_kernel, scene.root)
    assert kernel == {container: state == "paused" for container, state in states.items()}, (kernel, states)


def _kernel(root: Path) -> dict[str, bool]:
    """Containers of which there is a cgroup, and whether it is frozen; no network class but for them."""
    cgroups = {path.name: path for path in root.glob("containers/c-*")}
    shown = subprocess.run(["tc", "class", "show", "dev", UPLINK], capture_output=True, text=True, check=True).stdout
    own = [line for line in shown.splitlines() if f" {HANDLE >> 16:x}:" in line and "leaf" in line]
    marked = [path for path in cgroups.values() if bpf.attached(path)]
    assert len(own) <= len(marked) + _SHARED_CLASSES, shown
    return {name: "frozen 1" in (path / "cgroup.events").read_text() for name, path in cgroups.items()}
