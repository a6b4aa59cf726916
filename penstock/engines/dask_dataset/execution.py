"""The execution of datasets, in two ways.

With :func:`run`, the job manager (:class:`penstock.opgraph.dataflow.DataflowManager`) advances the
dataflow on a cluster: each Dask task is submitted when its monotask is ready, so that its input size is known, and
pinned to the worker that the master chose. :func:`compile_graph` makes one Dask graph of the whole dataflow in advance,
for any scheduler of Dask; sizes and places are not known then.

Tasks are annotated (``penstock``: kind, stage, input_bytes, task, job); gated workers know nothing else about datasets.
If the master has admitted and placed the job, a worker requests the grants in that job's name.
"""

from __future__ import annotations

import contextlib
import os
import queue
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import dask.base
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed import Client, Future, LocalCluster

from penstock.dataset import Dataset, Result
from penstock.engines.dask.progress import PLACED
from penstock.engines.dask_dataset.placement import MasterPlacement, Workers, node_here
from penstock.engines.dask_dataset.work import Key, Keys, OpaqueValue, note, pick, results, work_of
from penstock.opgraph.dataflow import (
    Abandon,
    DataflowManager,
    Drop,
    FlowCancelled,
    FlowEvent,
    FlowInstruction,
    FlowOver,
    FlowStarted,
    FlowTaskPlaced,
    Made,
    MonotaskCompleted,
    MonotaskFailed,
    PlaceTasks,
    Plan,
    PlannedMonotask,
    RunMonotask,
    TaskComplete,
)

T = TypeVar("T")
#: A task's place, or a monotask with one of its finished futures.
_News: TypeAlias = "FlowTaskPlaced | tuple[int, Future[Any]]"

# Much of Dask is untyped: its callables are Any here.
_BASE: Any = dask.base
_CLIENT: Any = Client
_CLUSTER: Any = LocalCluster

#: The interval of checks that the workers with pinned tasks still exist (seconds).
_LOOK_S = 1.0


class WorkerGoneError(RuntimeError):
    """A worker chosen by the master left the cluster; tasks pinned to it would wait for ever."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for the execution of a dataset.

    ``memory_bytes`` is M(j), 0 if unknown. ``socket`` is the agent's, None for this host's. With ``placed`` false, no
    master is asked. ``nodes`` maps the names of nodes to the addresses of their Dask workers; None asks each worker's
    agent. If a worker chosen by the master leaves, the whole run restarts, up to ``attempts`` attempts in all. After
    ``patience_s`` seconds without the agent, Dask places tasks. ``learned_memory_to_input`` is m2i by the name of the
    stage, from earlier runs (§4.2.1).
    """

    name: str = "dataset"
    memory_bytes: int = 0
    priority: float = 0.0
    socket: Path | None = None
    placed: bool = True
    nodes: Mapping[str, Sequence[str]] | None = None
    attempts: int = 3
    patience_s: float = 10.0
    learned_memory_to_input: Mapping[str, float] = field(default_factory=dict)


@overload
def run(wanted: Result[T], client: Client | None = None, options: Options | None = None) -> T: ...
@overload
def run(wanted: Dataset[T], client: Client | None = None, options: Options | None = None) -> list[list[T]]: ...
def run(wanted: Dataset[T] | Result[T], client: Client | None = None, options: Options | None = None) -> Any:
    """Execute a dataset and wait: return the value of a :class:`Result`, the list of partitions of a :class:`Dataset`.

    The default ``client`` is this process's current one, or else a local cluster of threads for this call.

    Raises:
        OpGraphError: the dataset cannot be executed.
        TypeError: the client is asynchronous.
        RuntimeError: the job can never be admitted.
        WorkerGoneError: workers left in every attempt.
        Exception: raised by a function of the dataset, with a note that names the operation.
    """
    result: Result[Any] = wanted if isinstance(wanted, Result) else Result(wanted, list)
    plan = result.dataset.plan()
    with _client_or_local(client) as connected:
        partitions = run_plan(plan, connected, options or Options())
    return result.finish(partitions[0])


