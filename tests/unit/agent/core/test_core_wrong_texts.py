"""Arguments, variables and directories that no process can have are refused at once, not at the start of a command."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Place
from penstock.wire.errors import ErrorCode, RpcError
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


def test_empty_arguments_and_values_are_taken() -> None:
    bed = NodeBed()
    bed.open()
    assert bed.launch(argv=("grep", ""), env={"A": "", "B": "x=y"})
