"""The agent's configuration, declared as one table: the only place that documents each key."""

from __future__ import annotations

import os
import socket
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import psutil

from agent.core.settings import NodeSettings, PreemptionSettings, Thresholds, TuningSettings, UserQuotas, VictimOrder
from penstock import paths
from penstock.config.settings import LIVE, SettingsError
from penstock.model import Capacity
from penstock.model.node_name import unprintable
from penstock.security import doors
from penstock.security.doors import Doors, HttpAddress
from penstock.wire.connection import MAX_FRAME_BYTES

Meta = msgspec.Meta
#: The node's settings that are keys of the configuration by the same name and with the same value.
_AS_CONFIGURED = (
    "network_bypass_bytes", "disk_small_bytes", "lease_s", "lease_kept_s", "job_wait_max_s", "slot_held_max_s",
    "disk_bytes_per_s", "executor_slot_s", "sample_interval_s", "elastic_lead_s", "elastic_lag_s", "reprovision_rho",
    "rate_window_s", "opportunistic_queue", "opportunistic_wait_s", "rejoin_s", "keep_ended",
)  # fmt: skip
#: Those of preemption that are keys with the prefix ``preempt_``.
_PREEMPT = ("after", "after_cpu", "after_disk", "after_network", "hysteresis", "cooldown_s", "order", "dry_run")
Whole = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]


