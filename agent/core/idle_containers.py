"""The containers of a job that use next to no processor time beside its others, and their part of the job's weight.

Linux gives what a container leaves of its weight to all others, not to its own job. So an idle container, such as the
manager of a detached job, would take half of the weight from the only one that computes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.core.confinement import UNPROMISED_WEIGHT
from agent.core.records import ContainerRecord
from agent.core.snapshot import ContainerUse

#: An idle container counts a sixteenth: its job keeps 16 of 17 parts, and it still gets on at once when it has to run.
_IDLE_DIVISOR = 16
#: A container is idle if it uses less than this part of what the busiest one of its job uses. An idle JVM or Dask
#: worker uses 1 or 2 % of a core; one that has to run gets a sixteenth of the busiest at least, and so counts in full.
_OF_BUSIEST = 1 / 32
#: … in this many samples in a row, so that containers that pause for a moment cause no writes.
_SAMPLES = 3


class IdleContainers:
    """Counts the samples in a row for which a container has been idle; a new container is not."""

    def __init__(self) -> None:
        self._samples: dict[str, int] = {}
        self._used_s: dict[str, float] = {}

    def sampled(self, jobs: Iterable[Sequence[ContainerRecord]], uses: Mapping[str, ContainerUse]) -> None:
        """Compare the containers of each job. Nothing changes in a job with one container, or that used nothing."""
        samples: dict[str, int] = {}
        for containers in jobs:
            if len(containers) == 1:
                name = containers[0].container
                if name in self._samples:
                    samples[name] = self._samples[name]
                continue
            used_s = {
                record.container: use.cpu_seconds - self._used_s.get(record.container, 0.0)
                for record in containers
                if (use := uses.get(record.container)) is not None
            }
            busiest_s, most_asked = max(used_s.values(), default=0.0), max(map(_asked, containers))
            for record in containers:
                name, before = record.container, self._samples.get(record.container, 0)
                if busiest_s > 0.0 and name in used_s:
                    idle = used_s[name] < busiest_s * _OF_BUSIEST * _asked(record) / most_asked
                    before = before + 1 if idle else 0
                samples[name] = before
        self._samples = samples
        self._used_s = {name: use.cpu_seconds for name, use in uses.items()}

    def part(self, record: ContainerRecord) -> int:
        """Return the container's part in the division of its job's weight: by its ``cpu_weight``, less while idle."""
        idle = self._samples.get(record.container, 0) >= _SAMPLES
        return _asked(record) * (1 if idle else _IDLE_DIVISOR)


def _asked(record: ContainerRecord) -> int:
    return record.limits.cpu_weight or UNPROMISED_WEIGHT
