"""The keys of a scenario of executors."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from master.placement.executors_named import EXECUTOR_POLICIES
from penstock.model.units import counted

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

    A machine sends a heartbeat at each boundary of its slots of ``slot_s``. The machines form ``phases`` groups whose
    boundaries are evenly spread. The scheduler sees submissions and ends only ``latency_s`` later.

    A disk in excess demand delivers rate ÷ (1 + ``disk_contention`` × (wanted ÷ rate − 1)): with 0 it is shared
    without loss, with 1 a disk with twice the demand delivers half its rate.
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

    ``stages`` are the stages' lengths in slots; empty: one stage. A resource without values is not used.
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
        """Raise ValueError if the lengths of series and stages do not agree."""
        lengths = {len(series) for series in self.series() if series}
        if len(lengths) != 1:
            raise ValueError(f"application {self.name!r}: give each resource that it uses equally many values")
        if self.stages and sum(self.stages) != max(lengths):
            raise ValueError(
                f"application {self.name!r}: its stages have {counted(sum(self.stages), 'slot')}, not {max(lengths)}"
            )

    def series(self) -> tuple[_Series, _Series, _Series, _Series]:
        """Return the series in the order of :data:`master.placement.executors.RESOURCES`."""
        return self.cpu_cores, self.disk_bytes_per_s, self.network_bytes_per_s, self.memory_bytes


class HiBench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Applications whose demand has the statistics of Table II and the peaks of Fig. 2, as §V.A.1 mixes them.

    ``applications`` arrive as a Poisson process; ``new_applications``, which have no earlier runs, arrive at random
    until the last of them. ``cores`` are the settings of §II.B, with a memory limit of 2 GB per core. ``resized``
    changes each input, and with it the runtime, by at most this fraction (§V.E).

    Not in the paper: ``runtimes_s``, one for each input size; ``stages``; and ``pieces``: each level of usage is cut
    into so many pieces, at random places of a profile.
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
    """Applications that are the workloads of a lumos file (relative to the working directory), in turn.

    The prediction is the mean of a workload's repeats; the true demand has the totals of a repeat drawn at random.
    ``prefix`` selects workloads by the beginning of their names.
    """

    file: str
    format: Literal["lumos"] = "lumos"
    prefix: str = ""
    applications: _Count = 120
    mean_interarrival_s: _NotNegative = 25.0
    executors: _Count = 20
    stages: _Count = 6


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the three kinds of workload. A launch takes ``startup_s`` on one core before work begins."""

    applications: tuple[Inline, ...] = ()
    hibench: HiBench | None = None
    trace: Trace | None = None
    startup_s: _NotNegative = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError if none or several are given."""
        if sum((bool(self.applications), self.hibench is not None, self.trace is not None)) != 1:
            raise ValueError("give one of applications, hibench, trace")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The placement policy. The other keys are §III.C's and apply only to policies that follow profiles.

    ``reprovisioning`` begins when a stage has taken ``rho`` times as long as predicted. ``rescheduling`` (§III.D) helps
    an executor whose machine has too little for reprovisioning.
    """

    name: PolicyName = "minfrag"
    reprovisioning: bool = True
    rho: Annotated[float, msgspec.Meta(ge=1)] = 1.1
    rescheduling: bool = True


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prediction errors: true demand is predicted demand × exp(N(0, error)), drawn per application and resource.

    ``time`` is the error of an application's runtime at full speed. Table IV has the errors of recurring applications
    (medians: 0.003, 0.029, 0.042, 0.056 and, for time, 0.026). ``new`` is the error of all four resources for
    applications without earlier runs, from Fig. 9a (80 % are within 20 %: 0.2 ÷ 1.28).
    """

    cpu: _NotNegative = 0.0
    disk: _NotNegative = 0.0
    network: _NotNegative = 0.0
    memory: _NotNegative = 0.0
    new: _NotNegative = 0.0
    time: _NotNegative = 0.0


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optional measures. ``alone``: run each application alone, too, for slowdowns; this doubles the run's time."""

    alone: bool = False


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables of a scenario: ``[workload]``, ``[cluster]``, ``[policy]``, ``[prediction]``, ``[measure]``."""

    workload: Workload
    cluster: Cluster = Cluster()
    policy: Policy = Policy()
    prediction: Prediction = Prediction()
    measure: Measure = Measure()
    timeline_step_s: _Positive = 60.0
