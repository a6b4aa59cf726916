"""The keys of a scenario of executors."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from master.placement.executors_named import EXECUTOR_POLICIES

#: A machine's capacity, in the order of :data:`master.placement.executors.RESOURCES`.
CAPACITY_KEYS = ("cpu_cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes")

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Series = tuple[_NotNegative, ...]

PolicyName = Literal["minfrag", "trc", "tetris", "tetris2", "capacity", "static", "dynamic", "random_fit"]
assert get_args(PolicyName) == EXECUTOR_POLICIES


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal machines; the defaults are those of §V.A and Fig. 6.

    A machine sends a heartbeat at each boundary of its slots of ``slot_s``; machines do so in ``phases`` groups, evenly
    spread. What was asked for or has ended within the last ``latency_s`` is not known yet.

    A disk of which more is wanted than it has delivers its rate ÷ (1 + ``disk_contention`` × (wanted ÷ rate − 1)):
    with 0 it is shared without loss, with 1 a disk that is wanted twice over delivers half.
    """

    machines: _Count = 35
    cpu_cores: _Positive = 16.0
    disk_bytes_per_s: _Positive = 500e6
    network_bytes_per_s: _Positive = 1.25e9
    memory_bytes: _Positive = 64e9
    slot_s: _Positive = 3.0
    phases: _Count = 3
    disk_contention: _NotNegative = 0.0
    latency_s: _NotNegative = 0.0


class Inline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application of ``[[workload.applications]]``: one value per slot, all series equally long.

    ``stages`` are their lengths in slots; empty: one stage. A resource without values is not used.
    """

    name: str
    at_s: _NotNegative = 0.0
    executors: _Count = 1
    cpu_cores: _Series = ()
    disk_bytes_per_s: _Series = ()
    network_bytes_per_s: _Series = ()
    memory_bytes: _Series = ()
    stages: tuple[_Count, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError: the series do not go together."""
        lengths = {len(series) for series in self.series() if series}
        if len(lengths) != 1:
            raise ValueError(f"application {self.name!r}: give each resource that it uses equally many values")
        if self.stages and sum(self.stages) != max(lengths):
            raise ValueError(f"application {self.name!r}: its stages have {sum(self.stages)} slots, not {max(lengths)}")

    def series(self) -> tuple[_Series, _Series, _Series, _Series]:
        """In the order of :data:`master.placement.executors.RESOURCES`."""
        return self.cpu_cores, self.disk_bytes_per_s, self.network_bytes_per_s, self.memory_bytes


class HiBench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Applications whose demand has the statistics of Table II and the peaks of Fig. 2, as §V.A.1 mixes them.

    ``applications`` arrive as a Poisson process; ``new_applications``, which nobody has seen before, at random until
    the last of them. ``cores`` are the settings of §II.B, each with 2 GB a core as the limit of its memory. ``resized``
    changes each input, and with it the runtime, by at most this fraction (§V.E).

    Not in the paper: ``runtimes_s``, one for each size of input; ``stages``; and ``pieces``: each level of usage comes
    in so many, at random places of a profile.
    """

    applications: _Count = 120
    new_applications: Annotated[int, msgspec.Meta(ge=0)] = 12
    mean_interarrival_s: _NotNegative = 25.0
    executors: _Count = 20
    runtimes_s: tuple[_Positive, ...] = (100.0, 400.0, 1000.0)
    cores: tuple[_Positive, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    stages: _Count = 6
    pieces: _Count = 2
    resized: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workloads of a lumos file (relative to the working directory), in turn; each repeat of one is once the truth.

    ``prefix`` chooses among the workloads by the beginning of their names.
    """

    file: str
    format: Literal["lumos"] = "lumos"
    prefix: str = ""
    applications: _Count = 120
    mean_interarrival_s: _NotNegative = 25.0
    executors: _Count = 20
    stages: _Count = 6


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the three. ``startup_s``: what a launch takes before work begins, on one core."""

    applications: tuple[Inline, ...] = ()
    hibench: HiBench | None = None
    trace: Trace | None = None
    startup_s: _NotNegative = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError: none or several."""
        if sum((bool(self.applications), self.hibench is not None, self.trace is not None)) != 1:
            raise ValueError("give one of applications, hibench, trace")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is placed where. The other keys are §III.C's and count for policies that follow profiles.

    ``reprovisioning`` begins when a stage has taken ``rho`` times as long as predicted; ``rescheduling`` (§III.D) where
    there is too little on the machine for it.
    """

    name: PolicyName = "minfrag"
    reprovisioning: bool = True
    rho: Annotated[float, msgspec.Meta(ge=1)] = 1.1
    rescheduling: bool = True


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far what happens is from what is predicted: per application and resource a factor exp(N(0, error)).

    ``time`` is that of how long an application takes with all that it wants. Table IV has such errors of recurring
    applications (its medians: 0.003, 0.029, 0.042, 0.056 and, of time, 0.026); ``new``, of applications that nobody has
    seen before and of all four resources, is Fig. 9a's (80 % are within 20 %: 0.2 ÷ 1.28).
    """

    cpu: _NotNegative = 0.0
    disk: _NotNegative = 0.0
    network: _NotNegative = 0.0
    memory: _NotNegative = 0.0
    new: _NotNegative = 0.0
    time: _NotNegative = 0.0


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``alone``: let each application run alone, too, for slowdowns (as slow again as the run itself)."""

    alone: bool = False


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[workload]``, ``[cluster]``, ``[policy]``, ``[prediction]``, ``[measure]``."""

    workload: Workload
    cluster: Cluster = Cluster()
    policy: Policy = Policy()
    prediction: Prediction = Prediction()
    measure: Measure = Measure()
    timeline_step_s: _Positive = 60.0
