"""What the client keeps about monotasks and placements."""

from __future__ import annotations

import pytest

from penstock.client.ledger import MonotaskLedger
from penstock.client.placements import PlacementLedger
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import TaskRequest

OK = Ended(by=EndedBy.EXIT, exit_status=0)


def framework_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0))


def command_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("true",)))


def test_completing_before_the_grant_is_an_error() -> None:
    ledger = MonotaskLedger()
    ledger.link()
    one = ledger.submit(ResourceKind.CPU, 1)
    with pytest.raises(ValueError, match="waits for its grant"):
        ledger.complete(one)


def test_what_is_cancelled_before_it_was_sent_is_never_sent() -> None:
    ledger = MonotaskLedger()
    ledger.link()
    ledger.cancel(ledger.submit(ResourceKind.CPU, 1))
    out = ledger.take()
    assert (out.submit, out.complete, out.cancel) == ([], [], [])


def test_nothing_is_sent_twice() -> None:
    ledger = MonotaskLedger()
    ledger.link()
    one = ledger.submit(ResourceKind.CPU, 1)
    assert [spec.id for spec in ledger.take().submit] == [one]
    ledger.grant([one])
    ledger.complete(one)
    assert [completion.id for completion in ledger.take().complete] == [one]
    assert ledger.take().complete == []


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
