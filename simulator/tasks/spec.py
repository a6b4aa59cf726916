"""The tables of a scenario with ``model = "tasks"``. Bytes, bytes/s, seconds and cores are plain numbers."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec

from agent.core.settings import NodeSettings
from master.config import MasterConfig
from master.core import MasterSettings
from master.reservations.reservation_manager import ManagerSettings
from penstock.model import Capacity, Sizing
from penstock.model.decode_errors import told
from penstock.model.work import Opportunistic
from simulator.tasks.cluster import Surroundings
from simulator.tasks.executors import ExecutorSettings
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.reservations import ReservationSettings

_T = TypeVar("_T")
Count = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, lt=1)]
#: Shorter steps of simulated time (seconds) would take hours to simulate.
_SHORTEST_S = 1e-3
Step = Annotated[float, msgspec.Meta(ge=_SHORTEST_S)]
KindName = Literal["cpu", "disk", "network"]


def _check_step(key: str, step_s: float) -> None:
    if 0 < step_s < _SHORTEST_S:
        raise ValueError(f"{key}: 0, or at least {_SHORTEST_S} expected")


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the scenario. Unknown keys are errors."""


class NodeTable(Table, frozen=True, kw_only=True):
    """``count`` equal nodes. The rates are for one core, one disk slot and the whole link."""

    count: Count = 1
    cores: Positive
    memory_bytes: Positive
    disk_slots: Count = 1
    network_slots: Count = 2
    cpu_bytes_per_s: Positive = 50e6
    disk_bytes_per_s: Positive = 100e6
    link_bytes_per_s: Positive = 1.25e9
    isolated_disk: bool = True

    def rates_bytes_per_s(self) -> dict[str, float]:
        """Return the rate of one slot of each kind."""
        return {"cpu": self.cpu_bytes_per_s, "disk": self.disk_bytes_per_s, "network": self.link_bytes_per_s}

    def spec(self) -> NodeSpec:
        """Return the cluster's form of one node."""
        capacity = Capacity(
            cores=self.cores,
            memory_bytes=int(self.memory_bytes),
            disk_slots=self.disk_slots,
            network_slots=self.network_slots,
        )
        return NodeSpec(
            capacity, self.cpu_bytes_per_s, self.disk_bytes_per_s, self.link_bytes_per_s, self.isolated_disk
        )


class ClusterTable(Table, frozen=True, kw_only=True):
    """The nodes, and the keys of :class:`simulator.tasks.cluster.Surroundings`."""

    nodes: Annotated[list[NodeTable], msgspec.Meta(min_length=1)]
    latency_s: Amount = 0.001
    start_s: Amount = 0.0
    sample_s: Step = 1.0
    look_s: Amount = 0.05
    progress_s: Amount = 1.0
    fifo_queues: bool = False
    limit_s: Positive = 1e6

    def __post_init__(self) -> None:
        _check_step("look_s", self.look_s)
        _check_step("progress_s", self.progress_s)


class MonotaskTable(Table, frozen=True, kw_only=True):
    """A monotask of ``bytes``, or of ``seconds`` on an idle slot (network: an idle link) of the first node."""

    kind: KindName
    bytes: Amount = 0.0
    seconds: Amount = 0.0


class PhaseTable(Table, frozen=True, kw_only=True):
    """The keys of a :class:`simulator.tasks.workload.Phase`."""

    seconds: Positive
    cpu_cores: Amount = 0.0
    memory_bytes: Amount = 0.0
    disk_bytes_per_s: Amount = 0.0


class ApplicationTable(Table, frozen=True, kw_only=True):
    """The keys of :class:`penstock.model.Executor` that matter here; ``input_bytes`` is that of all of the stage."""

    application: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    input_bytes: Amount = 0.0
    sizing: Sizing = Sizing.HARD


class CommandTable(Table, frozen=True, kw_only=True):
    """A container: its promise, and the phases of its use. ``kind`` is the kind of slot that it waits for.

    With ``executor`` it is an executor of that application: earlier runs predict its use (Elasecutor §III). Executors
    of one job are one run.
    """

    cpu_cores: Amount = 1.0
    memory_bytes: Amount = 0.0
    kind: KindName = "cpu"
    executor: ApplicationTable | None = None
    phases: Annotated[list[PhaseTable], msgspec.Meta(min_length=1)]


