"""What the shell is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from master.core.drains import DrainSaid
from master.core.past import Past
from master.ordering.by_hand import HandOrder
from master.ordering.sizes import Kind, KnownSizes
from master.prediction.runs import Run, Settings
from penstock.wire.master_api import AnyDecision


@dataclass(frozen=True, slots=True)
class SendDecisions:
    """Send a ``decide`` request; its answer comes back as the event ``Answered``."""

    node: str
    number: int
    decisions: list[AnyDecision]


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the node's connection: it has been silent for too long. ``NodeAway`` is not wanted for it."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Log what happened: who, why, which numbers."""

    what: str
    facts: dict[str, object]


@dataclass(frozen=True, slots=True)
class Predict:
    """Say what an executor of an application will use; its answer is the event ``Forecasted``."""

    application: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class StoreRun:
    """Keep what an executor used, slot by slot of ``slot_s``; ``run`` names the run of the application that it was
    part of. Its answer is the event ``Learnt``."""

    application: str
    run: str
    slot_s: float
    usage: Run


@dataclass(frozen=True, slots=True)
class Keep:
    """Write down, for the master that comes after this one: what operators have said of nodes (``drains``) and how jobs
    ended (``jobs``), by their names; None: forget it. A node that is to take work again, but does not know yet, is
    ``drains[node] = DrainSaid(None)``. ``sizes`` is what was learnt of the sizes of jobs, by kind, ``orders`` which
    jobs are first by hand (:class:`~master.core.hand_orders.HandOrders`). It is given back as the event
    ``Remembered``."""

    drains: Mapping[str, DrainSaid | None]
    jobs: Mapping[str, Past | None]
    sizes: Mapping[Kind, KnownSizes | None] = field(default_factory=dict)
    orders: Mapping[str, HandOrder | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndHeard:
    """A job's origin has heard how one of its tasks ended, or is not to hear of it any more."""

    job: str
    task: str


Instruction = SendDecisions | Hangup | Explain | Predict | StoreRun | Keep | EndHeard
