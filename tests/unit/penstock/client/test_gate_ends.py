"""The end of a gate, of its process, and of a process that was forked."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.gate import Gate
from tests.fakes.agent_thread import AgentThread
from tests.unit.penstock.client.conftest import LONG_S, TIMEOUT_S, in_thread


def test_closing_wakes_waiting_threads_and_gives_all_back(agent: AgentThread, gate: Gate) -> None:
    held = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    gate.close()
    with pytest.raises(RuntimeError, match="closed"):
        waiting()
    with pytest.raises(RuntimeError, match="closed"):
        gate.acquire("cpu", 1)
    held.release()
    gate.close()
    agent.until(lambda fake: not fake.running and not fake.queued)
    assert gate.counts()["held"] == 0


def test_an_unreferenced_gate_ends_with_its_last_slot(agent: AgentThread, tmp_path: Path) -> None:
    before = threading.active_count()
    slot = Gate("test", socket=tmp_path / "agent.sock", patience_s=LONG_S).acquire("cpu", 1)
    agent.do(lambda fake: None)
    assert slot.gated
    assert agent.agent.running
    slot.release()
    agent.until(lambda fake: bool(fake.called("complete")))
    del slot
    agent.until(lambda fake: not fake._peers)
    for thread in threading.enumerate():
        if thread.name == "penstock-gate":
            thread.join(TIMEOUT_S)
    assert threading.active_count() == before


def run_python(code: str, socket: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(socket), *more],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("there", [True, False])
def test_an_interpreter_ends_without_a_word(tmp_path: Path, there: bool) -> None:
    code = """
import sys, threading
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=0.1)
if sys.argv[2] == "True": gate.wait_connected(60)
held = gate.acquire("cpu", 1)
queued = gate.submit("cpu", 1, lambda slot: None)
threading.Thread(target=lambda: [gate.acquire("disk", 1).release() for _ in range(50)]).start()
threading.Thread(target=lambda: gate.acquire("cpu", 1), daemon=True).start()
def hammer():
    while True:
        gate.acquire("network", 1).release()
threading.Thread(target=hammer, daemon=True).start()
print(held.gated)
"""
    with AgentThread(tmp_path) as agent:
        ended = run_python(code, agent.socket if there else tmp_path / "none", str(there))
        assert (ended.stdout, ended.stderr, ended.returncode) == (f"{there}\n", "", 0)
        agent.until(lambda fake: not fake._peers)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python raises no KeyboardInterrupt where its parent ignores SIGINT, as a shell does for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_gives_the_monotask_back(agent: AgentThread, gate: Gate) -> None:
    held = gate.acquire("cpu", 1)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        agent.until(lambda fake: len(fake.queued) == 1)
        signal.pthread_kill(main, signal.SIGINT)

    interrupted = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        gate.acquire("cpu", 1)
    interrupted()
    agent.until(lambda fake: not fake.queued)
    held.release()


def test_a_forked_child_has_a_connection_of_its_own(agent: AgentThread, tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=600.0)
held = gate.acquire("cpu", 1)
job = gate.job
child = os.fork()
if child == 0:
    held.release()  # the parent's, and not ours to give back
    with gate.acquire("disk", 1) as slot:
        ok = slot.gated and gate.job != job and gate.counts()["granted"] == 1
    sys.exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), gate.counts()["held"], gate.acquire("disk", 1).gated)
"""
    ended = run_python(code, agent.socket)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 1 True\n", "", 0)


def test_a_child_does_not_keep_its_dead_parents_slots(agent: AgentThread) -> None:
    code = """
import os, sys
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=600.0)
held = gate.acquire("cpu", 1)
if os.fork() == 0:
    sys.stdin.read()  # outlives the parent
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(agent.socket)], stdin=subprocess.PIPE) as process:
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        agent.until(lambda fake: bool(fake.called("submit")) and not fake.running)
