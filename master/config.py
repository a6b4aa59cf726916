"""The master's configuration: a single declared table that documents every key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Literal

import msgspec

from master.core.settings import MasterSettings
from master.prediction import ReservedSlots
from master.prediction.application import ForecastSettings
from master.reservations.rdl import RdlError
from master.reservations.reservation_manager import ManagerSettings, named_bundles
from penstock import paths
from penstock.config.settings import LIVE, SettingsError, entry
from penstock.security import doors
from penstock.security.doors import Doors, HttpAddress

Meta = msgspec.Meta


class MasterConfig(Doors, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``/etc/penstock/master.toml``. Flat keys; quantities in readable notation (``"50MB/s"``, ``"100ms"``)."""

    listen: Annotated[
        str,
        Meta(
            description="address for agents: ADDRESS:PORT (port 0: any free one), or the path of a Unix socket for "
            "the agents of this host"
        ),
    ] = "127.0.0.1:7420"
    http: HttpAddress = "127.0.0.1:7422"
    interval_s: Annotated[
        float, Meta(gt=0, description="scheduling interval: time between two rounds with tasks to place"), LIVE
    ] = 0.1
    ept_s: Annotated[
        float,
        Meta(
            ge=0,
            description="Ursa's EPT: work that a node should have queued, the scheduling latency or more; 0: it "
            "follows the lengths of tasks, within 1 to 5 s",
        ),
        LIVE,
    ] = 0.0
    ordering: Annotated[
        Literal["fifo", "fair", "drf", "las", "ejf", "srjf", "las_mq", "gittins"],
        Meta(description="order of jobs, and the amounts that each may hold (docs/order.md)"),
        LIVE,
    ] = "gittins"
    ejf_weight: Annotated[
        float,
        Meta(ge=0, description="Ursa's W: score per second since a job was submitted; a fit scores at most 4"),
        LIVE,
    ] = 1.0
    srjf_weight: Annotated[
        float, Meta(ge=0, le=500, description="srjf: factor of a job's priority score; a fit scores at most 4"), LIVE
    ] = 100.0
    las_quantum_s: Annotated[
        float, Meta(gt=0, description="las: service that a container counts as soon as it is placed"), LIVE
    ] = 1.0
    las_mq_queues: Annotated[int, Meta(ge=1, le=100, description="las_mq: number of queues (k)"), LIVE] = 10
    las_mq_first_threshold_container_s: Annotated[
        float, Meta(gt=0, description="las_mq: container-seconds until a job leaves the first queue (α)"), LIVE
    ] = 100.0
    las_mq_step: Annotated[
        float, Meta(gt=1, description="las_mq: each queue's threshold is the last one's times this (p)"), LIVE
    ] = 10.0
    las_mq_weights: Annotated[
        tuple[float, ...],
        Meta(description="las_mq: shares of the queues, one each; empty: each las_mq_step times the next one's"),
        LIVE,
    ] = ()
    las_mq_stage_aware: Annotated[
        bool, Meta(description="las_mq: count the expected service of the present stage at its end"), LIVE
    ] = True
    las_mq_inside: Annotated[
        Literal["fifo", "demand"],
        Meta(description="las_mq: order inside a queue: by arrival there, or by the containers that jobs still need"),
        LIVE,
    ] = "demand"
    tenants: Annotated[
        dict[str, str],
        Meta(description="user → tenant as a path (research/eve); others: the user's name; if set, tenants share"),
        LIVE,
    ] = msgspec.field(default_factory=dict)
    weights: Annotated[
        dict[str, float], Meta(description="tenant's path → weight; others: 1; if set, tenants share"), LIVE
    ] = msgspec.field(default_factory=dict)
    share_chunk_tasks: Annotated[
        int,
        Meta(ge=1, description="fair, drf, las, las_mq: tasks of a stage that are placed before the next choice"),
        LIVE,
    ] = 4
    placement: Annotated[
        Literal["ursa", "tetris", "tetris2", "capacity"],
        Meta(description="how tasks are placed: Ursa's Algorithm 1, or by their peak demands (Ursa §5.1.2)"),
        LIVE,
    ] = "ursa"
    tetris_peak_to_mean: Annotated[
        float,
        Meta(ge=1, description="tetris, tetris2: a task's peak of disk and network by its mean over its life"),
        LIVE,
    ] = 2.0
    stage_aware: Annotated[
        bool, Meta(description="Algorithm 1: stages whose tasks all find a place go first (Ursa §4.2.2)"), LIVE
    ] = True
    network_aware: Annotated[bool, Meta(description="Algorithm 1: the network counts (Ursa §5.2 ignores it)"), LIVE] = (
        True
    )
    memory_estimate: Annotated[
        bool, Meta(description="estimate the memory of tasks that do not state it: min{r·M(j), m2i·I(t)}"), LIVE
    ] = False
    max_running_jobs: Annotated[
        int, Meta(ge=0, description="jobs admitted at once (LAS_MQ §4); 0: limited by their memory only"), LIVE
    ] = 0
    user_max_jobs: Annotated[
        int, Meta(ge=0, description="jobs of one user that are admitted at once; 0: no limit"), LIVE
    ] = 0
    user_max_cores: Annotated[
        float,
        Meta(ge=0, description="cores that one user's regular tasks and executors may hold at once; 0: no limit"),
        LIVE,
    ] = 0.0
    user_max_memory_bytes: Annotated[
        int,
        Meta(ge=0, description="memory that one user's regular tasks and executors may hold at once; 0: no limit"),
        LIVE,
    ] = 0
    admission_wait_max_s: Annotated[
        float, Meta(gt=0, description="a job that has waited longer for its memory goes before all others"), LIVE
    ] = 600.0
    heartbeat_s: Annotated[
        float,
        Meta(
            gt=0,
            description="time between two reports of an agent, or up to a tenth more: it reports with its next sample",
        ),
    ] = 1.0
    node_timeout_s: Annotated[
        float, Meta(gt=0, description="how long a node may be away or silent before its tasks are lost"), LIVE
    ] = 10.0
    drained_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            description="the same for a drained node without running work: the jobs submitted there go on meanwhile",
        ),
        LIVE,
    ] = 600.0
    gather_s: Annotated[
        float,
        Meta(
            ge=0,
            description="time after a restart in which the master places nothing, so that every node can report its "
            "tasks",
        ),
        LIVE,
    ] = 5.0
    promotion: Annotated[
        bool, Meta(description="opportunistic tasks become regular where there is room (UBIS §IV.D)"), LIVE
    ] = True
    preemption_backoff_s: Annotated[
        float,
        Meta(
            ge=0,
            description="time for which a preempted task is not placed on that node's slack, doubled by each further "
            "preemption there; 0: no back-off, neither of the task nor of the node",
        ),
        LIVE,
    ] = 10.0
    preemption_backoff_max_s: Annotated[
        float,
        Meta(
            gt=0,
            description="the longest such pause, and the time after a preemption in which the node's slack takes a "
            "limited number of tasks",
        ),
        LIVE,
    ] = 60.0
    executor_placement: Annotated[
        Literal["minfrag", "trc", "tetris", "tetris2", "capacity", "static", "random_fit"],
        Meta(description="how executors are placed (docs/executors.md); all but the first two reserve their peaks"),
    ] = "minfrag"
    executor_slot_s: Annotated[
        float, Meta(ge=0.1, le=3600, description="slots of executors' profiles; as in the agents' configuration")
    ] = 3.0
    executor_horizon_slots: Annotated[
        int, Meta(ge=1, le=10_000, description="the most slots of a profile; longer runs have longer slots")
    ] = 600
    executor_demand: Annotated[
        Literal["auto", "peak", "mean"],
        Meta(
            description="promise of an executor for each slot of a forecast; auto: the peak with hard limits, the "
            "mean with shared guarantees"
        ),
    ] = "auto"
    executor_headroom: Annotated[
        float, Meta(ge=0, description="promise of an executor beyond its forecast, as a fraction of the forecast")
    ] = 0.05
    store: Annotated[
        str,
        Meta(
            description="the database of executors' use, reservations, drains and ended jobs: an SQLite file or an "
            "SQLAlchemy URL; default: master.db in systemd's state directory, in /var/lib/penstock, or in the user's "
            "own"
        ),
    ] = ""
    default_cpu_bytes_per_s: Annotated[
        float, Meta(gt=0, description="processing rate of one core until its node has measured its own"), LIVE
    ] = 50e6
    default_disk_bytes_per_s: Annotated[
        float, Meta(gt=0, description="processing rate of a node's disk monotasks until it has measured its own"), LIVE
    ] = 100e6
    default_network_bytes_per_s: Annotated[
        float,
        Meta(gt=0, description="processing rate of a node's network monotasks until it has measured its own"),
        LIVE,
    ] = 100e6

    reservation_planner: Annotated[
        Literal["gree", "gree_early", "gree_l", "gree_l_strict"],
        Meta(description="how reservations are planned: late, early, flat (or late), flat or not at all (Rayon §4.2)"),
    ] = "gree"
    reservation_step_s: Annotated[float, Meta(ge=0.1, le=3600, description="step of the plan of reservations")] = 1.0
    reservation_horizon_s: Annotated[
        float, Meta(gt=0, description="how far ahead recurring requests and requests without a window are planned")
    ] = 7 * 86_400.0
    reservation_lead_s: Annotated[
        float, Meta(ge=0, le=600, description="how long before a promise begins the master makes room for it")
    ] = 0.5
    reservation_most_at_once: Annotated[
        float, Meta(gt=0, le=1, description="share of the cluster that one tenant may have promised at any time")
    ] = 1.0
    reservation_most_over_time: Annotated[
        float, Meta(gt=0, le=1, description="share of the capacity over any reservation_window_s that it may have")
    ] = 1.0
    reservation_window_s: Annotated[float, Meta(gt=0, description="window of reservation_most_over_time")] = 86_400.0
    bundles: Annotated[
        dict[str, str], Meta(description='bundles with names, for reservations: name → such as "<2GB,1core>"'), LIVE
    ] = msgspec.field(default_factory=dict)

    def cluster_settings(self) -> MasterSettings:
        """Return the settings of the decisions."""
        known = {each.name for each in fields(MasterSettings)}
        return MasterSettings(**{name: getattr(self, name) for name in self.__struct_fields__ if name in known})

    def reservation_settings(self) -> ManagerSettings:
        """Return the settings of reservations.

        Raises: SettingsError: a named bundle is invalid.
        """
        try:
            bundles = named_bundles(self.bundles)
        except RdlError as error:
            raise SettingsError(f"bundles.{error}") from None  # it begins with the bundle's name
        return ManagerSettings(
            step_s=self.reservation_step_s,
            horizon_s=self.reservation_horizon_s,
            planner=self.reservation_planner,
            most_at_once=self.reservation_most_at_once,
            most_over_time=self.reservation_most_over_time,
            window_s=self.reservation_window_s,
            bundles=bundles,
            tenants=self.tenants,
        )

    def forecast_settings(self) -> ForecastSettings:
        """Return the settings of forecasting."""
        promises = ReservedSlots(self.executor_demand, self.executor_headroom)
        return ForecastSettings(self.executor_slot_s, self.executor_horizon_slots, promises=promises)

    def database(self) -> str:
        """Return the store's path or URL."""
        return self.store or str(paths.service_state_dir() / "master.db")

    def check(self) -> None:
        """Check rules that involve several fields.

        Raises: SettingsError: two settings contradict each other, or an address is invalid.
        """
        faults = [*_faults(doors.check, self, "listen")]
        faults += _faults(self.check_rules)
        if faults:
            raise SettingsError(*faults)

    def check_rules(self) -> None:
        """Check the rules of the keys that affect decisions, which a recorded round also contains.

        Raises: SettingsError: two settings contradict each other.
        """
        faults = [*_faults(self.reservation_settings)]
        if 0 < self.ept_s < self.interval_s:
            faults.append(f"ept_s: {self.ept_s:g} is below interval_s ({self.interval_s:g}); set it above")
        if self.node_timeout_s < 2 * self.heartbeat_s:
            faults.append(
                f"node_timeout_s: {self.node_timeout_s:g} is below two heartbeats ({self.heartbeat_s:g} s each)"
            )
        if self.preemption_backoff_max_s < self.preemption_backoff_s:
            faults.append(
                f"preemption_backoff_max_s: {self.preemption_backoff_max_s:g} is below preemption_backoff_s "
                f"({self.preemption_backoff_s:g})"
            )
        if self.drained_timeout_s < self.node_timeout_s:
            faults.append(
                f"drained_timeout_s: {self.drained_timeout_s:g} is below node_timeout_s ({self.node_timeout_s:g})"
            )
        faults += [
            f"{entry('weights', path)}: {weight:g} is not above 0"
            for path, weight in self.weights.items()
            if not weight > 0
        ]
        faults += [
            f"{entry('tenants', user)}: {tenant!r} has an empty part; name a tenant, or a path such as research/{user}"
            for user, tenant in self.tenants.items()
            if not all(tenant.split("/"))
        ]
        try:
            self.cluster_settings().ordering_settings()
        except ValueError as error:
            faults.append(f"las_mq_{error}")
        if faults:
            raise SettingsError(*faults)


def _faults(of: Callable[..., object], *arguments: object) -> tuple[str, ...]:
    try:
        of(*arguments)
    except SettingsError as error:
        return error.faults
    return ()