class StageTable(Table, frozen=True, kw_only=True):
    """``tasks`` equal tasks of either monotasks or a command; ``spread`` varies their sizes uniformly by ± its value.

    Without ``after`` a stage waits for the stage before it. ``repeat`` makes that many stages, one after the other.
    """

    name: str = ""
    after: list[str] | None = None
    repeat: Count = 1
    tasks: Count = 1
    memory_bytes: Amount = 0.0
    spread: Fraction = 0.0
    monotasks: list[MonotaskTable] = []
    command: CommandTable | None = None
    opportunistic: Opportunistic = False
    nodes: list[str] = []


class JobTable(Table, frozen=True, kw_only=True):
    """``count`` jobs (0: none), one every ``every_s`` from ``submitted_at_s`` on. ``memory_bytes`` is M(j).

    With ``rdl`` each is a production job that reserves this at submission; ``deadline_s`` counts from submission.
    ``user`` submits them; ``tenants`` and ``weights`` of ``policy`` refer to it.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    user: Annotated[str, msgspec.Meta(min_length=1)] = "user"
    count: Annotated[int, msgspec.Meta(ge=0)] = 1
    submitted_at_s: Amount = 0.0
    every_s: Amount = 0.0
    memory_bytes: Amount = 0.0
    rdl: str = ""
    deadline_s: Positive = math.inf
    stages: Annotated[list[StageTable], msgspec.Meta(min_length=1)]


class TpchTable(Table, frozen=True, kw_only=True):
    """``count`` jobs drawn from a file of TPC-H DAGs (``penstock`` comes with none), one every ``every_s``.

    ``scales`` are the data sizes to draw from and their weights (``{ "100g" = 1 }``). Queries with fewer than
    ``least_stages`` stages are left out. The file has milliseconds per task and no bytes, so bytes are assumed: a task
    of t s, times ``time_scale``, ± ``spread``, is one core's work on an input of t × ``cpu_bytes_per_s`` of the first
    node. A stage without parents reads input ÷ ``disk_compression`` from disk, another stage reads ``shuffle`` × input
    from the network. A task's memory is ``memory_to_input`` × input (Ursa's m2i); M(j) is that of the largest stage.
    """

    file: str
    count: Count = 25
    every_s: Amount = 5.0
    scales: Annotated[dict[str, Positive], msgspec.Meta(min_length=1)]
    least_stages: Count = 1
    time_scale: Positive = 1.0
    spread: Fraction = 0.0
    shuffle: Amount = 1.0
    disk_compression: Positive = 4.0
    memory_to_input: Amount = 2.0


class WorkflowTable(Table, frozen=True, kw_only=True):
    """Runs of scientific workflows from a file, one every ``every_s``; ``names`` are their instances (empty: all).

    A task reads its input from the network, computes on one core for ``time_scale`` × its runtime, and writes its
    output to disk. Its memory is the file's value, or 0 without one. Tasks with the same parents and the same children
    form a stage.
    """

    file: str
    names: list[str] = []
    every_s: Amount = 0.0
    time_scale: Positive = 1.0


class MixedTable(Table, frozen=True, kw_only=True):
    """``count`` jobs of commands, one every ``every_s``; a fraction ``production`` of them has a deadline and reserves.

    A job's number of parallel containers is log-normal about ``containers`` with ``spread`` (σ), up to
    ``most_containers``. Each container runs one to three tasks in sequence, of ``cpu_cores`` and ``memory_bytes``. Task
    times are log-normal with half that σ, scaled so that the total demand is ``load`` × the cluster's capacity over the
    submission period. A production job reserves a lease for each container: the container's time × (1 +
    ``over_reservation``) (Rayon §6.1.2: 10 %), within a deadline of ``slack`` (least, most) × the lease.
    """

    count: Count
    every_s: Positive
    production: Fraction = 0.05
    over_reservation: Amount = 0.1
    load: Positive = 1.0
    containers: Positive = 20.0
    most_containers: Count = 2000
    spread: Amount = 1.2
    least_task_s: Positive = 2.0
    slack: tuple[Positive, Positive] = (1.5, 6.0)
    cpu_cores: Positive = 1.0
    memory_bytes: Positive = 2e9


class ReservationTable(Table, frozen=True, kw_only=True):
    """The reservations of production jobs. A job whose reservation is declined does not run.

    The keys are the master's keys that begin with ``reservation_``; ``share`` is the reservable fraction of the
    cluster. Without this table, or with ``taken = false``, no job reserves.
    """

    taken: bool = True
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    lead_s: Amount = 0.5
    planner: Literal["gree", "gree_early", "gree_l", "gree_l_strict"] = "gree"
    step_s: Step = 1.0
    horizon_s: Positive = 86_400.0

    def settings(self) -> ReservationSettings | None:
        """Return the cluster's form of the settings; None if no job reserves."""
        if not self.taken:
            return None
        manager = ManagerSettings(step_s=self.step_s, horizon_s=self.horizon_s, planner=self.planner)
        return ReservationSettings(manager, self.share, self.lead_s)


