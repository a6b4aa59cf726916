"""Containers whose launcher died: how their end is found, how they are signalled, and starts meanwhile."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import previous_agent, removals
from agent.cgroups import CgroupTree
from agent.core import containers
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, ContainerState
from agent.daemon import Agent
from agent.executor import Executor
from agent.journal import Journal
from agent.launcher import Exited, LauncherGone, Running, Start
from agent.limit_enforcer import LimitEnforcer
from agent.stdio import Stdio
from penstock.daemon import StartError
from penstock.model import ContainerSpec
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.slow_network import SlowNetwork

LIMIT_S = 30
SPEC = ContainerSpec(argv=("x",))


class Cgroups:
    """A tree on a fake file system, and real processes in it."""

    def __init__(self) -> None:
        self._fake = FakeCgroups()
        self.tree = CgroupTree(Path("/fake/cgroup"), [], self._fake)
        self.tree.prepare()
        self._processes: list[subprocess.Popen[bytes]] = []

    def enter(self, container: str) -> subprocess.Popen[bytes]:
        """A process in a container's cgroup, which is made if it is not there."""
        process = subprocess.Popen(["sleep", "1000"])
        self._processes.append(process)
        path = self.tree.get(container).path
        if container not in self.tree.existing():
            self.tree.create(container)
        self._fake.write(str(path / "cgroup.procs").encode(), str(process.pid))
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(LIMIT_S)
        self._fake.close()


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    made = Cgroups()
    yield made
    made.close()


class Dying:
    """A launcher that dies when it is asked: before it was asked (``asked``: False), or with ``then`` done."""

    def __init__(self, *, asked: bool, then: Callable[[], object] = lambda: None) -> None:
        self.asked = asked
        self.then = then
        self.executor: Executor

    async def start(self, start: Start, **_: object) -> int:
        self.then()
        self.executor.launcher_lost()
        raise LauncherGone(asked=self.asked)


