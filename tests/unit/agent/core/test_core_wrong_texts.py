"""Arguments, variables and directories that no process can have are refused at once, not at the start of a command."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core.instructions import Notify
from penstock.model import ContainerSpec, EndedBy, KindAmounts, Limits, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Place, TaskEnded, TaskPlaced
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.master_api import ReadyTasks, TasksCancelled, TellPlaced
from tests.fakes.node_bed import NodeBed


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"argv": ("sh", "-c", "a\0b")}, "argv[2]"),
        ({"env": {"A": "x", "B": "\0"}}, "env['B']"),
        ({"env": {"A\0": "x"}}, r"env['A\x00']"),
        ({"env": {"A=B": "x"}}, "env['A=B']"),
        ({"env": {"": "x"}}, "env['']"),
        ({"env": {"=" * 1000: "x"}}, f"env['{'=' * 40}']"),
        ({"cwd": "/tmp\0"}, "cwd"),
    ],
)
def test_the_error_names_the_field_and_nothing_begins(wrong: dict[str, Any], field: str) -> None:
    bed = NodeBed()
    bed.open()
    job = bed.register()
    spec = ContainerSpec(**{"argv": ("x",), **wrong})
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=spec)
    placed = Place(job=job, stage="s", tasks=[TaskRequest(task="a", usage=KindAmounts(cpu=1.0)), request])
    bed.done.clear()
    for event, where in (
        (e.Requested(m.LAUNCH, 1, Launch(container=spec)), "container."),
        (e.Requested(m.PLACE, 1, placed), "tasks[1].command."),
    ):
        with pytest.raises(RpcError) as caught:
            bed.handle(event)
        assert (caught.value.code, caught.value.body.field) == (ErrorCode.BAD_REQUEST, where + field)
        assert caught.value.body.remedy
    assert not bed.done and not bed.node.containers.live


def test_a_command_that_an_earlier_version_accepted_does_not_end_its_neighbours() -> None:
    bed = NodeBed()
    bed.open()
    job = bed.register()
    usage, null = KindAmounts(cpu=1.0), ContainerSpec(argv=("a\0b",))
    requests = [TaskRequest(task="null", usage=usage), TaskRequest(task="t", usage=usage)]
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=requests)))
    bed.decide(*(TellPlaced(job=job, task=each.task, node="b") for each in requests))
    bed.restart()
    bed.open()
    bed.register(job=job)
    again = [TaskRequest(task="null", usage=usage, command=null), requests[1]]
    bed.done.clear()
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=again)))
    told = [one.params for one in bed.given(Notify)]
    assert [one.task for one in told if isinstance(one, TaskPlaced)] == ["null", "t"]


def test_one_without_a_node_is_refused_alone_after_an_upgrade() -> None:
    """The master may know it from the earlier agent, so it is cancelled there."""
    bed = NodeBed()
    bed.open()
    job = bed.register()
    bed.restart()
    bed.open()
    bed.register(job=job)
    usage, null = KindAmounts(cpu=1.0), ContainerSpec(argv=("a\0b",))
    requests = [TaskRequest(task="null", usage=usage, command=null), TaskRequest(task="t", usage=usage)]
    bed.done.clear()
    for _ in range(2):  # it has ended, also when it is asked for again
        bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=requests)))
    ends = [one.params for one in bed.given(Notify) if isinstance(one.params, TaskEnded)]
    assert [(end.task, end.ended.by) for end in ends] == 2 * [("null", EndedBy.REFUSED)]
    assert ends[0].ended.reason.startswith("tasks[0].command.argv[0]: has a null character")
    assert [[task.task for task in ready.tasks] for ready in bed.to_master(ReadyTasks)] == [["t"]]
    assert [cancelled.tasks for cancelled in bed.to_master(TasksCancelled)] == [["null"]]


def test_one_that_may_run_with_too_low_a_limit_is_not_cancelled_before_the_master_names_its_node() -> None:
    """Earlier versions accepted such a limit, and frameworks may return before the master."""
    bed = NodeBed()
    bed.open()
    job = bed.register()
    bed.restart()
    bed.open()
    bed.register(job=job)
    spec = ContainerSpec(argv=("x",), limits=Limits(disk_write_bytes_per_s=500))
    slow = TaskRequest(task="slow", usage=KindAmounts(cpu=1.0), command=spec)
    bed.done.clear()
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[slow])))
    bed.decide(TellPlaced(job=job, task="slow", node="b"))
    assert [ready.tasks for ready in bed.to_master(ReadyTasks)] == [[slow]], "a restarted master lacks its request"
    assert not bed.to_master(TasksCancelled)
    told = [one.params for one in bed.given(Notify)]
    assert [(one.task, one.node) for one in told if isinstance(one, TaskPlaced)] == [("slow", "b")]


@pytest.mark.parametrize("ignored", [{"argv": ("a\0b",)}, {"env": {"A=B": "\0"}}, {"cwd": "/tmp\0"}])
def test_an_adopted_process_may_have_any_text_as_none_is_used(ignored: dict[str, Any]) -> None:
    bed = NodeBed()
    bed.open()
    job = bed.register()
    spec = ContainerSpec(**{"argv": ("x",), **ignored})
    assert bed.send(e.AdoptRequested(1, spec, 77, tree=False)) in bed.node.containers.live
    assert bed.send(e.LendRequested(1, job, 78, spec.argv)) in bed.node.containers.live


def test_empty_arguments_and_values_are_taken() -> None:
    bed = NodeBed()
    bed.open()
    assert bed.launch(argv=("grep", ""), env={"A": "", "B": "x=y"})
