"""The tasks that a client has requested from its agent."""

from __future__ import annotations

import pytest

from penstock.client.placements import PlacementLedger
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest

OK = Ended(by=EndedBy.EXIT, exit_status=0)


def framework_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0))


def command_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("true",)))


def test_names_are_unique_within_a_job() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [framework_task("a")], opportunistic=False)
    with pytest.raises(ValueError, match="'a'"):
        ledger.ask("s", [framework_task("b"), framework_task("a")], opportunistic=False)
    with pytest.raises(ValueError, match="'b'"):
        ledger.ask("s", [framework_task("b"), framework_task("b")], opportunistic=False)
    ledger.ask("s", [framework_task("b")], opportunistic=False)


def test_a_task_is_placed_once_and_ends_once() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [command_task("a")], opportunistic=False)
    assert [ledger.place("a", "n1"), ledger.place("a", "n2"), ledger.node_of("a")] == [True, False, "n1"]
    assert [ledger.end("a", OK), ledger.end("a", Ended(by=EndedBy.LOST)), ledger.end_of("a")] == [True, False, OK]
    assert ledger.place("unknown", "n1") is False
    assert ledger.end("unknown", OK) is False


def test_after_a_reconnection_what_is_owed_is_asked_for_by_stage() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [command_task("waits"), command_task("runs"), command_task("over")], opportunistic=False)
    ledger.ask("s", [framework_task("ours"), framework_task("waits-too")], opportunistic=True)
    ledger.confirm(["waits", "runs", "over", "ours", "waits-too"])
    ledger.ask("s", [command_task("being asked")], opportunistic=False)
    for name in ("runs", "over", "ours"):
        ledger.place(name, "n1")
    ledger.end("over", OK)
    again = [(stage, slack, [r.task for r in requests]) for stage, slack, requests in ledger.to_ask_again()]
    assert again == [("s", False, ["waits", "runs"]), ("s", True, ["waits-too"])]


def test_cancelling_ends_all_but_running_commands() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [command_task("runs"), command_task("waits"), framework_task("ours")], opportunistic=False)
    ledger.place("runs", "n1")
    ledger.place("ours", "n1")
    assert ledger.cancel(["runs", "waits", "ours", "unknown"]) == ["waits", "ours"]
    assert ledger.clear(Ended(by=EndedBy.LOST)) == ["runs"]
