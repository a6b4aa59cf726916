"""Whatever the node instructs: when the shell acts, and when it returns, the kernel has all records of the instructions
before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import JobRecord
from agent.journal import Journal
from penstock.model import Ended, EndedBy
from penstock.wire.agent_api import JobAdmitted, TaskEnded
from tests.unit.agent.shell.shell_bed import Silent, make_shell

KEYS = st.sampled_from("abc")
RECORDS = st.builds(
    lambda key, name: i.Record("jobs", key, None if name is None else JobRecord(job=key, name=name, user="u")),
    KEYS, st.none() | st.sampled_from(["x", "y"]),
)  # fmt: skip
ACTIONS = st.sampled_from([
    i.KillContainer("c", "why"),
    i.Freeze("c", frozen=True),
    i.RemoveContainer("c"),
    i.Notify(1, TaskEnded(job="a", task="t", node="n", ended=Ended(by=EndedBy.LOST))),
])  # fmt: skip
QUIET = st.sampled_from([i.Notify(1, JobAdmitted(job="a")), i.Explain("x", {}), i.Reply(None)])


@given(instructions=st.lists(RECORDS | ACTIONS | QUIET, max_size=12))
def test_no_action_is_ahead_of_a_record(instructions: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _carry_out(instructions, Path(directory))


def _carry_out(instructions: list[Any], directory: Path) -> None:
    executor, framework, told = Silent(), Silent(), list[dict[str, str]]()
    for name in ("kill", "freeze", "remove"):
        setattr(executor, name, lambda *_, **__: told.append(_kernel(directory)))
    framework.push = lambda: told.append(_kernel(directory))  # type: ignore[attr-defined]
    shell = make_shell(Journal(directory), executor)
    shell.peers[1] = framework  # type: ignore[assignment]
    shell.node.handle = lambda event, now: instructions  # type: ignore[method-assign]
    shell.dispatch(e.LauncherLost())
    expected, known = [], dict[str, str]()
    for one in instructions:
        if isinstance(one, i.Record):
            known.pop(one.key, None)
            if isinstance(one.value, JobRecord):
                known[one.key] = one.value.name
        elif not isinstance(one, i.Explain | i.Reply) and not isinstance(getattr(one, "params", None), JobAdmitted):
            expected.append(dict(known))
    assert told == expected
    assert _kernel(directory) == known


def _kernel(directory: Path) -> dict[str, str]:
    """Return the records that the next agent would find."""
    return {record.job: record.name for record in Journal(directory).read("jobs", JobRecord)}
