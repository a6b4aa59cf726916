"""The orderings by name, and the settings that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from master.ordering.drf import DominantResourceFairness
from master.ordering.ejf import EarliestJobFirst
from master.ordering.fair import Fair
from master.ordering.fifo import FirstInFirstOut
from master.ordering.gittins import Gittins
from master.ordering.las import LeastAttainedService
from master.ordering.las_mq import Inside, LasMq
from master.ordering.multilevel import Multilevel
from master.ordering.policy import Ordering
from master.ordering.sizes import JobSizes
from master.ordering.srjf import SmallestRemainingJobFirst
from master.ordering.tenants import Tenants


@dataclass(frozen=True, slots=True)
class OrderingSettings:
    """The settings of the orderings. ``name`` selects one; each other setting belongs to the ordering its name begins
    with.

    ``weights`` are of tenants by their path (``research/eve``). ``by_tenant``: tenants are served by their shares, and
    the ordering decides among the jobs of each; ``drf`` and ``fair`` have shares of their own.
    """

    name: str = "ejf"
    ejf_weight: float = 1.0
    srjf_weight: float = 100.0
    las_quantum_s: float = 1.0
    las_mq: Multilevel = field(default_factory=Multilevel)
    las_mq_stage_aware: bool = True
    las_mq_inside: Inside = "demand"
    weights: Mapping[str, float] = field(default_factory=dict)
    by_tenant: bool = False


_MAKERS: dict[str, Callable[[OrderingSettings, JobSizes], Ordering]] = {
    "fifo": lambda settings, _: FirstInFirstOut(),
    "fair": lambda settings, _: Fair(),
    "drf": lambda settings, _: DominantResourceFairness(settings.weights),
    "las": lambda settings, _: LeastAttainedService(settings.las_quantum_s),
    "ejf": lambda settings, _: EarliestJobFirst(settings.ejf_weight),
    "srjf": lambda settings, _: SmallestRemainingJobFirst(settings.srjf_weight),
    "las_mq": lambda settings, _: LasMq(
        settings.las_mq, stage_aware=settings.las_mq_stage_aware, inside=settings.las_mq_inside
    ),
    "gittins": lambda _, sizes: Gittins(sizes),
}
#: Orderings with shares of their own, of tenants or of jobs.
_SHARING = frozenset({"drf", "fair"})
#: Every ordering that can be chosen.
NAMES: tuple[str, ...] = tuple(_MAKERS)


def ordering_of(settings: OrderingSettings, sizes: JobSizes | None = None) -> Ordering:
    """Return a new ordering. ``sizes`` are those of ended jobs, for an ordering that learns; None: nothing is known.

    Raises: ValueError: no ordering has this name.
    """
    maker = _MAKERS.get(settings.name)
    if maker is None:
        raise ValueError(f"ordering: {settings.name!r} is none of {', '.join(NAMES)}")
    known = JobSizes() if sizes is None else sizes
    if settings.by_tenant and settings.name not in _SHARING:
        return Tenants(lambda: maker(settings, known), settings.weights)
    return maker(settings, known)