def run_plan(plan: Plan, client: Client, options: Options) -> list[list[Any]]:
    """Execute a plan and wait: return the partitions of each result.

    Raises:
        WorkerGoneError: workers left in every attempt.
        Exception: raised by a function, with a note that names the operation.
    """
    for attempt in range(options.attempts):
        try:
            return _Run(plan, client, options).result()
        except WorkerGoneError:
            if attempt + 1 == options.attempts:
                raise
    raise ValueError(f"attempts must be at least 1, not {options.attempts}")


@overload
def compute(wanted: Result[T], scheduler: str = "synchronous") -> T: ...
@overload
def compute(wanted: Dataset[T], scheduler: str = "synchronous") -> list[list[T]]: ...
def compute(wanted: Dataset[T] | Result[T], scheduler: str = "synchronous") -> Any:
    """As :func:`run`, but as one graph on a scheduler of Dask without a cluster: ``synchronous`` or ``threads``.

    Raises:
        OpGraphError: the dataset cannot be executed.
        Exception: raised by a function of the dataset, with a note that names the operation.
    """
    result: Result[Any] = wanted if isinstance(wanted, Result) else Result(wanted, list)
    graph, keys = compile_graph(result.dataset.plan())
    get = _BASE.get_scheduler(scheduler=scheduler)
    return result.finish(list(get(graph, keys[0])))


def compile_graph(plan: Plan) -> tuple[HighLevelGraph, list[list[Key]]]:
    """Return one Dask graph of a plan, with a layer per operation, and the keys of each result's partitions."""
    keys = Keys(plan, uuid.uuid4().hex)
    layers: dict[str, MaterializedLayer] = {}
    dependencies: dict[str, set[str]] = {}
    for op in plan.ops:
        work = work_of(plan, op)
        stage = plan.stages[plan.tasks[plan.monotask(op.index, 0).task].stage].name
        tasks: dict[Key, tuple[Any, ...]] = {}
        picks: dict[Key, tuple[Any, ...]] = {}
        for partition in range(op.partitions):
            made = keys.monotask(op, partition)
            tasks[made] = (work, partition, *keys.arguments(op, partition))
            picks.update({key: (pick, made, path) for key, path in keys.picks(op, partition).items()})
        layers[f"{op.index}"] = MaterializedLayer(tasks, annotations={"penstock": note(op.kind, stage)})
        layers[f"{op.index}.picks"] = MaterializedLayer(picks, annotations={"penstock": note(None, stage)})
        before = {name for edge in op.after for name in (f"{edge.before}", f"{edge.before}.picks")}
        dependencies |= {f"{op.index}": before, f"{op.index}.picks": {f"{op.index}"}}
    return HighLevelGraph(layers, dependencies), results(plan, keys)


@contextlib.contextmanager
def _client_or_local(client: Client | None) -> Iterator[Client]:
    if client is None:
        with contextlib.suppress(ValueError):  # this process has no current client
            client = _CLIENT.current()
    if client is not None:
        if client.asynchronous:
            raise TypeError("a dataset blocks until its result is there: give a client that is not asynchronous")
        yield client
        return
    threads = os.cpu_count() or 1
    with (
        _CLUSTER(n_workers=1, threads_per_worker=threads, processes=False, dashboard_address=":0") as cluster,
        _CLIENT(cluster, set_as_default=False) as local,
    ):
        yield local


@dataclass(slots=True)
class _Running:
    """A submitted monotask: the number of unfinished futures, and the futures to be kept."""

    left: int
    futures: dict[Key, Future[Any]]


