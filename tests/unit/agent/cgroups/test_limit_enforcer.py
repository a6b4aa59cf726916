"""What the limit enforcer adds to what containers ask for: the agent's ``pids_max``, and protection of them all.

A container that asks for no ``pids_max`` gets the agent's; nothing is said of it where it cannot be had.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.core import events as e
from agent.core.confinement import Confinement, worth_saying
from agent.core.snapshot import Snapshot
from agent.journal import Journal
from agent.limit_enforcer import LimitEnforcer
from penstock.model import ContainerSpec, Limits
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Resize
from penstock.wire.errors import RpcError
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make
from tests.unit.agent.shell.shell_bed import Silent, make_shell


async def test_the_default_is_in_force_unless_the_container_has_its_own(make: Make) -> None:
    fake, tree = make()
    told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    most = 4096
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.put_nowait(why), pids_max=lambda: most)

    def in_force(container: str) -> str:
        return [text for path, text in fake.writes if path.endswith(f"{container}/pids.max")][-1]

    await limit_enforcer.create("a", Confinement())
    await limit_enforcer.create("b", Confinement(pids_max=7))
    assert (in_force("a"), in_force("b")) == ("4096", "7")
    limit_enforcer.confine("a", Confinement(pids_max=9))
    assert await told.get() == {} and in_force("a") == "9"
    limit_enforcer.confine("a", Confinement())
    assert await told.get() == {} and in_force("a") == "4096"
    most = 0
    await limit_enforcer.create("c", Confinement())
    assert not [path for path, _ in fake.writes if path.endswith("c/pids.max")]


async def test_what_follows_the_rank_of_a_job_is_in_force_at_once(make: Make) -> None:
    fake, tree = make()
    told: list[dict[str, str]] = []
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.append(why))
    await limit_enforcer.create("a", Confinement(cpu_weight=100, pids_max=7))
    limit_enforcer.confine("a", Confinement(cpu_weight=6, disk_weight=62, rank=1, pids_max=7))
    written = {path.rpartition("/")[2]: text for path, text in fake.writes if "/a/" in path}
    assert (written["cpu.weight"], written["io.weight"]) == ("6", "default 62")
    await asyncio.sleep(0)
    assert [[*each] for each in told] == [["disk_weight"]]
    limit_enforcer.confine("a", Confinement(cpu_weight=6, disk_weight=62, rank=1, pids_max=8))
    await limit_enforcer.settled("a")
    assert len(told) == 2, "a limit that somebody waits for is reported"


async def test_a_rank_that_the_kernel_refuses_is_reported_once(make: Make) -> None:
    _, tree = make(of=NoWeights)
    told: list[dict[str, str]] = []
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.append(why))
    await limit_enforcer.create("a", Confinement())
    for weight in (6, 7):
        limit_enforcer.confine("a", Confinement(cpu_weight=weight))
        await asyncio.sleep(0)
    assert [[*each] for each in told] == [["cpu_weight"]]
    limit_enforcer.report("a")
    assert [[*each] for each in told] == [["cpu_weight"]] * 2, "somebody may have asked for that weight now"
    limit_enforcer.confine("a", Confinement())
    await asyncio.sleep(0)
    assert told[-1] == {}


async def test_a_weight_refused_to_a_rank_is_refused_to_somebody_who_asks_for_one(make: Make, tmp_path: Path) -> None:
    """Nobody is told of the rank's, as nobody asked for it."""
    _, tree = make(of=NoWeights)
    executor = Enforcing()
    shell = make_shell(Journal(tmp_path), executor)
    enforcer = executor.enforcer = LimitEnforcer(tree, None, lambda name, why: shell.dispatch(e.Confined(name, why)))
    container = str(shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",))))))
    await enforcer.create(container, Confinement())
    shell.dispatch(e.ContainerStarted(container, 7, {}, 1e9))
    enforcer.confine(container, Confinement(cpu_weight=6))
    asked = Resize(container=container, limits={"cpu_weight": 50}, strict=True)
    with pytest.raises(RpcError, match=r"nothing was changed: cpu_weight is not enforced: .* Permission denied"):
        await shell.resize(e.Requested(m.RESIZE, 1, asked))
    assert shell.node.containers.live[container].not_enforced == {}


class Enforcing(Silent):
    """An executor that changes cgroups, and starts nothing."""

    enforcer: LimitEnforcer

    def confine(self, container: str, confinement: Confinement) -> None:
        """See Executor."""
        self.enforcer.confine(container, confinement)

    async def settled(self, container: str) -> None:
        """See Executor."""
        await self.enforcer.settled(container)
        self.enforcer.report(container)


class NoWeights(FakeCgroups):
    """Takes no other weight than the kernel's default."""

    def exchange(self, path: bytes, text: str) -> str:
        """See FakeCgroups."""
        if path.endswith(b"/cpu.weight") and text != "100":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
        return super().exchange(path, text)


async def test_without_cgroups_nothing_is_said_of_what_nobody_asked() -> None:
    limit_enforcer = LimitEnforcer(None, None, lambda container, why: None, pids_max=lambda: 4096)
    not_enforced, _ = await limit_enforcer.create("a", Confinement())
    assert not_enforced == {}


def test_a_default_that_is_not_enforced_is_not_worth_saying() -> None:
    missing, spec = {"pids_max": "no pids controller"}, ContainerSpec(argv=("x",))
    assert worth_saying(missing, spec, Limits(), opportunistic=False) == {}
    assert worth_saying(missing, spec, Limits(pids_max=5), opportunistic=False) == missing


def test_an_end_of_the_whole_container_that_was_asked_for_is_worth_saying() -> None:
    missing = {"oom_group": "no memory controller"}
    for asked in (True, False):
        spec = ContainerSpec(argv=("x",), oom_group=asked)
        assert worth_saying(missing, spec, Limits(), opportunistic=False) == (missing if asked else {})


# ---------------------------------------------------------------- what protects all containers together
# It grows with the first that needs it, and shrinks with the next sample.

MIB = 1 << 20
LOW = "/fake/cgroup/containers/memory.low"
SAMPLE = Snapshot(at=0.0, interval_s=1.0)


async def test_a_container_that_follows_another_changes_nothing_above_it(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    limit_enforcer.parent.cap(memory_bytes=1 << 30, cores=None, pids=None)
    protects = Confinement(memory_low_bytes=8 * MIB)
    await limit_enforcer.create("a", protects)
    assert fake.read(LOW.encode()).strip() == str(8 * MIB)
    fake.writes.clear()
    await limit_enforcer.remove("a")
    await limit_enforcer.create("b", protects)
    limit_enforcer.retry(SAMPLE)
    assert [path for path, _ in fake.writes if "/a/" not in path and "/b/" not in path] == []
    await limit_enforcer.create("c", protects)
    assert fake.read(LOW.encode()).strip() == str(16 * MIB)
    await limit_enforcer.remove("b")
    await limit_enforcer.remove("c")
    limit_enforcer.retry(SAMPLE)
    assert fake.read(LOW.encode()).strip() == "0"


# ---------------------------------------------------------------- the class of all containers together


async def test_containers_are_behind_the_host_while_all_of_them_are_opportunistic(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    slack, regular = Confinement(opportunistic=True), Confinement()

    def idle() -> list[str]:
        return [fake.read(f"/fake/cgroup{each}/cpu.idle".encode()).strip() for each in ("", "/containers")]

    await limit_enforcer.create("a", slack)
    assert idle() == ["1", "1"]
    await limit_enforcer.create("b", regular)
    assert idle() == ["0", "0"]
    await limit_enforcer.remove("b")
    assert idle() == ["1", "1"]
    limit_enforcer.confine("a", regular)  # a promotion
    assert idle() == ["0", "0"]
    limit_enforcer.confine("a", slack)
    assert idle() == ["1", "1"]
    await limit_enforcer.settled("a")
    await limit_enforcer.remove("a")
    assert idle() == ["0", "0"]


async def test_a_container_that_is_killed_is_behind_nobody_and_no_repair_changes_that(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    limit_enforcer.parent.cap(memory_bytes=1 << 30, cores=None, pids=None)
    for container in ("a", "b"):
        await limit_enforcer.create(container, Confinement(opportunistic=True))
    limit_enforcer.let_end("a")

    def idle() -> list[str]:
        return [fake.read(f"/fake/cgroup/{each}/cpu.idle".encode()).strip() for each in ("containers", "containers/a")]

    assert idle() == ["0", "0"]
    limit_enforcer.confine("a", Confinement(opportunistic=True, cpu_cores=0.5))
    assert await limit_enforcer.repair() == []
    assert idle() == ["0", "0"] and fake.read(b"/fake/cgroup/containers/a/cpu.max").startswith("max")
    await limit_enforcer.remove("a")
    assert fake.read(b"/fake/cgroup/containers/cpu.idle").strip() == "1"


# ---------------------------------------------------------------- groups of containers

JOB = "/fake/cgroup/containers/j-1.job"


async def test_a_group_follows_its_containers_and_is_written_once_for_all_of_them(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)

    def written() -> list[str]:
        return [text for path, text in fake.writes if path == f"{JOB}/cpu.weight"]

    for container in ("a", "b"):
        await limit_enforcer.create(container, Confinement(cpu_weight=88), ["j-1.job"])
    assert written() == ["88", "176"]
    for container in ("a", "b"):
        limit_enforcer.confine(container, Confinement(cpu_weight=6))
    await limit_enforcer.settled("a")
    await limit_enforcer.settled("b")
    assert written() == ["88", "176", "12"]
    assert tree.get("a").remove()
    await limit_enforcer.remove("a")
    assert written()[-1] == "12", "until the next sample the rest of the job has it"
    limit_enforcer.retry(SAMPLE)
    assert written()[-1] == "6"


async def test_a_container_that_is_killed_does_not_wait_for_the_rank_of_its_group(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    await limit_enforcer.create("a", Confinement(cpu_weight=1), ["j-1.job"])
    limit_enforcer.let_end("a")
    assert [fake.read(f"{each}/cpu.weight".encode()).strip() for each in (JOB, f"{JOB}/a")] == ["10000", "10000"]


def weights(fake: FakeCgroups, *paths: str) -> list[str]:
    return [fake.read(f"{JOB}{each}/cpu.weight".encode()).strip() for each in paths]


async def test_a_killed_container_leaves_its_group_with_the_weight_of_the_others_at_once(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    for container in ("a", "b"):
        await limit_enforcer.create(container, Confinement(cpu_weight=6), ["j-1.job"])
    limit_enforcer.let_end("a")
    assert weights(fake, "") == ["10000"]
    assert tree.get("a").remove()
    await limit_enforcer.remove("a")
    assert weights(fake, "") == ["6"]


async def test_a_killed_process_that_hangs_gives_its_group_the_most_weight_for_10_s(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    for container in ("a", "b"):
        await limit_enforcer.create(container, Confinement(cpu_weight=6), ["j-1.job"])
    limit_enforcer.let_end("a")
    limit_enforcer.retry(Snapshot(at=9.0, interval_s=9.0))
    assert weights(fake, "", "/a") == ["10000", "10000"]
    limit_enforcer.retry(Snapshot(at=10.0, interval_s=1.0))
    assert weights(fake, "", "/a", "/b") == ["7", "10000", "6"], "it still precedes its siblings"


async def test_a_missing_controller_is_no_failure_of_a_group(make: Make) -> None:
    fake, tree = make(controllers=("cpu", "cpuset", "io", "pids"))
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    with capture_logs() as logs:
        for container in ("a", "b"):
            await limit_enforcer.create(container, Confinement(cpu_weight=6, memory_low_bytes=MIB), ["j-1.job"])
            fake.write(f"{JOB}/pids.max".encode(), "7")
    assert logs == []
    assert weights(fake, "") == ["12"]
    assert fake.read(f"{JOB}/pids.max".encode()).strip() == "7", "only what changes is compared"


async def test_a_weight_that_is_raised_while_the_last_change_goes_on_reaches_the_group_with_it(make: Make) -> None:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    await limit_enforcer.create("a", Confinement(cpu_weight=6), ["j-1.job"])
    limit_enforcer.confine("a", Confinement(cpu_weight=6, memory_max_bytes=64 * MIB))
    await asyncio.sleep(0)  # it is being changed in a thread
    limit_enforcer.confine("a", Confinement(cpu_weight=60, memory_max_bytes=64 * MIB))
    await limit_enforcer.settled("a")
    assert weights(fake, "", "/a") == ["60", "60"]


async def test_the_next_agent_goes_on_with_the_groups_that_it_finds(make: Make) -> None:
    fake, tree = make()
    before = LimitEnforcer(tree, None, lambda container, why: None)
    await before.create("a", Confinement(cpu_weight=88), ["j-1.job"])
    assert tree.prepare() == {}
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    await limit_enforcer.take_back({"a": Confinement(cpu_weight=5)})
    limit_enforcer.confine("a", Confinement(cpu_weight=5))
    await limit_enforcer.settled("a")
    assert [fake.read(f"{each}/cpu.weight".encode()).strip() for each in (JOB, f"{JOB}/a")] == ["5", "5"]


class NoGroups(FakeCgroups):
    """A kernel that refuses one more level."""

    def mkdir(self, path: bytes) -> None:
        """See FakeCgroups."""
        if path.endswith(b".job"):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), os.fsdecode(path))
        super().mkdir(path)


async def test_where_no_group_can_be_made_a_container_is_in_none(make: Make) -> None:
    fake, tree = make(of=NoGroups)
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    await limit_enforcer.create("a", Confinement(cpu_weight=88), ["j-1.job"])
    assert fake.read(b"/fake/cgroup/containers/a/cpu.weight").strip() == "88"
    assert tree.get("a").remove()


async def test_a_group_that_cannot_be_changed_is_reported_and_tried_again(make: Make) -> None:
    fake, tree = make(of=Stubborn)
    told: dict[str, dict[str, str]] = {}
    limit_enforcer = LimitEnforcer(tree, None, told.__setitem__)
    with capture_logs() as logs:
        not_enforced, _ = await limit_enforcer.create("a", Confinement(cpu_weight=88), ["j-1.job"])
    assert [each["what"] for each in logs] == ["cpu_weight of j-1.job"] == [*not_enforced]
    assert "Permission denied" in not_enforced["cpu_weight of j-1.job"]
    limit_enforcer.confine("a", Confinement(cpu_weight=88, cpu_cores=0.5))
    await limit_enforcer.settled("a")
    assert told == {"a": not_enforced}
    fake.refuses = False
    assert "cpu.weight of j-1.job" in await limit_enforcer.repair()
    assert fake.read(f"{JOB}/cpu.weight".encode()).strip() == "88"
    assert told == {"a": {}}


class Stubborn(FakeCgroups):
    """Refuses to change a group's weight."""

    refuses = True

    def write(self, path: bytes, text: str) -> None:
        """See FakeCgroups."""
        if self.refuses and path.endswith(b".job/cpu.weight"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
        super().write(path, text)
