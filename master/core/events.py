"""What happens to the cluster. Each event is handled by :meth:`master.core.cluster.Cluster.handle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from master.core.drains import DrainSaid
from master.core.history import Name, Needed
from master.core.past import Past
from master.core.settings import MasterSettings
from master.ordering import HandOrder, KnownSizes
from master.placement.lengths import KnownLengths
from master.prediction.runs import Settings
from penstock.model import Profile
from penstock.model.executor import Sizing
from penstock.wire.agent_api import Progress
from penstock.wire.master_api import (
    CommandEnded,
    Heartbeat,
    JobEnded,
    JobState,
    JoinJob,
    ReadyTasks,
    Refusal,
    Register,
    TasksCancelled,
    TasksDone,
)

Message = (
    Register
    | Heartbeat
    | JobState
    | JoinJob
    | JobEnded
    | ReadyTasks
    | TasksDone
    | TasksCancelled
    | CommandEnded
    | Progress
)


@dataclass(frozen=True, slots=True)
class Said:
    """A node's agent said something. ``Register`` opens its connection; every other message needs one."""

    node: str
    message: Message


@dataclass(frozen=True, slots=True)
class Answered:
    """The agent answered the ``decide`` request ``number`` of its present connection."""

    node: str
    number: int
    refused: list[Refusal]


@dataclass(frozen=True, slots=True)
class NodeAway:
    """The connection is gone. The node has ``node_timeout_s`` to come back; nothing is placed on it meanwhile."""

    node: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """Time for a scheduling round; ``at`` is Unix time, as jobs' times of submission are."""

    at: float


@dataclass(frozen=True, slots=True)
class Forecasted:
    """The answer to ``Predict``: what an executor with these settings will use, resources × slots of ``slot_s``.

    ``by`` says who predicts it and ``error`` by how much he missed runs that were held back (NaN: there were none).
    """

    application: str
    settings: Settings
    profile: Profile
    by: str
    error: float
    sizing: Sizing = Sizing.HARD


@dataclass(frozen=True, slots=True)
class Learnt:
    """Another run of an application is in the depository, or its models have been trained: forecasts are stale."""

    application: str


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """An operator (``by``) wants no more work on these nodes, at Unix time ``at``; with ``stop`` what the master placed
    there is stopped, too."""

    nodes: tuple[str, ...]
    by: str
    at: float
    stop: bool = False


@dataclass(frozen=True, slots=True)
class UndrainAsked:
    """These nodes take work again; an operator (``by``) says so."""

    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A job is to be stopped with all that runs of it; ``by`` is who wants that, and may."""

    job: str
    by: str


@dataclass(frozen=True, slots=True)
class OrderAsked:
    """``by`` wants these jobs first, in this order: of his own, or (an operator) ``of_all``; without jobs none is."""

    jobs: tuple[str, ...]
    by: str
    of_all: bool


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """Other settings from now on, as far as a running master can change them (:meth:`MasterSettings.changed`)."""

    settings: MasterSettings


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the master before this one has written down (``Keep``): before anything else is heard. ``jobs`` are those
    that are over, in the order in which they ended; ``sizes`` what was learnt of the sizes of jobs; ``orders`` which
    jobs are first by hand; ``needed`` what jobs that recur needed; ``lengths`` those of the latest tasks."""

    drains: Mapping[str, DrainSaid]
    jobs: Sequence[Past]
    sizes: Sequence[KnownSizes] = ()
    orders: Mapping[str, HandOrder] = field(default_factory=dict)
    needed: Sequence[tuple[Name, Needed]] = ()
    lengths: KnownLengths | None = None


Asked = DrainAsked | UndrainAsked | CancelAsked | OrderAsked
Event = Said | Answered | NodeAway | RoundDue | Forecasted | Learnt | Asked | Reconfigured | Remembered
