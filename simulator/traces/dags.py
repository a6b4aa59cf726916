"""Parse graphs of jobs: TPC-H queries (stages, times, no bytes) and scientific workflows (tasks, bytes, times)."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

import msgspec

from penstock.model.decode_errors import explained
from simulator.traces.errors import TraceError

K = TypeVar("K")
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Amount = Annotated[int, msgspec.Meta(ge=0)]
_Time = Annotated[float, msgspec.Meta(ge=0)]


class TpchStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of ``tasks`` tasks that take ``mean_task_s`` seconds each on average."""

    tasks: int
    mean_task_s: float


class TpchDag(msgspec.Struct, frozen=True, kw_only=True):
    """A query: ``name`` is ``scale/query`` (``2g/q1``); an edge (a, b) means that stage b awaits stage a."""

    name: str
    stages: tuple[TpchStage, ...]
    edges: tuple[tuple[int, int], ...]


class WorkflowTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task. ``cpu_cores`` is the mean over its runtime; None: the trace lacks the value."""

    name: str
    parents: tuple[str, ...]
    input_bytes: int
    output_bytes: int
    runtime_s: float
    cpu_cores: float
    memory_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a scientific workflow on ``machines`` machines."""

    name: str
    makespan_s: float
    machines: int
    tasks: tuple[WorkflowTask, ...]


class _Stage(msgspec.Struct):
    num_tasks: _Count
    mean_task_ms: _Time


class _Dag(msgspec.Struct):
    edges: list[tuple[int, int]]
    stages: list[_Stage]


class _Task(msgspec.Struct):
    id: str
    parents: list[str]
    in_bytes: _Amount
    out_bytes: _Amount
    runtime_s: _Time
    avg_cpu_pct: _Time
    mem_bytes: _Amount | None = None
    read_bytes: _Amount | None = None
    written_bytes: _Amount | None = None


class _Workflow(msgspec.Struct):
    instance: str
    makespan_s: _Time
    machines: _Count
    tasks: list[_Task]


def tpch_dags(text: str, *, where: str = "tpch_dags") -> dict[str, TpchDag]:
    """Return name → query of the JSON object ``{name: {edges, stages}}``.

    Raises:
        TraceError: the text is no such object, an edge names a missing stage, or the stages form a cycle.
    """
    found = {}
    for name, dag in _decode(text, dict[str, _Dag], where).items():
        for before, after in dag.edges:
            if not (0 <= before < len(dag.stages) and 0 <= after < len(dag.stages)):
                raise TraceError(f"{where}: {name}: edges: [{before}, {after}] names a stage that is not there")
        stages = tuple(TpchStage(tasks=s.num_tasks, mean_task_s=s.mean_task_ms / 1000) for s in dag.stages)
        awaits: dict[int, list[int]] = {index: [] for index in range(len(stages))}
        for before, after in dag.edges:
            awaits[after].append(before)
        if (stuck := _in_cycle(awaits)) is not None:
            raise TraceError(f"{where}: {name}: edges: stage {stuck} awaits itself")
        found[name] = TpchDag(name=name, stages=stages, edges=tuple(dag.edges))
    return found


def workflows(text: str, *, where: str = "workflows") -> list[Workflow]:
    """Return the runs of the JSON list ``[{instance, makespan_s, machines, tasks}]``, in its order.

    Raises:
        TraceError: the text is no such list, a parent is no task of the run, a name occurs twice, or there is a cycle.
    """
    return [_workflow(raw, where) for raw in _decode(text, list[_Workflow], where)]


def _workflow(raw: _Workflow, where: str) -> Workflow:
    awaits = {task.id: task.parents for task in raw.tasks}
    if len(awaits) != len(raw.tasks):
        raise TraceError(f"{where}: {raw.instance}: tasks: two tasks of the same id")
    for task in raw.tasks:
        for parent in task.parents:
            if parent not in awaits:
                raise TraceError(f"{where}: {raw.instance}: {task.id}: parents: {parent!r} is no task of this run")
    if (stuck := _in_cycle(awaits)) is not None:
        raise TraceError(f"{where}: {raw.instance}: {stuck}: parents: the task awaits itself")
    tasks = tuple(
        WorkflowTask(
            name=task.id,
            parents=tuple(task.parents),
            input_bytes=task.in_bytes,
            output_bytes=task.out_bytes,
            runtime_s=task.runtime_s,
            cpu_cores=task.avg_cpu_pct / 100,
            memory_bytes=task.mem_bytes,
            read_bytes=task.read_bytes,
            written_bytes=task.written_bytes,
        )
        for task in raw.tasks
    )
    return Workflow(name=raw.instance, makespan_s=raw.makespan_s, machines=raw.machines, tasks=tasks)


def _in_cycle(awaits: dict[K, list[K]]) -> K | None:
    """Return a node that is on a cycle or awaits one, or None."""
    followers: dict[K, list[K]] = {node: [] for node in awaits}
    missing = {node: len(before) for node, before in awaits.items()}
    for node, before in awaits.items():
        for each in before:
            followers[each].append(node)
    ready = [node for node, count in missing.items() if count == 0]
    while ready:
        node = ready.pop()
        del missing[node]
        for follower in followers[node]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return next(iter(missing), None)


def _decode(text: str, of: Any, where: str) -> Any:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}:{error.lineno}: {error.msg}") from None
    try:
        return msgspec.convert(raw, of)
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: {_located(error, of, raw)}") from None


def _located(error: msgspec.ValidationError, of: Any, raw: Any) -> str:
    """Return the error's place and text, with the faulty entry's name for msgspec's ``$[...]``."""
    key, what = explained(error, of)
    if key.startswith("[...]") and isinstance(raw, dict):
        name = next((name for name, dag in raw.items() if not _converts(dag, _Dag)), "[...]")
        key = str(name) + key.removeprefix("[...]")
    return f"{key}: {what}" if key else what


def _converts(raw: Any, of: Any) -> bool:
    try:
        msgspec.convert(raw, of)
    except msgspec.ValidationError:
        return False
    return True
