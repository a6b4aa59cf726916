"""Tasks that wait for slack are examined only where one may find it, and none that fits is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.core.snapshot import RoundSnapshot
from penstock.model import TaskRequest
from penstock.model.work import Opportunistic
from tests.unit.master.cluster_bed import MB, Bed, bed, command, task


@pytest.mark.parametrize("allows", ["only", True])
def test_a_round_without_slack_examines_no_waiting_task(allows: Opportunistic, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[str] = []
    slack_demand = RoundSnapshot.slack_demand

    def counted(snapshot: RoundSnapshot, waits: object) -> object:
        examined.append("")
        return slack_demand(snapshot, waits)  # type: ignore[arg-type]

    monkeypatch.setattr(RoundSnapshot, "slack_demand", counted)
    b = bed("a", "b")
    b.job("a")
    full = {"used_cores": 4.0, "promised_cores": 4.0, "promised_memory_bytes": 1000 * MB}
    for name in ("a", "b"):
        b.heartbeat(name, **full)
    b.ready("a", *[command(f"c{i}", 100 + i % 7, cores=1.0) for i in range(500)], opportunistic=allows)
    b.round()
    for used_cores, most in ((4.0, 2), (2.0, 20), (4.0, 2)):
        examined.clear()
        b.heartbeat("b", **{**full, "used_cores": used_cores})
        placed = b.round()
        assert len(placed) == (used_cores < 3)
        assert len(examined) <= most


_TASKS = st.lists(
    st.tuples(
        st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.booleans(), st.sampled_from([(), ("a",), ("c",)])
    ),
    max_size=12,
)


def requests(number: int, some: list[tuple[int, float, bool, tuple[str, ...]]]) -> list[TaskRequest]:
    made = []
    for index, (memory, cores, is_command, nodes) in enumerate(some):
        name, size = f"t{number}-{index}", 100 * memory
        made.append(command(name, size, cores, nodes=nodes) if is_command else task(name, size, nodes=nodes))
    return made


def could_be_placed(b: Bed) -> list[str]:
    """The waiting tasks for which there is slack after a round."""
    snapshot = b.cluster.snapshots.take()
    waiting = [each for job in b.cluster.jobs.values() for tasks in job.ready.values() for each in tasks.values()]
    return [each.name for each in waiting if snapshot.slack().give(snapshot.slack_demand(each)) is not None]


@given(
    st.lists(
        st.tuples(
            _TASKS,
            st.sampled_from(["j", "k"]),
            st.sampled_from(["a", "b"]),
            st.sampled_from([0.0, 2.0, 4.0]),
            st.integers(0, 9),
        ),
        max_size=6,
    )
)
@settings(max_examples=50)
def test_no_task_waits_for_which_there_is_slack(
    rounds: list[tuple[list[tuple[int, float, bool, tuple[str, ...]]], str, str, float, int]],
) -> None:
    b = bed("a", "b", "c")
    for job in ("j", "k"):
        b.job("a", job=job)
    for number, (some, job, node, used_cores, used) in enumerate(rounds):
        b.ready("a", *requests(number, some), job=job, opportunistic="only")
        b.heartbeat(node, used_cores=used_cores, used_memory_bytes=100 * MB * used)
        b.round()
        assert could_be_placed(b) == []