class Living:
    """A launcher that starts everything."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.signals: list[tuple[str, int]] = []
        self.acknowledged: list[str] = []
        self.killed_outside: list[str] = []

    async def acknowledge(self, container: str) -> None:
        self.acknowledged.append(container)

    async def start(self, start: Start, **_: object) -> int:
        self.started.append(start.container)
        return 7

    async def kill_session(self, container: str, *, outside: bool) -> None:
        """Of a container without a cgroup, or whose first process has left it."""
        if outside:
            self.killed_outside.append(container)

    async def signal(self, container: str, signum: int) -> None:
        self.signals.append((container, signum))


def made(
    launcher: object, tree: CgroupTree | None, tmp_path: Path, network: object = None
) -> tuple[Executor, asyncio.Queue[Any]]:
    told: asyncio.Queue[Any] = asyncio.Queue()
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    one = Executor(cast(Any, launcher), tree, limit_enforcer, cast(Stdio, SimpleNamespace()), tmp_path)
    one.on_event = told.put_nowait
    if isinstance(launcher, Dying):
        launcher.executor = one
    return one, told


async def take(told: asyncio.Queue[Any]) -> Any:
    return await asyncio.wait_for(told.get(), LIMIT_S)


# ---------------------------------------------------------------- their end


async def test_the_end_is_reported_once_when_the_last_process_is_gone(cgroups: Cgroups, tmp_path: Path) -> None:
    one, told = made(Living(), cgroups.tree, tmp_path)
    first, second = cgroups.enter("c-1"), cgroups.enter("c-1")
    one.watch_orphan("c-1")
    await asyncio.sleep(0)
    first.kill()
    first.wait(LIMIT_S)
    one.look_at_orphans()
    assert told.empty(), "one still runs"
    second.kill()
    second.wait(LIMIT_S)
    one.look_at_orphans()
    one.look_at_orphans()
    ended = await take(told)
    assert (ended.container, ended.exit_status, ended.signal) == ("c-1", None, None)
    assert told.empty()


async def test_an_earlier_end_is_reported_at_once(cgroups: Cgroups, tmp_path: Path) -> None:
    one, told = made(Living(), cgroups.tree, tmp_path)
    one.watch_orphan("c-1")
    assert isinstance(await take(told), e.ContainerExited)


async def test_the_next_launcher_may_know_how_one_exited(cgroups: Cgroups, tmp_path: Path) -> None:
    one, told = made(Living(), cgroups.tree, tmp_path)
    one.launcher_lost()
    one.watch_orphan("c-1")
    one.watch_orphan("c-2")
    await asyncio.sleep(0)
    one.look_at_orphans()
    assert told.empty()
    one.exited(Exited("c-1", 3, None, 0.0, 0, 1e9))
    one.use(cast(Any, Living()))
    ends = [await take(told), await take(told)]
    assert [(end.container, end.exit_status) for end in ends] == [("c-1", 3), ("c-2", None)]
    await asyncio.sleep(0)
    assert told.empty()


async def test_an_end_that_the_next_launcher_reports_at_once_is_acknowledged(cgroups: Cgroups, tmp_path: Path) -> None:
    """Else the end would stay in `exits` for as long as this agent runs."""
    one, _ = made(Living(), cgroups.tree, tmp_path)
    launcher = Living()
    one.launcher_lost()
    one.remove("c-1")  # as the core answers to reports before the launcher is in use
    asyncio.get_running_loop().call_later(0.01, one.use, launcher)
    await asyncio.wait_for(one.settle(), LIMIT_S)
    assert launcher.acknowledged == ["c-1"]


async def test_the_nice_value_of_one_whose_exit_no_launcher_saw_is_dropped(tmp_path: Path) -> None:
    one, _ = made(Living(), None, tmp_path)
    one._nice._unchanged.add("c-1")
    one.remove("c-1")
    await asyncio.wait_for(one.settle(), LIMIT_S)
    assert not one._nice._unchanged


async def test_without_cgroups_nothing_of_it_can_be_seen(tmp_path: Path) -> None:
    one, told = made(Living(), None, tmp_path)
    one.launcher_lost()
    one.watch_orphan("c-1")
    one.use(cast(Any, Living()))
    assert (await take(told)).exit_status is None
    await one.settle()


async def test_every_process_of_it_is_signalled(cgroups: Cgroups, tmp_path: Path) -> None:
    launcher = Living()
    one, _ = made(launcher, cgroups.tree, tmp_path)
    processes = [cgroups.enter("c-1"), cgroups.enter("c-1")]
    one.watch_orphan("c-1")
    one.signal("c-1", signal.SIGTERM)
    one.signal("c-2", signal.SIGTERM)
    await one.settle()
    assert [process.wait(LIMIT_S) for process in processes] == [-signal.SIGTERM] * 2
    assert launcher.signals == [("c-2", signal.SIGTERM)], "of others only the launcher knows the first process"


async def test_a_kill_reaches_the_cgroup_and_a_first_process_outside_of_it(cgroups: Cgroups, tmp_path: Path) -> None:
    launcher = Living()
    one, _ = made(launcher, cgroups.tree, tmp_path)
    process = cgroups.enter("c-1")
    one.kill("c-1")
    await one.settle()
    assert process.wait(LIMIT_S) == -signal.SIGKILL
    assert launcher.killed_outside == ["c-1"]


async def test_a_container_that_dies_slowly_keeps_its_limits_until_it_is_removed(
    cgroups: Cgroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_WAITS_S", (0.0, 0.0))
    one, _ = made(Living(), cgroups.tree, tmp_path, network := SlowNetwork())
    one.start(i.StartContainer("c-1", "root", SPEC))
    await one.settle()
    process = cgroups.enter("c-1")
    one.remove("c-1")
    await one.settle()
    assert (cgroups.tree.existing(), list(network.promises())) == (["c-1"], ["c-1"])
    await one.removals.remove_left()
    assert cgroups.tree.existing() == ["c-1"]
    process.kill()
    process.wait(LIMIT_S)
    await one.removals.remove_left()
    assert (cgroups.tree.existing(), list(network.promises())) == ([], [])


# ---------------------------------------------------------------- starts meanwhile


async def test_a_start_that_no_launcher_was_asked_for_waits_for_the_next_one(cgroups: Cgroups, tmp_path: Path) -> None:
    one, told = made(Dying(asked=False), cgroups.tree, tmp_path)
    one.start(i.StartContainer("c-1", "root", SPEC))
    launcher = Living()
    asyncio.get_running_loop().call_later(0.01, one.use, launcher)
    started = await take(told)
    assert isinstance(started, e.ContainerStarted) and not started.orphaned
    assert launcher.started == ["c-1"]


async def test_a_start_that_was_under_way_is_an_orphan_if_something_runs(cgroups: Cgroups, tmp_path: Path) -> None:
    entered: list[subprocess.Popen[bytes]] = []
    dying = Dying(asked=True, then=lambda: entered.append(cgroups.enter("c-1")))
    one, told = made(dying, cgroups.tree, tmp_path)
    one.start(i.StartContainer("c-1", "root", SPEC))
    started = await take(told)
    assert isinstance(started, e.ContainerStarted) and started.orphaned
    assert started.pid == entered[0].pid


@pytest.mark.parametrize("known", [True, False])
async def test_a_start_that_was_under_way_is_not_repeated(cgroups: Cgroups, tmp_path: Path, known: bool) -> None:
    """It may have run, and ended: the next launcher may know how."""
    one, told = made(Dying(asked=True), cgroups.tree, tmp_path)
    one.start(i.StartContainer("c-1", "root", SPEC))
    started = await take(told)
    assert isinstance(started, e.ContainerStarted) and (started.pid, started.orphaned) == (0, True)
    one.watch_orphan("c-1")
    await asyncio.sleep(0)
    assert told.empty()
    if known:
        one.exited(Exited("c-1", 3, None, 0.0, 0, 1e9))
    launcher = Living()
    one.use(cast(Any, launcher))
    assert (await take(told)).exit_status == (3 if known else None)
    assert told.empty() and launcher.started == []


async def test_an_agent_whose_launcher_dies_while_it_starts_ends_with_one_line() -> None:
    class Dead:
        async def running(self) -> list[Running]:
            raise LauncherGone(asked=True)

    with pytest.raises(StartError, match="start the agent again"):
        await Agent._take_back(cast(Any, SimpleNamespace()), cast(Any, None), cast(Any, Dead()))


async def test_a_launch_that_waits_in_vain_is_left_to_the_next_agent(cgroups: Cgroups, tmp_path: Path) -> None:
    one, told = made(Living(), cgroups.tree, tmp_path)
    one.launcher_lost()
    one.start(i.StartContainer("c-1", "root", SPEC))
    one.give_up()
    await asyncio.wait_for(one.settle(), LIMIT_S)
    assert told.empty(), "its end would be journaled"


# ---------------------------------------------------------------- after both died


def records(directory: Path, *states: ContainerState) -> Journal:
    journal = Journal(directory)
    for number, state in enumerate(states):
        name = f"c-{number}"
        pid = 0 if state is ContainerState.STARTING else 4711
        record = ContainerRecord(container=name, user="u", spec=SPEC, opportunistic=False, state=state, pid=pid)
        journal.write(containers.ROOM, name, record)
    return journal


@pytest.mark.parametrize("same_launcher", [True, False])
def test_remaining_containers_are_reported_by_launcher_and_cgroups(
    cgroups: Cgroups, tmp_path: Path, same_launcher: bool
) -> None:
    starting, running = ContainerState.STARTING, ContainerState.RUNNING
    journal = records(tmp_path, starting, starting, starting, starting, running, running)
    entered = cgroups.enter("c-2")
    cgroups.enter("c-4")
    found = previous_agent.recovered_state(
        journal, [Running("c-0", 7, "u", 0.0)], frozenset({"c-1"}), cgroups.tree, same_launcher=same_launcher
    )
    assert found.running == {"c-0": 7, "c-2": entered.pid, "c-4": 4711}
    assert found.orphans == {"c-2", "c-4"}
    assert found.never_began == ({"c-3"} if same_launcher else set()), "another launcher cannot tell"
    assert found.exits_to_come == {"c-1"}
    assert found.cpu_s == {"c-2": 0.0, "c-4": 0.0}


def test_without_cgroups_only_the_launcher_reports(tmp_path: Path) -> None:
    journal = records(tmp_path, ContainerState.STARTING, ContainerState.RUNNING)
    found = previous_agent.recovered_state(journal, [], frozenset(), None, same_launcher=True)
    assert (found.running, found.orphans, found.never_began) == ({}, frozenset(), {"c-0"})