class ExecutorTable(Table, frozen=True, kw_only=True):
    """The keys of :class:`simulator.tasks.executors.ExecutorSettings`; they make ``policy`` and ``agent`` void."""

    cores: Count = 4
    memory_bytes: Amount = 8e9
    idle_timeout_s: Positive = 2.0
    heartbeat_s: Step = 1.0
    start_s: Amount = 0.0
    oversubscription: Positive = 1.0

    def settings(self) -> ExecutorSettings:
        """Return the cluster's form of the settings."""
        return ExecutorSettings(**{key: getattr(self, key) for key in self.__struct_fields__})


class MeasureTable(Table, frozen=True, kw_only=True):
    """The optional measures. ``timeline_s``: the step of utilization over time (0: none).

    ``alone``: run each kind of job alone, too.
    """

    timeline_s: Amount = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        _check_step("timeline_s", self.timeline_s)


class Spec(Table, frozen=True, kw_only=True):
    """A scenario's tables. ``policy`` are the master's settings by name, ``agent`` the agents' (docs/configuration.md).

    With ``opportunistic = false`` no task runs on slack, even if its stage allows it. With ``elastic = false``
    executors are commands like others, which hold what they ask for. With ``known_lengths`` commands announce their
    lengths, so that an ordering by remaining work knows the jobs' sizes.
    """

    cluster: ClusterTable
    policy: dict[str, Any] = {}
    agent: dict[str, Any] = {}
    opportunistic: bool = True
    elastic: bool = True
    known_lengths: bool = False
    jobs: list[JobTable] = []
    tpch: TpchTable | None = None
    workflows: WorkflowTable | None = None
    mixed: MixedTable | None = None
    reservations: ReservationTable | None = None
    executors: ExecutorTable | None = None
    measure: MeasureTable = MeasureTable()

    def nodes(self) -> list[NodeSpec]:
        """Return every node."""
        return [table.spec() for table in self.cluster.nodes for _ in range(table.count)]

    def master(self) -> MasterSettings:
        """Return the master's settings. Default rates are the first node's, unless ``policy`` sets them.

        Raises:
            ValueError: an unknown setting, or an impossible value.
        """
        first = self.cluster.nodes[0]
        known = {
            "default_cpu_bytes_per_s": first.cpu_bytes_per_s,
            "default_disk_bytes_per_s": first.disk_bytes_per_s,
            "default_network_bytes_per_s": first.link_bytes_per_s,
        }
        settings = _settings("policy", known | self.policy, MasterSettings, {})
        _check_bounds(self.policy)
        return settings

    def surroundings(self) -> Surroundings:
        """Return the daemons' environment. Raises ValueError for an unknown or impossible setting of the agent."""
        cluster = self.cluster
        fixed = {"node": "", "instance": "", "capacity": {"cores": 1.0, "memory_bytes": 0}, "has_master": True}
        return Surroundings(
            cluster.latency_s,
            cluster.start_s,
            cluster.sample_s,
            cluster.look_s,
            cluster.progress_s,
            self.measure.timeline_s,
            cluster.fifo_queues,
            _settings("agent", {"ranked": True} | self.agent, NodeSettings, fixed),
        )


def _settings(table: str, given: dict[str, Any], kind: type[_T], fixed: dict[str, Any]) -> _T:
    _check_names(table, given, kind, fixed)
    document = given | fixed
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"[{table}]: {told(error, kind, document=document)}") from None


def _check_bounds(policy: dict[str, Any]) -> None:
    """Raise ValueError for values that the master's configuration would refuse."""
    hints = get_type_hints(MasterConfig, include_extras=True)
    given = {name: value for name, value in policy.items() if name in hints}
    kind = msgspec.defstruct("Policy", [(name, hints[name]) for name in given])
    try:
        msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"[policy]: {told(error, kind, document=given)}") from None


def _check_names(table: str, given: dict[str, Any], kind: type[Any], fixed: dict[str, Any]) -> None:
    """Raise ValueError for unknown keys, because msgspec ignores unknown keys of dataclasses."""
    known = {field.name: field for field in fields(kind) if field.name not in fixed}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise ValueError(f"unknown key {table}.{name}" + (f"; did you mean {near[0]!r}?" if near else ""))
        inner: Any = known[name].default_factory
        if isinstance(value, dict) and isinstance(inner, type) and is_dataclass(inner):
            _check_names(f"{table}.{name}", value, inner, {})
