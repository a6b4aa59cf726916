"""Events of the cluster. Each one is handled by :meth:`master.core.cluster.Cluster.handle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from master.core.drains import DrainRequest
from master.core.finished_jobs import FinishedJob
from master.core.history import Name, Needed
from master.core.settings import MasterSettings
from master.ordering import HandOrder, KnownSizes
from master.placement.lengths import KnownLengths
from master.prediction.runs import Settings
from penstock.model import Profile
from penstock.model.executor import Sizing
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress

Message = (
    api.Register | api.Heartbeat | api.JobState | api.JoinJob | api.JobEnded | api.ReadyTasks | api.TasksDone
    | api.TasksCancelled | api.CommandEnded | Progress
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a node's agent. ``Register`` opens its connection; every other message needs one."""

    node: str
    message: Message


@dataclass(frozen=True, slots=True)
class Answered:
    """The agent answered the ``decide`` request ``number`` of its present connection. ``places_known``: its own jobs
    know which of their tasks were assigned to it.
    """

    node: str
    number: int
    refused: list[api.Refusal]
    places_known: bool = False


@dataclass(frozen=True, slots=True)
class NodeAway:
    """The connection was lost. The node has ``node_timeout_s`` to come back; meanwhile nothing is placed on it."""

    node: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """A scheduling round is due; ``at`` is Unix time, like jobs' times of submission.

    ``stalled_s``: the time since the last round in which the master could receive nothing, because its process or its
    host was suspended or busy; it counts as no node's silence.
    """

    at: float
    stalled_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Forecasted:
    """The answer to ``Predict``: the predicted use of an executor with these settings, resources × slots of ``slot_s``.

    ``by`` names the predictor, ``error`` is its error on runs that were held back (NaN: there were none).
    """

    application: str
    settings: Settings
    profile: Profile
    by: str
    error: float
    sizing: Sizing = Sizing.HARD


@dataclass(frozen=True, slots=True)
class ForecastsOutdated:
    """The depository has another run of an application, or its models have been trained: forecasts are stale."""

    application: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """An operator (``by``) drains these nodes at Unix time ``at``; ``stop`` also stops the tasks that the master placed
    there.
    """

    nodes: tuple[str, ...]
    by: str
    at: float
    stop: bool = False


@dataclass(frozen=True, slots=True)
class UndrainRequested:
    """An operator (``by``) lets these nodes take work again."""

    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A job is to be stopped with all its tasks; ``by`` is the authorized requester."""

    job: str
    by: str


@dataclass(frozen=True, slots=True)
class OrderRequested:
    """``by`` orders these jobs first: its own jobs or, for an operator, ``of_all``. No jobs: the order by hand is
    removed.
    """

    jobs: tuple[str, ...]
    by: str
    of_all: bool


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """New settings, as far as a running master can change them (:meth:`MasterSettings.changed`)."""

    settings: MasterSettings


@dataclass(frozen=True, slots=True)
class StateRestored:
    """The state stored by the previous master (``Keep``), handled before any other event. ``jobs``: finished jobs in
    the order of their ends; ``sizes``: learnt sizes of jobs; ``orders``: orders by hand; ``needed``: needs of recurring
    jobs; ``lengths``: lengths of the latest tasks.
    """

    drains: Mapping[str, DrainRequest]
    jobs: Sequence[FinishedJob]
    sizes: Sequence[KnownSizes] = ()
    orders: Mapping[str, HandOrder] = field(default_factory=dict)
    needed: Sequence[tuple[Name, Needed]] = ()
    lengths: KnownLengths | None = None


Requested = DrainRequested | UndrainRequested | CancelRequested | OrderRequested
Event = (
    Received | Answered | NodeAway | RoundDue | Forecasted | ForecastsOutdated | Requested | Reconfigured
    | StateRestored
)  # fmt: skip