class AgentConfig(Doors, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``/etc/penstock/agent.toml``. Flat keys; quantities as people write them (``"2GiB"``, ``"500ms"``)."""

    node: Annotated[str, Meta(max_length=128, description="name of this node in the cluster; default: the host's")] = ""
    master: Annotated[
        str,
        Meta(
            description="the master: HOST:PORT, or the path of its Unix socket on this host; empty: none, jobs are "
            "admitted at once"
        ),
    ] = ""
    master_name: Annotated[
        str, Meta(description="name that the master's certificate must carry; default: the host in `master`")
    ] = ""
    http: HttpAddress = "127.0.0.1:7421"
    operators: Annotated[
        str, Meta(description="group whose members, like root, may act on the jobs and containers of all users")
    ] = ""
    user_max_connections: Annotated[
        Whole, Meta(description="connections that one user may have at once; operators have none of these limits"), LIVE
    ] = 1024
    user_max_jobs: Annotated[
        Whole, Meta(description="jobs that one user may have registered here at once; 0: no limit"), LIVE
    ] = 1000
    user_max_queued: Annotated[
        Whole, Meta(description="monotasks that one user may have queued here; 0: no limit"), LIVE
    ] = 100_000
    user_max_tasks: Annotated[
        Whole, Meta(description="tasks of one user's jobs that may wait or run anywhere; 0: no limit"), LIVE
    ] = 100_000
    user_max_containers: Annotated[
        Whole, Meta(description="containers that one user may have here when starting another; 0: no limit"), LIVE
    ] = 500
    user_max_cores: Annotated[
        NotNegative, Meta(description="cores promised to the containers that one user starts here; 0: no limit"), LIVE
    ] = 0.0
    user_max_memory_bytes: Annotated[
        Whole, Meta(description="memory promised to the containers that one user starts here; 0: no limit"), LIVE
    ] = 0
    user_max_pids: Annotated[
        Whole, Meta(description="processes and threads that one container's `pids_max` may allow; 0: no limit"), LIVE
    ] = 32_768
    container_pids_max: Annotated[
        Whole, Meta(description="`pids_max` of containers that set none; 0: no limit"), LIVE
    ] = 4096
    socket: Annotated[str, Meta(description="path of the framework socket; default: RUNTIME_DIR/agent.sock")] = ""
    runtime_dir: Annotated[str, Meta(description="sockets; default: /run/penstock, or the user's own")] = ""
    state_dir: Annotated[
        str, Meta(description="journal and outputs; default: /var/lib/penstock, or the user's own")
    ] = ""
    cgroup_root: Annotated[
        str,
        Meta(
            description="cgroup v2 directory for containers; auto: the launcher's unit or scope, or a new one; "
            "scope: a new scope of systemd's, with `spawn_launcher`"
        ),
    ] = "auto"
    spawn_launcher: Annotated[
        bool, Meta(description="start a launcher if none runs; false under systemd, where it has a unit of its own")
    ] = True
    launcher_leave_after_s: Annotated[
        NotNegative,
        Meta(description="a launcher started by the agent ends this long after its last container and agent; 0: never"),
    ] = 600.0
    cores: Annotated[NotNegative, Meta(description="cores offered; 0: all of the host's")] = 0.0
    memory_bytes: Annotated[Whole, Meta(description="memory offered; 0: nine tenths of the host's")] = 0
    disk_concurrency: Annotated[int, Meta(ge=0, le=1024, description="disk monotasks at once; 0: one per disk")] = 0
    network_concurrency: Annotated[int, Meta(ge=1, le=64, description="network monotasks at once (Ursa: 1 to 4)")] = 2
    network_bypass_bytes: Annotated[
        Whole, Meta(description="network monotasks smaller than this are not queued (Ursa §4.2.3)")
    ] = 16 * 1024
    disk_small_bytes: Annotated[
        Whole, Meta(description="sixteen disk monotasks smaller than this run together as one (Ursa §4.2.3)"), LIVE
    ] = 64 * 1024
    lease_s: Annotated[
        float,
        Meta(ge=0, le=1, description="how long a job may pass its slot on to its own next monotasks without asking"),
        LIVE,
    ] = 0.005
    lease_kept_s: Annotated[
        float,
        Meta(ge=0, le=1, description="as lease_s, while no other work waits: the slot may be idle meanwhile; 0: never"),
        LIVE,
    ] = 0.1
    job_wait_max_s: Annotated[
        Positive, Meta(description="a job that has waited this long for its turn gets one slot before all others"), LIVE
    ] = 30.0
    slot_held_max_s: Annotated[
        NotNegative,
        Meta(description="a slot held this long goes to another user's job that has waited job_wait_max_s; 0: never"),
        LIVE,
    ] = 60.0
    rate_window_s: Annotated[Positive, Meta(description="window of the processing rates")] = 10.0
    sample_interval_s: Annotated[
        float, Meta(ge=0.05, description="time between two samples of host and containers"), LIVE
    ] = 1.0
    opportunistic: Annotated[
        bool,
        Meta(description="whether work may run on slack here (UBIS); false: none is started, as with t_alloc = 0"),
        LIVE,
    ] = True
    t_alloc: Annotated[
        float, Meta(ge=0, le=2, description="UBIS T_alloc: how far opportunistic work may fill the node"), LIVE
    ] = 0.9
    t_alloc_tuned: Annotated[
        bool,
        Meta(description="tune T_alloc, starting from t_alloc: up while nothing is preempted, down after preemptions"),
        LIVE,
    ] = False
    t_alloc_least: Annotated[Fraction, Meta(description="lower bound of a tuned T_alloc"), LIVE] = 0.5
    opportunistic_queue: Annotated[
        Whole,
        Meta(description="placed opportunistic commands that may wait here for slack, beyond what fits now"),
        LIVE,
    ] = 0
    opportunistic_wait_s: Annotated[
        Positive, Meta(description="how long such a command waits before it is handed back to the master"), LIVE
    ] = 10.0
    t_preempt_cpu: Annotated[
        Fraction, Meta(description="UBIS T_preempt for CPU; 1: nothing is frozen for the CPU"), LIVE
    ] = 1.0
    t_preempt_memory: Annotated[Fraction, Meta(description="UBIS T_preempt for memory"), LIVE] = 0.9
    t_preempt_disk: Annotated[Fraction, Meta(description="UBIS T_preempt for disk"), LIVE] = 0.95
    t_preempt_network: Annotated[Fraction, Meta(description="UBIS T_preempt for the network"), LIVE] = 0.95
    preempt_after: Annotated[
        int,
        Meta(ge=1, description="samples in a row above T_preempt before CPU, disk or network work is preempted"),
        LIVE,
    ] = 3
    preempt_after_cpu: Annotated[Whole, Meta(description="the same for CPU alone; 0: preempt_after"), LIVE] = 0
    preempt_after_disk: Annotated[Whole, Meta(description="the same for disk alone; 0: preempt_after"), LIVE] = 0
    preempt_after_network: Annotated[
        Whole, Meta(description="the same for the network alone; 0: preempt_after"), LIVE
    ] = 0
    preempt_order: Annotated[
        VictimOrder,
        Meta(description="which opportunistic container goes first: newest, least_progress or largest"),
        LIVE,
    ] = VictimOrder.NEWEST
    preempt_cooldown_s: Annotated[
        NotNegative, Meta(description="minimum time between two actions for CPU, disk or network, and of a pause"), LIVE
    ] = 5.0
    preempt_hysteresis: Annotated[
        Fraction, Meta(description="how far below T_preempt use must be before a paused container resumes"), LIVE
    ] = 0.05
    preempt_dry_run: Annotated[bool, Meta(description="only log what would be paused, reclaimed or ended"), LIVE] = (
        False
    )
    grace_max_s: Annotated[
        float, Meta(ge=0, le=300, description="longest grace that a container's notice may ask for"), LIVE
    ] = 30.0
    starved_after_s: Annotated[
        NotNegative,
        Meta(description="a placed opportunistic command without progress for this long is handed back; 0: never"),
        LIVE,
    ] = 60.0
    memory_look_interval_s: Annotated[
        float, Meta(ge=0.01, description="time between two checks of memory while opportunistic work runs"), LIVE
    ] = 0.05
    repair_interval_s: Annotated[
        NotNegative, Meta(description="time between two checks for limits changed by other programs; 0: never"), LIVE
    ] = 30.0
    network_link_bytes_per_s: Annotated[
        Whole, Meta(description="rate of the link if it does not report one; network promises are parts of it")
    ] = 0
    disk_bytes_per_s: Annotated[
        Whole, Meta(description="rate of the disks, for reservations and executors whose use is predicted; 0: unknown")
    ] = 0
    executor_slot_s: Annotated[
        float, Meta(ge=0.1, le=60, description="length of the slots in which executors' use is recorded and planned")
    ] = 3.0
    jvm_heap_share: Annotated[
        float, Meta(gt=0, le=1, description="part of an executor's memory for the heaps of its Java processes")
    ] = 0.75
    elastic_lead_s: Annotated[
        float, Meta(ge=0, le=60, description="limits rise this long before the profile that they follow"), LIVE
    ] = 0.3
    elastic_lag_s: Annotated[
        float, Meta(ge=0, le=60, description="limits fall this long after the profile that they follow"), LIVE
    ] = 0.3
    reprovision_rho: Annotated[
        float,
        Meta(ge=1, description="an executor's stage that takes this multiple of its predicted time is corrected"),
        LIVE,
    ] = 1.1
    disk_scheduler: Annotated[
        Literal["keep", "bfq"],
        Meta(
            description="bfq: select it on every disk, so that disks are divided by weight; keep: leave disks unchanged"
        ),
    ] = "keep"
    rejoin_s: Annotated[NotNegative, Meta(description="how long a restarted agent waits for its frameworks"), LIVE] = (
        30.0
    )
    output_max_bytes: Annotated[
        int, Meta(ge=4096, description="bytes that are kept of each output stream of a container"), LIVE
    ] = 16 * 1024**2
    max_frame_bytes: Annotated[int, Meta(ge=4096, description="largest message from a framework")] = MAX_FRAME_BYTES
    keep_ended: Annotated[
        Whole,
        Meta(
            description="ended containers of each user that are kept, with their output (20 times as many of all "
            "users), and preemptions"
        ),
        LIVE,
    ] = 100

    def check(self) -> None:
        """Check combinations of fields.

        Raises:
            SettingsError: settings contradict each other, or an address is invalid.
        """
        faults: list[str] = []
        try:
            doors.check(self, "master")
        except SettingsError as error:
            faults += error.faults
        if wrong := unprintable(self.node):
            faults.append(f"node: {wrong}")
        if self.cgroup_root not in {"auto", "scope"} and not Path(self.cgroup_root).is_absolute():
            faults.append(f"cgroup_root: auto, scope or an absolute path expected, not {self.cgroup_root!r}")
        if self.t_alloc_tuned and self.t_alloc < self.t_alloc_least:
            faults.append(
                f"t_alloc_least: {self.t_alloc_least:g} is above t_alloc ({self.t_alloc:g}), where a tuned one begins"
            )
        if faults:
            raise SettingsError(*faults)

    def runtime(self) -> Path:
        """Return the directory of sockets."""
        return Path(self.runtime_dir) if self.runtime_dir else paths.runtime_dir()

    def state(self) -> Path:
        """Return the directory of files that survive a restart."""
        return Path(self.state_dir) if self.state_dir else paths.state_dir()

    def socket_path(self) -> Path:
        """Return the path of the framework socket."""
        return Path(self.socket) if self.socket else self.runtime() / "agent.sock"

    def node_settings(
        self, *, instance: str, disks: int, link_bytes_per_s: int = 0, ranked: bool = False
    ) -> NodeSettings:
        """Return the settings of the node's decisions: configured, and detected on the host."""
        capacity = Capacity(
            cores=self.cores or float(len(os.sched_getaffinity(0))),
            memory_bytes=self.memory_bytes or psutil.virtual_memory().total * 9 // 10,
            disk_slots=self.disk_concurrency or max(1, disks),
            network_slots=self.network_concurrency,
        )
        tuning = None
        if self.t_alloc_tuned and self.opportunistic:
            tuning = TuningSettings(least=self.t_alloc_least, most=min(self.t_preempt_cpu, self.t_preempt_memory))
        return NodeSettings(
            node=self.node or socket.gethostname(),
            instance=instance,
            capacity=capacity,
            has_master=bool(self.master),
            ranked=ranked,
            link_bytes_per_s=link_bytes_per_s,
            t_alloc=self.t_alloc if self.opportunistic else 0.0,
            t_alloc_tuning=tuning,
            preemption=PreemptionSettings(
                thresholds=Thresholds(
                    self.t_preempt_cpu, self.t_preempt_memory, self.t_preempt_disk, self.t_preempt_network
                ),
                starved_after_s=self.starved_after_s,
                grace_max_s=self.grace_max_s,
                **{name: getattr(self, f"preempt_{name}") for name in _PREEMPT},
            ),
            quotas=UserQuotas(**{each.name: getattr(self, f"user_max_{each.name}") for each in fields(UserQuotas)}),
            **{name: getattr(self, name) for name in _AS_CONFIGURED},
        )
