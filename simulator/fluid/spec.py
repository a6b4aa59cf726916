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
    """The arrivals of synthetic jobs: ``together`` at 0, ``fixed`` every ``interval_s``, ``poisson`` with that mean."""

    process: Literal["together", "fixed", "poisson"] = "poisson"
    interval_s: _Positive = 1.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of synthetic jobs. ``shape`` is the exponent of ``pareto``, whose mean exists only above 1.

    For ``lognormal``, ``shape`` is the standard deviation of the logarithm.
    """

    distribution: Literal["constant", "exponential", "lognormal", "pareto", "uniform"] = "exponential"
    mean: _Positive = 1.0
    shape: _Positive = 1.5

    def __post_init__(self) -> None:
        """Raise ValueError for a Pareto distribution without a mean."""
        if self.distribution == "pareto" and self.shape <= 1:
            raise ValueError(f"shape: {self.shape:g} of pareto is not above 1: there is no mean")


class Applications(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``count`` applications of synthetic jobs, each of one of ``users``.

    The n-th application is drawn 1/n as often as the first. A job's size is drawn, then multiplied by a factor of its
    application. The factor is lognormal, with ``spread`` the standard deviation of its logarithm. With 0 the size does
    not depend on the application.

    ``once`` is the fraction of jobs that are the only one of their application; they have no such factor.
    """

    count: _Count
    users: _Count = 8
    spread: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    once: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class JobKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of synthetic jobs with sizes of its own. ``name`` is the application of its jobs.

    A job is of a kind with a probability proportional to ``share``. Its size is from ``smallest`` to ``largest``, and
    the logarithm of the size is uniform between them. ``users`` and ``processes`` are drawn from their lists, each as
    likely.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    smallest: _Positive
    largest: _Positive
    share: _Positive = 1.0
    users: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("",)
    processes: Annotated[tuple[_FromZero, ...], msgspec.Meta(min_length=1)] = (0,)

    def __post_init__(self) -> None:
        """Raises: ValueError: the sizes have no range."""
        if self.largest < self.smallest:
            raise ValueError(f"largest: {self.largest:g} is below smallest, {self.smallest:g}")


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs drawn with the scenario's seed. ``weights`` and ``processes`` are drawn uniformly from their lists.

    With ``kinds`` each job is of one of these kinds, which replace ``sizes``, ``applications`` and ``processes``.
    """

    jobs: _Count
    arrivals: Arrivals = Arrivals()
    sizes: Sizes = Sizes()
    weights: tuple[_Positive, ...] = (1.0,)
    applications: Applications | None = None
    processes: tuple[_FromZero, ...] = (0,)
    kinds: tuple[JobKind, ...] = ()

    def __post_init__(self) -> None:
        """Raises: ValueError: something is given twice, for all jobs and by kind, or two kinds have one name."""
        if not self.kinds:
            return
        if self.sizes != Sizes() or self.applications is not None or self.processes != (0,):
            raise ValueError("kinds: leave out sizes, applications and processes; each kind has its own")
        if len({kind.name for kind in self.kinds}) < len(self.kinds):
            raise ValueError("kinds: give each kind a name of its own")


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace's file (relative to the working directory).

    ``swim``: the rows are jobs. A row's size is input + d/n × shuffle + output, with ``d_over_n`` for d/n. If ``jobs``
    is above 0, that many consecutive rows are used, from a place drawn with the scenario's seed.

    ``lumos``: ``jobs`` jobs arrive according to ``arrivals``. Each is a run of the file, drawn with the seed; its size
    is the run's CPU time in core-seconds. A job's application is the ``workload``, which includes the size of the
    input, or the ``program``, which does not.
    """

    file: str
    format: Literal["swim", "lumos"] = "swim"
    d_over_n: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    jobs: _FromZero = 0
    arrivals: Arrivals = Arrivals()
    application: Literal["workload", "program"] = "workload"

    def __post_init__(self) -> None:
        """Raise ValueError if a lumos trace has no number of jobs to draw."""
        if self.format == "lumos" and not self.jobs:
            raise ValueError("jobs: say how many runs are to be drawn from a lumos trace")


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the three kinds of workload."""

    jobs: tuple[InlineJob, ...] = ()
    synthetic: Synthetic | None = None
    trace: Trace | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if none or several are given."""
        if sum((bool(self.jobs), self.synthetic is not None, self.trace is not None)) != 1:
            raise ValueError("give one of jobs, synthetic, trace")


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server. ``cores`` apply to a ranked policy; together they are as fast as the server.

    ``load`` above 0 scales all sizes so that their sum is load × rate × (last − first arrival).
    """

    rate_per_s: _Positive = 1.0
    cores: _Count = 1
    load: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy. The first keys are those of ``las_mq``; ``first_threshold`` is in the unit of the (scaled) sizes.

    ``sharing`` is how its queues divide the server: by ``weights`` (empty: each queue weighs ``step`` times the next),
    or ``strict``, everything to the first queue that has jobs.

    ``ranked``: jobs share the server's cores by weights. There are ``places`` different weights, with ``ratio`` between
    neighbours in the order. The order is computed when a job arrives or ends, and every ``look_s``.
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
        """Raise ValueError if the queues are invalid, or for ``gittins`` without ranks."""
        self.multilevel()
        if self.name == "gittins" and not self.ranked:
            raise ValueError("ranked: gittins is simulated in ranks only; set it to true")

    def multilevel(self) -> Multilevel:
        """Return the master's own declaration of the queues. Raises ValueError on an invalid number."""
        return Multilevel(
            queues=self.queues, first_threshold=self.first_threshold, step=self.step, weights=self.weights
        )


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables of a scenario: ``[workload]``, ``[server]``, ``[policy]``."""

    workload: Workload
    server: Server = Server()
    policy: Policy = Policy()
