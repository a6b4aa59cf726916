"""Instructions to the shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from master.core.drains import DrainRequest
from master.core.finished_jobs import FinishedJob
from master.core.history import Name, Needed
from master.ordering.by_hand import HandOrder
from master.ordering.sizes import Kind, KnownSizes
from master.placement.lengths import KnownLengths
from master.prediction.runs import Run, Settings
from penstock.model.executor import Sizing
from penstock.wire.master_api import AnyDecision

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class SendDecisions:
    """Send a ``decide`` request; its answer comes back as the event ``Answered``."""

    node: str
    number: int
    decisions: list[AnyDecision]


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the node's connection: it has been silent for too long. No ``NodeAway`` follows."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Log an event with its facts."""

    what: str
    facts: dict[str, object]


@dataclass(frozen=True, slots=True)
class Predict:
    """Predict the use of an application's executor; the answer is the event ``Forecasted``."""

    application: str
    settings: Settings
    sizing: Sizing = Sizing.HARD


@dataclass(frozen=True, slots=True)
class StoreRun:
    """Store the use of an executor, in slots of ``slot_s``; ``run`` names the run of the application that the executor
    belonged to. The answer is the event ``ForecastsOutdated``.
    """

    application: str
    run: str
    slot_s: float
    usage: Run


@dataclass(frozen=True, slots=True)
class Keep:
    """Store state for the next master, by name; None: remove the entry. ``drains``: operators' drain requests; a node
    that takes work again but has not confirmed it is ``drains[node] = DrainRequest(None)``. ``jobs``: how jobs ended.
    ``sizes``: learnt sizes of jobs, by kind. ``orders``: orders by hand (:class:`~master.core.order.HandOrders`).
    ``needed``: needs of recurring jobs. ``lengths``: lengths of the latest tasks, None where unchanged. The next master
    receives all this as the event ``StateRestored``.
    """

    drains: Mapping[str, DrainRequest | None] = field(default_factory=dict)
    jobs: Mapping[str, FinishedJob | None] = field(default_factory=dict)
    sizes: Mapping[Kind, KnownSizes | None] = field(default_factory=dict)
    orders: Mapping[str, HandOrder | None] = field(default_factory=dict)
    needed: Mapping[Name, Needed | None] = field(default_factory=dict)
    lengths: KnownLengths | None = None

    def __bool__(self) -> bool:
        return any((self.drains, self.jobs, self.sizes, self.orders, self.needed, self.lengths))

    def then(self, later: Keep) -> Keep:
        """Merge this with later changes; a later change goes to the end."""
        return Keep(
            _then(self.drains, later.drains),
            _then(self.jobs, later.jobs),
            _then(self.sizes, later.sizes),
            _then(self.orders, later.orders),
            _then(self.needed, later.needed),
            later.lengths or self.lengths,
        )


def _then(before: Mapping[K, V], later: Mapping[K, V]) -> dict[K, V]:
    return {name: one for name, one in before.items() if name not in later} | dict(later)


@dataclass(frozen=True, slots=True)
class AcknowledgeEnd:
    """A job's origin has confirmed how one of its tasks ended, or no longer needs to be told."""

    job: str
    task: str


Instruction = SendDecisions | Hangup | Explain | Predict | StoreRun | Keep | AcknowledgeEnd
