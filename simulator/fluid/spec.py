"""The keys of a scenario of the fluid model."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from master.ordering.multilevel import Multilevel

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_FromZero = Annotated[int, msgspec.Meta(ge=0)]


class InlineJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of ``[[workload.jobs]]``."""

    size: _Positive
    at_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    name: str = ""
    weight: _Positive = 1.0
    user: str = ""
    application: str = ""
    processes: _FromZero = 0


class Arrivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When synthetic jobs come: ``together`` at 0, ``fixed`` every ``interval_s``, ``poisson`` with that mean."""

    process: Literal["together", "fixed", "poisson"] = "poisson"
    interval_s: _Positive = 1.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large synthetic jobs are. ``shape`` is the exponent of ``pareto``, whose mean exists above 1; of
    ``lognormal`` the standard deviation of the logarithm."""

    distribution: Literal["constant", "exponential", "lognormal", "pareto", "uniform"] = "exponential"
    mean: _Positive = 1.0
    shape: _Positive = 1.5

    def __post_init__(self) -> None:
        """Raises: ValueError: a Pareto distribution without a mean."""
        if self.distribution == "pareto" and self.shape <= 1:
            raise ValueError(f"shape: {self.shape:g} of pareto is not above 1: there is no mean")


class Applications(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What synthetic jobs are runs of: ``count`` applications, the n-th drawn 1/n as often as the first, each of one of
    ``users``. A job's size is drawn, then multiplied by a factor of its application: lognormal, with ``spread`` the
    standard deviation of its logarithm. With 0 the application says nothing of the size.

    ``once`` is the part of jobs that are the only one of their application, without such a factor.
    """

    count: _Count
    users: _Count = 8
    spread: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    once: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs drawn with the scenario's seed. ``weights`` and ``processes`` are drawn from their lists, each
    as likely."""

    jobs: _Count
    arrivals: Arrivals = Arrivals()
    sizes: Sizes = Sizes()
    weights: tuple[_Positive, ...] = (1.0,)
    applications: Applications | None = None
    processes: tuple[_FromZero, ...] = (0,)


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace's file (relative to the working directory).

    ``swim``: the rows are jobs, ``d_over_n`` is what a byte of shuffle counts in a row's size: input + d/n × shuffle +
    output; with ``jobs`` above 0, so many rows in a row, from a place that is drawn with the scenario's seed.

    ``lumos``: ``jobs`` jobs arrive as ``arrivals`` says, each a run of the file that is drawn with the seed; its size
    is the CPU time in core-seconds. They are runs of the ``workload``, which includes how large its input is, or of the
    ``program``, which does not.
    """

    file: str
    format: Literal["swim", "lumos"] = "swim"
    d_over_n: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    jobs: _FromZero = 0
    arrivals: Arrivals = Arrivals()
    application: Literal["workload", "program"] = "workload"

    def __post_init__(self) -> None:
        """Raises: ValueError: no number of jobs to draw."""
        if self.format == "lumos" and not self.jobs:
            raise ValueError("jobs: say how many runs are to be drawn from a lumos trace")


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
    """The server. ``cores`` are those of a ranked policy, together as fast as the server. ``load`` above 0 scales all
    sizes so that their sum is load × rate × (last − first arrival)."""

    rate_per_s: _Positive = 1.0
    cores: _Count = 1
    load: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is served. The other keys are those of ``las_mq``; ``first_threshold`` is in the unit of the (scaled) sizes.

    ``sharing`` is how its queues divide the server: by ``weights`` (empty: each weighs ``step`` times what the next
    does), or ``strict``, everything to the first queue that has jobs.

    ``ranked``: no job has the server for itself, but jobs share its cores by weights, ``ratio`` between neighbours in
    the order, of ``places`` different ones; the order is looked at when a job comes or ends, and each ``look_s``.
    """

    name: Literal["fifo", "fair", "las", "srpt", "las_mq", "gittins"] = "las_mq"
    queues: _Count = 10
    first_threshold: float = 100.0
    step: float = 10.0
    weights: tuple[float, ...] = ()
    sharing: Literal["weighted", "strict"] = "weighted"
    ranked: bool = False
    ratio: Annotated[float, msgspec.Meta(ge=1)] = 16.0
    places: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    look_s: _Positive = 1.0

    def __post_init__(self) -> None:
        """Raises: ValueError: the queues cannot be made."""
        self.multilevel()
        if self.name == "gittins" and not self.ranked:
            raise ValueError("ranked: gittins is simulated in ranks only; set it to true")

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
