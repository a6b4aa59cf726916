"""The methods of frameworks and commands that the agent relays to the master, with the user verified by its kernel.

As with :mod:`penstock.wire.agent_methods`, this is their only declaration. Agent and master are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.model.resources import KindAmounts
from penstock.wire import cluster_api, config_api, jobs_api
from penstock.wire import reservation_api as reservations
from penstock.wire.agent_api import Status
from penstock.wire.connection import read
from penstock.wire.errors import bad_request
from penstock.wire.method import USERS, Caller, Method, declare, methods_of

_RDL = "window(atom(<1GB,1core>, 1, 4, 5min, 1h), +1h, +3h)"

# fmt: off
_RESERVED = reservations.Reserved(
    reservation="r-1", user="eve", rdl=_RDL, created_at=1795000000.0, name="nightly",
    promised=[
        reservations.PromisedPiece(
            start=1795009900.0, finish=1795010800.0, bundles=4, cpu_cores=1.0, memory_bytes=1000000000
        )
    ],
)
CLUSTER_STATUS = declare(
    "cluster_status", cluster_api.ClusterStatus(), Status(status={"nodes": {}, "jobs": {}}), Caller.EVERYBODY
)

# ---------------------------------------------------------------- reservations
RESERVE = declare("reserve", reservations.Reserve(rdl=_RDL, name="nightly"), _RESERVED, Caller.EVERYBODY)
UPDATE_RESERVATION = declare(
    "update_reservation", reservations.UpdateReservation(reservation="r-1", rdl=_RDL), _RESERVED, Caller.OWNER
)
DELETE_RESERVATION = declare(
    "delete_reservation", reservations.DeleteReservation(reservation="r-1"),
    reservations.Reservations(reservations=[]), Caller.OWNER,
)
RESERVATIONS = declare(
    "reservations", reservations.ListReservations(), reservations.Reservations(reservations=[_RESERVED]), Caller.OWNER
)
USE_RESERVATION = Method("use_reservation", reservations.UseReservation, reservations.Reserved, Caller.AGENT)

# ---------------------------------------------------------------- nodes
DRAIN = declare(
    "drain", cluster_api.DrainNodes(nodes=["alpha"]),
    cluster_api.Drains(
        nodes=[
            cluster_api.NodeDrain(
                node="alpha", state="draining", draining=cluster_api.Draining("root", 1795000000.0),
                remaining=[cluster_api.Remaining("command", "j-1/m-1", "wordcount", "eve")], count=1,
            )
        ]
    ),
    Caller.OPERATORS,
)
UNDRAIN = declare(
    "undrain", cluster_api.UndrainNodes(nodes=["alpha"]),
    cluster_api.Drains(nodes=[cluster_api.NodeDrain(node="alpha", state="connected")]), Caller.OPERATORS,
)
DRAINS = declare(
    "drains", cluster_api.AskDrains(nodes=["alpha"]),
    cluster_api.Drains(nodes=[cluster_api.NodeDrain(node="alpha", state="drained")]), Caller.EVERYBODY,
)

# ---------------------------------------------------------------- configuration
SET_CONFIG = declare(
    "set_config", config_api.SetConfig(values={"t_alloc": "0.8", "lease_s": "10ms"}),
    config_api.ConfigSet(
        changed=[
            config_api.ChangedKey(key="t_alloc", was="0.9", now="0.8"),
            config_api.ChangedKey(key="lease_s", was='"5ms"', now='"10ms"', stronger="$PENSTOCK_AGENT_LEASE_S"),
        ],
        host="alpha", file="/etc/penstock/agent.toml",
    ),
    Caller.OPERATORS,
)
SHOW_CONFIG = declare(
    "show_config", config_api.ShowConfig(),
    config_api.ConfigInForce(
        keys={
            "t_alloc": config_api.KeyInForce(
                value=0.8, written="0.8", source="file", where="/etc/penstock/agent.toml:2", default="0.9", live=True,
                description="UBIS T_alloc: how far opportunistic work may fill the node",
            )
        },
        host="alpha", file="/etc/penstock/agent.toml",
    ),
    Caller.OPERATORS,
)

# ---------------------------------------------------------------- jobs
JOBS = declare(
    "jobs", jobs_api.ListJobs(jobs=["j-1", "j-0"]),
    jobs_api.Jobs(
        jobs=[
            jobs_api.JobView(
                job="j-1", name="wordcount", user="eve", origin="alpha", state="running", submitted_at=1795000000.0,
                stages=2, stages_done=1, tasks_running=2, tasks_done=8, nodes=["alpha", "beta"],
                ran_on=["alpha", "beta", "gamma"],
                left=KindAmounts(cpu=2e6), service_container_s=41.0, rank=3, of=5,
                reason="41 s of service so far, queue 8: no job like it is known", queue=8, known_jobs=0,
                ranks=[
                    jobs_api.NodeRank(node="alpha", rank=2, of=4, weight=12, service_container_s=30.0, before=["j-3"])
                ],
                progress=[
                    jobs_api.StageView(stage="map", tasks=8, done=8),
                    jobs_api.StageView(stage="reduce", tasks=2, done=0, after=["map"]),
                ],
            )
        ],
        unknown=["j-0"],
    ),
    Caller.OWNER,
)
CANCEL_JOB = declare("cancel_job", jobs_api.CancelJob(job="j-1"), jobs_api.Cancellation(job="j-1"), Caller.OWNER)
ORDER_JOBS = declare(
    "order_jobs", jobs_api.OrderJobs(jobs=["j-7", "j-1"]), jobs_api.JobsOrdered(jobs=["j-7", "j-1"], of_all=False),
    Caller.OWNER,
)
EXPLAIN_JOB = declare(
    "explain_job", jobs_api.ExplainJob(job="j-1"),
    jobs_api.Explained(explained={"job": "j-1", "place": 1, "of": 2}), Caller.OWNER,
)
# fmt: on

#: framework → agent → master
REQUESTS = methods_of(globals(), *USERS)


@dataclass(frozen=True, slots=True, eq=False)
class Relay:
    """A method of agents to the master: one of ``calls``, as :class:`~penstock.wire.reservation_api.OnBehalf`.

    ``without_master`` is the refusal of an agent that has no master.
    """

    name: str
    calls: tuple[Method[Any, Any], ...]
    without_master: str

    def read(self, asked: reservations.OnBehalf) -> Any:
        """Return the parameters of a relayed call.

        Raises:
            RpcError: ``bad_request``: the relay has no such call, or the parameters are invalid.
        """
        calls = {call.name: call for call in self.calls}
        if asked.call not in calls:
            raise bad_request(f"no call {asked.call[:80]!r}", field="call", remedy=f"one of {', '.join(calls)}")
        return read(asked.params, calls[asked.call].params)


# fmt: off
OF_RESERVATIONS = Relay(
    "reservation", (RESERVE, UPDATE_RESERVATION, DELETE_RESERVATION, RESERVATIONS, USE_RESERVATION),
    "reservations belong to the master, and this host has none",
)
OF_NODES = Relay("nodes", (DRAIN, UNDRAIN, DRAINS), "nodes are drained by the master, and this host has none")
OF_JOBS = Relay(
    "jobs", (JOBS, CANCEL_JOB, ORDER_JOBS, EXPLAIN_JOB), "jobs are known to the master, and this host has none"
)
OF_CONFIGURATION = Relay("configuration", (SET_CONFIG, SHOW_CONFIG), "this host has no master")
OF_CLUSTER = Relay("cluster_status", (CLUSTER_STATUS,), "this host has no master, so there is no cluster to show")
# fmt: on
RELAYS = (OF_RESERVATIONS, OF_NODES, OF_JOBS, OF_CONFIGURATION, OF_CLUSTER)