class _Run:
    """One attempt at a plan: executes the job manager's instructions and reports events. For one use by one thread."""

    def __init__(self, plan: Plan, client: Client, options: Options) -> None:
        self._plan = plan
        self._client: Any = client
        self._options = options
        self._token = uuid.uuid4().hex
        self._keys = Keys(plan, self._token)
        self._manager = DataflowManager(
            plan, job_memory_bytes=options.memory_bytes, learned_memory_to_input=options.learned_memory_to_input
        )
        self._work = [work_of(plan, op) for op in plan.ops]
        self._kept: dict[Key, Future[Any]] = {}
        self._running: dict[int, _Running] = {}
        self._failed: Future[Any] | None = None
        self._lost: list[_News] = []  # of futures whose value was lost since it was made: Dask computes it again
        self._over: FlowOver | None = None
        self._happened: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._placement: MasterPlacement | None = None
        self._workers = Workers({})

    def result(self) -> list[list[Any]]:
        """Execute the plan and return the partitions of each result."""
        try:
            self._find_master()
            self._tell(FlowStarted())
            while self._over is None:
                self._wait()
            if self._failed is not None:
                self._failed.result()  # raises the function's exception, with its own traceback
            if not self._over.succeeded:
                raise RuntimeError(self._over.reason)
            return [
                list(self._client.gather([self._kept[key] for key in keys])) for keys in results(self._plan, self._keys)
            ]
        finally:
            if self._over is None:
                self._tell(FlowCancelled())
            self._kept.clear()
            if self._placement is not None:
                self._placement.progress(self._manager.progress, last=True)
                self._placement.close()

    # ------------------------------------------------------------ instructions

    def _tell(self, *events: FlowEvent) -> None:
        """Report events and execute the resulting instructions; without a master, placement is immediate."""
        pending: deque[FlowEvent] = deque(events)
        while pending:
            for instruction in self._manager.handle(pending.popleft()):
                pending += self._carry_out(instruction)

    def _carry_out(self, instruction: FlowInstruction) -> list[FlowEvent]:
        match instruction:
            case PlaceTasks(_, demands) if self._placement is None:
                return [FlowTaskPlaced(demand.task, "") for demand in demands]
            case PlaceTasks():
                assert self._placement is not None, "handled above"
                self._placement.ask(instruction, tuple(self._workers.nodes), self._placed)
            case RunMonotask():
                self._submit(instruction)
            case TaskComplete(task):
                self._workers.complete(task)
                if self._placement is not None:
                    self._placement.complete(self._plan.tasks[task].name)
            case Drop(version, partition):
                for key in self._keys.kept(version, partition):
                    del self._kept[key]
            case Abandon(monotasks, _):
                # The end of the job, which follows, gives up the tasks.
                running = [self._running[one] for one in monotasks if one in self._running]
                futures = [future for one in running for future in one.futures.values()]
                self._client.cancel([future for future in futures if future is not self._failed])
                self._running.clear()
            case FlowOver():
                self._over = instruction
        return []

    def _submit(self, asked: RunMonotask) -> None:
        """Submit the Dask tasks of a ready monotask: the task itself, and the picks of its value."""
        monotask = self._plan.monotasks[asked.monotask]
        op = self._plan.ops[monotask.op]
        address = self._workers.address(monotask.task) or self._workers.assign(monotask.task, asked.node)
        pinned: dict[str, Any] = {"workers": [address]} if address else {}
        arguments = [self._argument(one) for one in self._keys.arguments(op, monotask.partition)]
        key = self._keys.monotask(op, monotask.partition)
        more = {"task": asked.task, **({"job": self._placement.job} if self._placement is not None else {})}
        with dask.base.annotate(penstock=note(asked.kind, asked.stage, asked.input_bytes, **more)):
            made = self._client.submit(
                self._work[op.index], monotask.partition, *arguments, key=key, pure=False, **pinned
            )
        futures: dict[Key, Any] = {key: made}
        picks = self._keys.picks(op, monotask.partition)
        if picks:
            names, paths = list(picks), list(picks.values())
            with dask.base.annotate(penstock=note(None, asked.stage, 0, **more)):
                picked = self._client.map(pick, [made] * len(picks), paths, key=names, pure=False, **pinned)
            futures |= dict(zip(names, picked, strict=True))
        self._running[asked.monotask] = _Running(len(futures), futures)
        for each in futures.values():
            each.add_done_callback(self._done(asked.monotask))

    def _argument(self, one: OpaqueValue | Key | list[OpaqueValue | Key]) -> Any:
        if isinstance(one, OpaqueValue):
            return one
        if isinstance(one, list):
            return [self._argument(each) for each in one]
        return self._kept[one]

    # ------------------------------------------------------------ events

    def _placed(self, task: int, node: str) -> None:
        """Handle a placement, in the placement's thread."""
        self._happened.put(FlowTaskPlaced(task, node))

    def _done(self, monotask: int) -> Callable[[Future[Any]], None]:
        """Return the callback of a monotask's futures, for a thread of the client."""
        return lambda future: self._happened.put((monotask, future))

    def _wait(self) -> None:
        """Wait for events and report them to the manager. Raises: as :meth:`MasterPlacement.check`."""
        if self._placement is not None:
            self._placement.check()
            self._placement.progress(self._manager.progress)
        news, self._lost = self._lost, []
        try:
            news.append(self._happened.get(timeout=_LOOK_S))
        except queue.Empty:
            if self._workers.used and (gone := self._workers.used - set(self._client.nthreads())):
                raise WorkerGoneError(f"the worker {min(gone)}, chosen by the master, left the cluster") from None
        while not self._happened.empty():
            news.append(self._happened.get())
        events: list[FlowEvent] = []
        completed: list[PlannedMonotask] = []
        for one in news:
            if isinstance(one, FlowTaskPlaced):
                events.append(one)
            elif one[0] in self._running and not self._failed:
                monotask, future = one
                if future.status in {"lost", "pending"}:
                    self._lost.append(one)
                elif future.status != "finished":
                    self._failed = future
                    events.append(MonotaskFailed(monotask, f"a Dask task ended as {future.status}"))
                else:
                    self._running[monotask].left -= 1
                    if not self._running[monotask].left:
                        completed.append(self._plan.monotasks[monotask])
        self._tell(*events, *self._made(completed))

    def _made(self, completed: list[PlannedMonotask]) -> list[FlowEvent]:
        """Return the events of finished monotasks with their outputs' sizes, by one request to Dask's scheduler."""
        wanted: dict[int, list[list[Key]]] = {}
        for monotask in completed:
            op = self._plan.ops[monotask.op]
            wanted[monotask.index] = [self._keys.kept(version, monotask.partition) for version in op.outputs]
        asked = [key for outputs in wanted.values() for keys in outputs for key in keys]
        sizes = self._client.nbytes(asked, summary=False) if asked else {}
        events: list[FlowEvent] = []
        for monotask in completed:
            op = self._plan.ops[monotask.op]
            futures = self._running.pop(monotask.index).futures
            made = []
            for version, keys in zip(op.outputs, wanted[monotask.index], strict=True):
                self._kept.update((key, futures[key]) for key in keys)
                parts = self._plan.parts.get(version, 0)
                each = [max(0, sizes[key]) for key in keys]  # -1: lost, and being recomputed
                made.append(Made(each[0] if len(keys) > parts else sum(each), tuple(each[len(keys) - parts :])))
            events.append(MonotaskCompleted(monotask.index, tuple(made)))
        return events

    # ------------------------------------------------------------ the master and its nodes

    def _find_master(self) -> None:
        options = self._options
        if not options.placed:
            return
        memory = self._manager.estimated_memory_bytes()
        self._placement = MasterPlacement.open(
            options.name, memory, priority=options.priority, socket=options.socket, patience_s=options.patience_s
        )
        if self._placement is None:
            return
        alive = set(self._client.nthreads())
        nodes = self._ask_workers() if options.nodes is None else options.nodes
        self._workers = Workers({node: [each for each in workers if each in alive] for node, workers in nodes.items()})
        if not self._workers.nodes:  # the master knows none of our workers
            self._placement.close()
            self._placement = None
            return
        self._keys = Keys(self._plan, self._token + PLACED)

    def _ask_workers(self) -> dict[str, list[str]]:
        """Return the workers of each node; each worker asks its host's agent for the node."""
        where = str(self._options.socket) if self._options.socket else None
        nodes: dict[str, list[str]] = {}
        for address, node in self._client.run(node_here, where).items():
            nodes.setdefault(node, []).append(address)
        return nodes
