"""The keys of a scenario of the fluid model."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from master.ordering.multilevel import Multilevel

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class InlineJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of ``[[workload.jobs]]``."""

    size: _Positive
    at_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    name: str = ""
    weight: _Positive = 1.0


class Arrivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When synthetic jobs come: ``together`` at 0, ``fixed`` every ``interval_s``, ``poisson`` with that mean."""

    process: Literal["together", "fixed", "poisson"] = "poisson"
    interval_s: _Positive = 1.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large synthetic jobs are. ``shape`` is the exponent of ``pareto``; its mean exists above 1."""

    distribution: Literal["constant", "exponential", "pareto", "uniform"] = "exponential"
    mean: _Positive = 1.0
    shape: Annotated[float, msgspec.Meta(gt=1)] = 1.5


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs drawn with the scenario's seed. ``weights`` are drawn from the list, each as likely."""

    jobs: _Count
    arrivals: Arrivals = Arrivals()
    sizes: Sizes = Sizes()
    weights: tuple[_Positive, ...] = (1.0,)


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace's file (relative to the working directory).

    ``d_over_n`` is what a byte of shuffle counts in a SWIM row's size: input + d/n × shuffle + output.
    """

    file: str
    format: Literal["swim"] = "swim"
    d_over_n: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the three."""

    jobs: tuple[InlineJob, ...] = ()
    synthetic: Synthetic | None = None
    trace: Trace | None = None

    def __post_init__(self) -> None:
        """Raises: ValueError: none or several."""
        if sum((bool(self.jobs), self.synthetic is not None, self.trace is not None)) != 1:
            raise ValueError("give one of jobs, synthetic, trace")


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server. ``load`` above 0 scales all sizes so that their sum is load × rate × (last − first arrival)."""

    rate_per_s: _Positive = 1.0
    load: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is served. The other keys are those of ``las_mq``; ``first_threshold`` is in the unit of the (scaled) sizes.

    ``sharing`` is how its queues divide the server: by ``weights`` (empty: each weighs ``step`` times what the next
    does), or ``strict``, everything to the first queue that has jobs.
    """

    name: Literal["fifo", "fair", "las", "srpt", "las_mq"] = "las_mq"
    queues: _Count = 10
    first_threshold: float = 100.0
    step: float = 10.0
    weights: tuple[float, ...] = ()
    sharing: Literal["weighted", "strict"] = "weighted"

    def __post_init__(self) -> None:
        """Raises: ValueError: the queues cannot be made."""
        self.multilevel()

    def multilevel(self) -> Multilevel:
        """The master's own declaration of the queues. Raises ValueError on a number that makes no queue."""
        return Multilevel(
            queues=self.queues, first_threshold=self.first_threshold, step=self.step, weights=self.weights
        )


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[workload]``, ``[server]``, ``[policy]``."""

    workload: Workload
    server: Server = Server()
    policy: Policy = Policy()
