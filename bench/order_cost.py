"""The cost of ``gittins`` for a master: ranking 1,000 jobs of 640 kinds, and learning the size of one that ended.

Times are of the processor, the least and the median of several. The peer is ``las_mq`` with the same jobs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from random import Random

from master.ordering.gittins import Gittins
from master.ordering.las_mq import LasMq
from master.ordering.policy import ClusterView, JobView
from master.ordering.sizes import JobSizes
from penstock.model.resource_vector import SlotVector

JOBS, USERS, APPLICATIONS, TIMES = 1_000, 32, 20, 15
#: Jobs of each kind that have ended.
ENDED = 5


def kinds(draw: Random) -> list[tuple[str, str, float]]:
    """User, application and typical size of each kind, in container-seconds."""
    return [
        (f"user-{user}", f"application-{application}", draw.lognormvariate(3.0, 2.0))
        for user in range(USERS)
        for application in range(APPLICATIONS)
    ]


def cpu_ms(call: Callable[[], object]) -> list[float]:
    """Processor time of each call, in milliseconds."""
    took = []
    for _ in range(TIMES):
        began = time.process_time_ns()
        call()
        took.append((time.process_time_ns() - began) / 1e6)
    return took


def main() -> int:
    """Print the table."""
    draw = Random(1)
    known, sizes = kinds(draw), JobSizes()
    for user, application, size in known * ENDED:
        sizes.learn(user, application, size * draw.lognormvariate(0.0, 0.2))
    jobs = []
    for number in range(JOBS):
        user, application, size = known[number % len(known)]
        service = size * draw.random()
        jobs.append(JobView(f"job-{number}", sequence=number, service=service, user=user, application=application))
    cluster = ClusterView(capacity=SlotVector(64.0, 16.0, 32.0, 2.0**38), containers=64.0)
    gittins, las_mq = Gittins(sizes), LasMq()
    print(f"{JOBS} jobs of {len(known)} kinds, ms of a processor{'least':>12}{'median':>9}")
    rows = {
        "gittins ranks them": cpu_ms(lambda: gittins.rank(jobs, cluster)),
        "las_mq ranks them": cpu_ms(lambda: las_mq.rank(jobs, cluster)),
        "the size of one is learnt": cpu_ms(lambda: sizes.learn(known[0][0], known[0][1], known[0][2])),
    }
    for name, took in rows.items():
        print(f"{name:<42}{min(took):>12.3f}{statistics.median(took):>9.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
