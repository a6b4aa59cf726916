"""The Java heaps that are set, their sizes, and the times; the JVMs are real only in
tests/integration/test_jvm_heaps.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent import jvm
from agent.core.plans import Plan
from agent.core.records import ContainerRecord, ContainerState
from agent.jvm import JvmHeaps, run_as
from agent.launcher.account import Account, look_up
from penstock.model import ContainerSpec, Executor, Limits
from penstock.model.resource_vector import ResourceVector

MIB = 1 << 20
ZGC = "-XX:MaxHeapSize=1073741824 -XX:+UseZGC -XX:ZUncommitDelay=5"
ME = pwd.getpwuid(os.geteuid()).pw_name


@dataclass
class Host:
    """Processes that look like JVMs, and the requests that jcmd got for them."""

    flags: str = ZGC
    answers: list[str | OSError] = field(default_factory=list)
    asked: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    def run(self, account: Account, argv: tuple[str, ...]) -> str:
        assert (account.name, argv[0]) == (ME, "/usr/bin/jcmd")
        pid = next(index for index, word in enumerate(argv) if word.isdigit())
        self.asked.append((int(argv[pid]), argv[pid + 1 :]))
        if argv[pid + 1] == "VM.flags":
            return self.flags
        answer = self.answers.pop(0) if self.answers else "Command executed successfully"
        if isinstance(answer, OSError):
            raise answer
        return answer

    def note(self, what: str, **facts: Any) -> None:
        self.notes.append((what, facts))

    def sets(self) -> list[tuple[int, int]]:
        """The soft maxima that were asked for, in MiB, by process."""
        found = [(pid, words) for pid, words in self.asked if words[0] == "VM.set_flag"]
        self.asked.clear()
        return [(pid, int(words[2]) // MIB) for pid, words in found]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """Return a host each of whose processes is this one, as it has to exist. Its signs of a JVM are made up."""
    made = Host(pids=[os.getpid()])
    monkeypatch.setattr(JvmHeaps, "_pids", lambda self, record: made.pids)
    monkeypatch.setattr(jvm, "_is_jvm", lambda pid, account: True)
    monkeypatch.setattr(jvm, "_jcmd", lambda program, account: "/usr/bin/jcmd")
    monkeypatch.setattr(jvm, "_program", lambda pid: (pid, "/opt/jdk/bin/java"))
    yield made


def executor(**fields: Any) -> ContainerRecord:
    return ContainerRecord(
        container="c", user=ME, spec=ContainerSpec(argv=("java",)), opportunistic=False, pid=os.getpid(),
        state=ContainerState.RUNNING, executor=Executor(application="sort", jvm=True), **fields,
    )  # fmt: skip


class _Heaps(JvmHeaps):
    """A minute passes before each look, so that a change is always left."""

    now = 0.0
    step_s = 60.0

    async def told(self, memory_mib: int, *, times: int = 1) -> None:
        for _ in range(times):
            self.now += self.step_s
            self.bring(executor(), memory_mib * MIB)
            await self.settled()


@pytest.fixture
async def heaps(host: Host) -> Any:
    made = _Heaps(None, host.note, 0.75, host.run, clock=lambda: made.now)
    yield made
    await made.close()


async def test_the_heap_gets_its_share_and_only_changes_that_are_worth_it(host: Host, heaps: _Heaps) -> None:
    me = os.getpid()
    await heaps.told(400)
    assert host.sets() == [(me, 300)]
    await heaps.told(410)  # 2.5 % more
    await heaps.told(390)
    assert host.asked == [], "and it is not looked at again"
    await heaps.told(200)
    await heaps.told(200, times=3)
    assert host.sets() == [(me, 150)]
    await heaps.told(4000)
    assert host.sets() == [(me, 1024)], "not more than its maximum"
    await heaps.told(1)
    assert host.sets() == [(me, 16)], "nor so little that it only collects"
    assert host.notes == []


async def test_a_fall_of_less_than_a_tenth_is_not_worth_a_command_and_a_rise_of_a_twentieth_is(
    host: Host, heaps: _Heaps
) -> None:
    for memory_mib in (400, 364, 420, 380, 370):
        await heaps.told(memory_mib)
    assert [mebibytes for _, mebibytes in host.sets()] == [300, 315, 277]


async def test_in_the_long_run_a_heap_is_changed_every_forty_seconds_and_a_rise_need_not_wait(
    host: Host, heaps: _Heaps
) -> None:
    heaps.step_s = 1.0
    waited: list[int] = []
    wanted = 0
    for second in range(600):  # up and down by a half, every 20 s
        before, wanted = wanted, 600 if second // 20 % 2 else 400
        await heaps.told(wanted)
        changed = host.sets()
        assert all(mebibytes == 0.75 * wanted for _, mebibytes in changed)
        waited += [second] * len(changed)
        if wanted > before and second < 90:
            assert changed, "there is one left for a rise"
    assert 12 <= len(waited) <= 4 + 600 / 40


async def test_while_one_change_is_under_way_only_the_latest_of_the_others_counts(host: Host, heaps: _Heaps) -> None:
    for memory_mib in (400, 800, 200):
        heaps.bring(executor(), memory_mib * MIB)
    await heaps.settled()
    assert host.sets() == [(os.getpid(), 150)]


async def test_jvms_of_one_executor_share_and_one_that_comes_later_gets_its_part(host: Host, heaps: _Heaps) -> None:
    await heaps.told(400)
    assert host.sets() == [(os.getpid(), 300)]
    host.pids.append(os.getppid())
    await heaps.told(400)
    assert sorted(host.sets()) == sorted([(os.getpid(), 150), (os.getppid(), 150)])
    host.pids.pop()
    await heaps.told(400)
    assert host.sets() == [(os.getpid(), 300)]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("-XX:MaxHeapSize=1073741824 -XX:+UseG1GC", "full collections only; start it with -XX:+UseZGC"),
        ("-XX:MaxHeapSize=1073741824 -XX:+UseZGC", "after 300 s; start it with -XX:+UseZGC -XX:ZUncommitDelay=5"),
        ("-XX:MaxHeapSize=1073741824 -XX:+UseShenandoahGC", None),
        (ZGC, None),
    ],
)
async def test_a_collector_that_keeps_memory_gets_it_all_the_same_and_is_reported_once(
    host: Host, heaps: _Heaps, flags: str, why: str | None
) -> None:
    host.flags = flags
    for memory_mib in (400, 200, 100):
        await heaps.told(memory_mib)
    assert [mebibytes for _, mebibytes in host.sets()] == [300, 150, 75]
    assert [what for what, _ in host.notes] == (["heap follows badly"] if why else [])
    if why:
        facts = host.notes[0][1]
        assert (facts["container"], facts["pid"]) == ("c", os.getpid())
        assert why in facts["why"]


async def test_one_that_does_not_answer_is_reported_and_left_alone_after_three_times(host: Host, heaps: _Heaps) -> None:
    host.answers = [TimeoutError("it does not answer within 5 s"), "java.io.IOException: no", "no"]
    for memory_mib in (400, 200, 100):
        await heaps.told(memory_mib, times=2)
    assert len(host.sets()) == 3, "once for each change"
    assert [(what, facts["times"], facts["why"]) for what, facts in host.notes] == [
        ("heap not set", 1, "it does not answer within 5 s"),
        ("heap not set", 3, "no"),
    ]
    await heaps.told(1000)
    assert host.asked == []


async def test_a_process_that_is_no_jvm_gets_no_request(
    host: Host, heaps: _Heaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_is_jvm", lambda pid, account: False)
    await heaps.told(400, times=2)
    assert (host.asked, host.notes) == ([], [])


async def test_one_that_is_still_starting_is_looked_at_again(
    host: Host, heaps: _Heaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_is_jvm", lambda pid, account: None)
    await heaps.told(400, times=2)
    assert host.asked == []
    monkeypatch.setattr(jvm, "_is_jvm", lambda pid, account: True)
    await heaps.told(400)
    assert host.sets() == [(os.getpid(), 300)]


async def test_without_a_jcmd_that_can_be_trusted_it_is_reported_once(
    host: Host, heaps: _Heaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_jcmd", lambda program, account: None)
    await heaps.told(400, times=3)
    assert host.asked == []
    ((what, facts),) = host.notes
    assert (what, facts["why"].startswith("no jcmd on this host that belongs to root")) == ("heap follows badly", True)


class _Node:
    """As much of one as is read here. ``planned``: MiB in each slot of 3 s, from the present one on."""

    def __init__(self, record: ContainerRecord, *planned: int) -> None:
        self.containers = type("Containers", (), {"live": {record.container: record}})
        plan = Plan(3.0, 0.0, tuple(ResourceVector(1.0, memory_bytes=float(mebibytes * MIB)) for mebibytes in planned))
        plans = {record.container: plan} if planned else {}
        self.elasticity = type("Elasticity", (), {"plans": staticmethod(lambda now: plans)})


async def _follow(heaps: _Heaps, record: ContainerRecord, *planned: int) -> None:
    heaps.now += heaps.step_s
    heaps.follow(_Node(record, *planned), 0.0)  # type: ignore[arg-type]
    await heaps.settled()


async def test_the_plan_decides_and_without_one_the_limit(host: Host, heaps: _Heaps) -> None:
    record = executor()
    record.resize(Limits(memory_high_bytes=200 * MIB, memory_max_bytes=400 * MIB))
    await _follow(heaps, record, 800)
    await _follow(heaps, record)
    assert [mebibytes for _, mebibytes in host.sets()] == [600, 150]


async def test_up_at_once_and_down_unless_it_is_only_a_dip(host: Host, heaps: _Heaps) -> None:
    record = executor()
    plan = (400, 100, 100, 400, 800, 200, 200, 200, 200, 100)
    told = []
    for slot in range(len(plan)):
        await _follow(heaps, record, *plan[slot:])
        told.append([mebibytes for _, mebibytes in host.sets()])
    # after 800 nothing but 200 follows for 12 s, and at its end the last value stays
    assert told == [[300], [], [], [], [600], [150], [], [], [], [75]]


@pytest.mark.parametrize(
    "fields",
    [{"executor": Executor(application="sort")}, {"executor": None}, {"state": ContainerState.PAUSED}],
    ids=["does not ask", "no executor", "frozen"],
)
async def test_a_heap_that_does_not_follow(host: Host, heaps: _Heaps, fields: dict[str, Any]) -> None:
    record = executor()
    record.resize(Limits(memory_max_bytes=400 * MIB))
    for name, value in fields.items():
        setattr(record, name, value)
    await _follow(heaps, record, 800)
    assert host.asked == []


# ---------------------------------------------------------------- requests to the host


def test_a_process_that_would_die_of_it_is_not_spoken_to() -> None:
    caught = b"Name:\tj\xffva\nSigIgn:\t0000000000000000\nSigCgt:\t2000000101005ccd\n"
    assert jvm._catches_quit(caught)
    assert not jvm._catches_quit(caught.replace(b"ccd", b"cc9"))
    assert not jvm._catches_quit(b"Name:\tjava\n")
    assert jvm._is_jvm(os.getpid(), look_up(ME)) is False, "Python is none"


def test_a_mapped_file_may_have_any_name(tmp_path: Path) -> None:
    code = (
        "import mmap, sys; kept = open(sys.argv[1].encode() + b'/\\xff', 'w+b'); kept.truncate(4096); "
        "mapped = mmap.mmap(kept.fileno(), 4096); print('mapped', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([*_python(code), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"mapped\n"
        assert jvm._is_jvm(child.pid, look_up(ME)) is False
        assert jvm._is_jvm(child.pid, Account("other", os.geteuid() + 1, 0, [], "/", "")) is False
        child.communicate(b"")


def test_a_jcmd_that_a_user_may_have_put_there_is_not_run_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "jcmd"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    own = Account(ME, os.geteuid(), os.getegid(), [], "/", "/bin/sh")
    other = Account("other", os.geteuid() + 1, os.getegid(), [], "/", "/bin/sh")
    monkeypatch.setattr(jvm, "_PATH", str(tmp_path / "nowhere"))
    assert jvm._jcmd(str(tmp_path / "java"), own) == str(planted.resolve())
    tmp_path.chmod(0o777)
    assert jvm._jcmd(str(tmp_path / "java"), other) is None


def _python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", code)


def test_a_child_process_inherits_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    said = run_as(
        look_up(ME), _python("import os; print(os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid())")
    )
    assert said.startswith("/ [")
    assert "SECRET" not in said
    assert said.endswith("True\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_program_run_for_a_user_runs_as_that_user() -> None:
    said = run_as(look_up("nobody"), ("/bin/sh", "-c", "id -u; id -G; grep NoNewPrivs /proc/self/status"))
    nobody = pwd.getpwnam("nobody")
    assert said.split() == [str(nobody.pw_uid), str(nobody.pw_gid), "NoNewPrivs:", "1"]


def test_one_that_hangs_is_killed_with_its_child_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jvm, "_TIMEOUT_S", 2.0)
    code = (
        f"import os, time; os.fork() or open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(999)"
    )
    with pytest.raises(TimeoutError, match="does not answer within"):
        run_as(look_up(ME), _python(code))
    with contextlib.suppress(ProcessLookupError):
        gone = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert select.select([gone], [], [], 30)[0], "its child process lives on"
        os.close(gone)


async def test_jvms_that_do_not_answer_delay_the_end_together_and_not_one_after_the_other(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, jcmd = tmp_path / "begun", tmp_path / "jcmd"
    os.mkfifo(begun)
    jcmd.write_text(f"#!/bin/sh\necho $$ >{begun}\nexec sleep 999\n")
    jcmd.chmod(0o755)
    monkeypatch.setattr(jvm, "_jcmd", lambda program, account: str(jcmd))
    monkeypatch.setattr(jvm, "_LAST_S", 0.0)
    host.pids.append(os.getppid())
    heaps = JvmHeaps(None, host.note, 0.75)
    heaps.bring(executor(), 400 * MIB)
    pid = int(await asyncio.to_thread(begun.read_text))
    async with asyncio.timeout(20):  # the first one alone is waited for for 30 s
        await heaps.close()
    assert not Path(f"/proc/{pid}").exists()
    assert [facts["why"] for _, facts in host.notes] == ["the agent ends, and it has not answered yet"], "one begun"


def test_an_answer_without_end_is_cut() -> None:
    assert len(run_as(look_up(ME), ("yes",))) < 2 * jvm._MOST_ANSWER_BYTES
