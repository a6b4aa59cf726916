"""The gate against the real agent, which is killed and started again; and docs/client.md, which is true."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.client.gate import Gate, Slot
from tests.integration.conftest import until

Start = Callable[..., Any]
TIMEOUT_S = 60.0
CORES = 2
DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "client.md").read_text(encoding="utf-8"), re.DOTALL)


class Inside:
    """How many gated ones are at work now, and were at most since :meth:`begin`."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1

    def begin(self) -> None:
        with self._lock:
            self.most = self.now


def test_the_agent_is_killed_under_holders_and_waiters(start_agent: Start) -> None:
    daemon = start_agent(cores=CORES)
    warned: list[str] = []
    inside = Inside()
    with Gate("test", socket=daemon.socket, patience_s=0.3, warn=warned.append) as gate, ThreadPoolExecutor(8) as pool:
        assert gate.wait_connected(TIMEOUT_S)
        held = [gate.acquire("cpu", 1) for _ in range(CORES)]
        waiting = [pool.submit(gate.acquire, "cpu", 1) for _ in range(3)]
        daemon.kill()
        ungated = [each.result(TIMEOUT_S) for each in waiting]
        assert [slot.gated for slot in (*held, *ungated)] == [True] * CORES + [False] * 3
        assert not gate.acquire("cpu", 1).gated
        assert len(warned) == 1
        assert "penstock up" in warned[0]

        daemon = start_agent(cores=CORES)
        assert gate.wait_connected(TIMEOUT_S)
        granted: list[Slot] = []
        asked = [gate.submit("cpu", 1, granted.append) for _ in range(4)]
        until(lambda: [(job["running"], job["queued"]) for job in daemon.status()["jobs"]] == [(CORES, 4)])
        assert granted == []
        for slot in (*held, *ungated):
            slot.release()
        for slot in asked:
            slot.cancel()

        def work() -> None:
            for _ in range(20):
                with gate.acquire("cpu", 1) as slot, inside:
                    assert slot.gated

        for done in [pool.submit(work) for _ in range(8)]:
            done.result(TIMEOUT_S)
        assert 1 <= inside.most <= CORES
        assert len(warned) == 1


def test_under_load_grants_never_exceed_the_slots_through_restarts(start_agent: Start) -> None:
    daemon = start_agent(cores=CORES)
    inside, over = Inside(), threading.Event()
    with (
        Gate("test", socket=daemon.socket, patience_s=0.2, warn=lambda _: None) as gate,
        ThreadPoolExecutor(16) as pool,
    ):

        def work() -> int:
            """How often it went on ungated."""
            ungated = 0
            while not over.is_set():
                with gate.acquire("cpu", 1) as slot:
                    if slot.gated:
                        with inside:
                            over.wait(0.001)
                    else:
                        ungated += 1
                        over.wait(0.001)
            return ungated

        workers = [pool.submit(work) for _ in range(16)]
        try:
            for _ in range(3):
                enough = gate.counts()["granted"] + 200
                until(lambda enough=enough: gate.counts()["granted"] >= enough)
                daemon.kill()
                before = gate.counts()["ungated"]
                until(lambda before=before: gate.counts()["ungated"] > before)
                daemon = start_agent(cores=CORES)
                assert gate.wait_connected(TIMEOUT_S)
        finally:
            over.set()
        assert sum(worker.result(TIMEOUT_S) for worker in workers) == gate.counts()["ungated"]
        assert 1 <= inside.most <= CORES
        counts = gate.counts()
        assert (counts["held"], counts["waiting"]) == (0, 0)


def test_a_stopped_agent_delays_no_work(start_agent: Start) -> None:
    daemon = start_agent(cores=CORES)
    warned: list[str] = []
    with Gate("test", socket=daemon.socket, patience_s=0.2, warn=warned.append) as gate:
        assert gate.wait_connected(TIMEOUT_S)
        held = gate.acquire("cpu", 1)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            assert not gate.acquire("cpu", 1).gated
            assert "does not answer" in warned[0]
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert gate.wait_connected(TIMEOUT_S)
        rest = [gate.acquire("cpu", 1) for _ in range(CORES - 1)]  # an unanswered request is withdrawn
        assert all(slot.gated for slot in rest)
        held.release()
        assert gate.acquire("cpu", 1).gated
        assert len(warned) == 1


def test_a_killed_process_gives_its_slots_back_at_once(start_agent: Start, tmp_path: Path) -> None:
    daemon = start_agent(cores=CORES)
    code = """
import sys
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("victim", socket=Path(sys.argv[1]), patience_s=600.0)
slots = [gate.acquire("cpu", 1) for _ in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(daemon.socket), str(CORES)]
    with Gate("heir", socket=daemon.socket, patience_s=TIMEOUT_S) as gate:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"held\n"
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(gate.acquire, "cpu", 1)
                victim.send_signal(signal.SIGKILL)
                slot = waiting.result(TIMEOUT_S)
        assert slot.gated
        slot.release()


@pytest.fixture(scope="module")
def of_the_page(start_shared_agent: Start) -> Path:
    """The socket of the agent of all examples."""
    return Path(start_shared_agent(cores=CORES).socket)


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_the_page_is_true(of_the_page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, example: str) -> None:
    forget = pytest.importorskip("penstock.engines.joblib").register if "joblib" in example else lambda: None
    monkeypatch.setenv("PENSTOCK_SOCKET", str(of_the_page))
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "client.md", "exec"), names)
    if "count" in names:
        page = tmp_path / "page.txt"
        page.write_text("so much depends")
        assert names["count"](page) == 3
    for each in names.values():
        if isinstance(each, Gate):
            each.close()
    forget()


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 5
