"""The three flows of docs/architecture.md do not grow unnoticed; the tracer sees each of them from end to end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from penstock.cli.session import failures_told
from tests.walk.__main__ import main
from tests.walk.flows import FLOWS, Walk
from tests.walk.report import Figures, figures, summary, tree
from tests.walk.sharing import Sharing, Uses, sharing
from tests.walk.tracer import Tracer

#: Functions of each flow, in the order in which they are called.
WAYPOINTS = {
    "acquire": [
        "Gate.acquire", "Engine.ask", "MonotaskSession.submit", "RpcPeer.notify", "SharedPeer.data_received",
        "Node.handle", "MonotaskQueues.submit", "SlotGrants.granted", "Job.grant", "MonotaskSession.grant",
        "Slot.decided",
    ],
    "run": [
        "main", "Session.connect", "Node._session_opened", "pass_stdio", "Session._send", "Shell.launch",
        "ClientContainers.launch", "Journal.flush", "Executor.start", "LimitEnforcer.create", "Cgroup.confine",
        "CpuMax.sanitize_set", "FakeCgroups.exchange",
    ],
    "heartbeat": [
        "AgentConnection.notification", "Cluster._heartbeat", "MasterService._run_round", "AlgorithmOne.place",
        "AgentConnection.send", "MasterLink.request", "Node._decided", "PlacedWork.assign", "Executor.start",
        "Launcher.start", "Launcher._ask",
    ],
}  # fmt: skip
#: A little above the figures in docs/architecture.md; to be lowered with them.
CEILINGS = {
    "acquire": Figures(calls=69, functions=59, files=22),
    "run": Figures(calls=209, functions=163, files=54),
    "heartbeat": Figures(calls=411, functions=296, files=89),
}
MOST_HOPS = 4


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_is_seen_from_end_to_end_and_has_not_grown(flow: str, tmp_path: Path) -> None:
    walk = FLOWS[flow](tmp_path)
    assert _missed(walk, WAYPOINTS[flow]) == [], tree(walk)
    found, most = figures(walk.calls), CEILINGS[flow]
    assert found.calls <= most.calls and found.functions <= most.functions and found.files <= most.files, (
        f"{summary(flow, walk)}; at most {most}"
    )
    assert found.calls > most.calls // 2, f"{summary(flow, walk)}: lower the ceilings, or look what the tracer misses"
    if flow == "run":
        assert walk.hops is not None and 0 < walk.hops <= MOST_HOPS


def test_the_command_prints_a_tree_and_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acquire"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  penstock/client/gate.py:Gate.acquire" in lines
    assert "    penstock/client/gate.py:Slot.wait" in lines
    assert lines.index("  penstock/client/gate.py:Gate.acquire") < next(
        number for number, line in enumerate(lines) if line.startswith("agent: ")
    )
    assert lines[-1].startswith("acquire: ")
    assert "files (client: " in lines[-1]


def test_the_command_prints_which_functions_are_used_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acquire", "--summary", "--shared"]) == 0
    counted, shared = capsys.readouterr().out.splitlines()
    found = re.search(r" (\d+) functions", counted)
    assert found is not None
    *kinds, lines = (int(part.split()[0]) for part in shared.split("; "))
    assert sum(kinds) == int(found[1])
    assert kinds[0] > kinds[1] > 0 and lines > int(found[1]), shared


SOURCE = """
class Queue:
    def __len__(self):
        return 0

    def take(self):
        'Text is no line of the body.'
        first = [
            self.waiting,
        ]

        return first

    async def long(self):
        def inner():
            pass

        inner()
        self.take()
        return self.take

    @property
    def waiting(self):
        return 0

    def by_nobody(self):
        return Queue().long()
"""


def test_functions_are_sorted_by_the_uses_of_their_names() -> None:
    uses = Uses()
    uses.add("queue.py", SOURCE)
    assert uses.lines == {
        "queue.py:Queue.__len__": 1, "queue.py:Queue.take": 4, "queue.py:Queue.long": 5, "queue.py:Queue.long.inner": 1,
        "queue.py:Queue.waiting": 1, "queue.py:Queue.by_nobody": 1,
    }  # fmt: skip
    assert sharing(uses.lines, uses) == Sharing(shared=1, long=1, short=2, unnamed=2, lines=13)
    assert sharing(["queue.py:Queue.take.<lambda>", "tests/fakes/files.py:Files.take"], uses).unnamed == 2
    uses.add("other.py", "take, Queue.long")
    assert sharing(["queue.py:Queue.take", "queue.py:Queue.long"], uses).shared == 2, "another file uses it, too"


def test_the_next_step_of_a_coroutine_is_not_another_call() -> None:
    tracer, before = Tracer(), sys.getprofile()
    with tracer.installed():
        tracer.start()
        with failures_told():
            pass
        calls = tracer.stop()
    assert [(call.function, call.resumed) for call in calls] == [("failures_told", False), ("failures_told", True)]
    assert figures(calls) == Figures(calls=1, functions=1, files=1)
    assert sys.getprofile() is before


def _missed(walk: Walk, waypoints: list[str]) -> list[str]:
    """Return the waypoints that are not called, or not in this order."""
    called = iter(call.function for call in walk.calls)
    return [each for each in waypoints if each not in called]
