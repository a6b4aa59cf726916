"""The tasks that a client has requested from its agent."""

from __future__ import annotations

from penstock.client.job_session import PlacementLedger
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest
from penstock.wire.errors import refused

OK = Ended(by=EndedBy.EXIT, exit_status=0)


def framework_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0))


def command_task(name: str) -> TaskRequest:
    return TaskRequest(task=name, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("true",)))


def test_after_a_reconnection_what_is_owed_is_asked_for_by_stage() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [command_task("waits"), command_task("runs"), command_task("over")], opportunistic=False)
    ledger.ask("s", [framework_task("ours"), framework_task("waits-too")], opportunistic=True)
    ledger.confirm(["waits", "runs", "over", "ours", "waits-too"])
    ledger.ask("s", [command_task("being asked")], opportunistic=False)
    for name in ("runs", "over", "ours"):
        ledger.place(name, "n1")
    ledger.end("over", OK)
    again = ledger.to_ask_again("j")
    assert [
        (asked.job, asked.stage, asked.opportunistic, [request.task for request in asked.tasks]) for asked in again
    ] == [
        ("j", "s", False, ["waits", "runs"]),
        ("j", "s", True, ["waits-too"]),
    ]


def test_tasks_that_a_restarted_agent_refuses_end_once() -> None:
    ledger = PlacementLedger()
    ledger.ask("s", [command_task("a"), command_task("b")], opportunistic=False)
    ledger.confirm(["a", "b"])
    [asked] = ledger.to_ask_again("j")
    ledger.end("a", OK)
    [(name, ended)] = ledger.refused_again(asked, refused("no room"))
    assert (name, ended.by) == ("b", EndedBy.REFUSED)
    assert "the restarted agent refused it" in ended.reason and "no room" in ended.reason
