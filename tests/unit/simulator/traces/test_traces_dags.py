"""TPC-H DAGs and scientific workflows: read, and refused with the key that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.traces import TpchDag, TpchStage, TraceError, WorkflowTask, tpch_dags, workflows


def _query(edges: list[list[int]], stages: int = 2) -> str:
    stage = {"num_tasks": 12, "mean_task_ms": 1935.9}
    return json.dumps({"2g/q1": {"edges": edges, "stages": [stage] * stages}})


def _task(name: str, *parents: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "parents": list(parents), "in_bytes": 10, "out_bytes": 20, "runtime_s": 1.5, "avg_cpu_pct": 50.0,
    } | more  # fmt: skip


def _run(*tasks: dict[str, Any]) -> str:
    return json.dumps([{"instance": "blast", "makespan_s": 4, "machines": 1, "tasks": list(tasks)}])


def test_a_query_has_stages_in_seconds_and_edges() -> None:
    stage = TpchStage(tasks=12, mean_task_s=1.9359)
    (dag,) = tpch_dags(_query([[0, 1]])).values()
    assert (dag.name, dag.edges) == ("2g/q1", ((0, 1),))
    assert [(s.tasks, s.mean_task_s) for s in dag.stages] == [(12, pytest.approx(stage.mean_task_s))] * 2
    assert isinstance(dag, TpchDag)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (_query([[0, 2]]), "dags.json: 2g/q1: edges: [0, 2] names a stage that is not there"),
        (_query([[-1, 1]]), "dags.json: 2g/q1: edges: [-1, 1] names a stage that is not there"),
        (_query([[0, 1], [1, 0]]), "dags.json: 2g/q1: edges: stage 0 awaits itself"),
        ('{\n"2g/q1": }', "dags.json:2: Expecting value"),
        ('{"2g/q1": {"edges": []}}', "dags.json: 2g/q1: the key 'stages' is missing"),
        (
            '{"ok": {"edges": [], "stages": []}, "q": {"edges": [], "stages": [{"num_tasks": 0, "mean_task_ms": 1}]}}',
            "dags.json: q.stages[0].num_tasks: a whole number of at least 1 expected",
        ),
    ],
)
def test_a_bad_query_is_named_by_its_key(text: str, complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        tpch_dags(text, where="dags.json")
    assert str(caught.value) == complaint or str(caught.value).startswith(complaint + ":")


def test_a_workflow_has_tasks_with_cores_and_unknown_values_are_none() -> None:
    (run,) = workflows(_run(_task("a"), _task("b", "a", mem_bytes=7, cores=None)))
    assert (run.name, run.makespan_s, run.machines) == ("blast", 4.0, 1)
    assert run.tasks[1] == WorkflowTask(
        name="b", parents=("a",), input_bytes=10, output_bytes=20, runtime_s=1.5, cpu_cores=0.5, memory_bytes=7,
        read_bytes=None, written_bytes=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (_run(_task("a", "z")), "w.json: blast: a: parents: 'z' is no task of this run"),
        (_run(_task("a", "b"), _task("b", "a")), "w.json: blast: a: parents: the task awaits itself"),
        (_run(_task("a"), _task("a")), "w.json: blast: tasks: two tasks of the same id"),
        (_run(_task("a", runtime_s=-1)), "w.json: [0].tasks[0].runtime_s: a number of at least 0 expected"),
    ],
)
def test_a_bad_workflow_is_named_by_its_task(text: str, complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        workflows(text, where="w.json")
    assert str(caught.value) == complaint
