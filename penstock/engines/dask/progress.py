"""The progress of a cluster's work, by task groups, for orders of jobs by remaining work.

The scheduler has the groups, a worker has the connection to its host's agent. Therefore one worker on each host, whose
job at the agent all others joined, asks the scheduler once a second and reports to the agent: task groups in their
order, if the scheduler has our plugin; otherwise only task prefixes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.container import MOST_STAGES
from penstock.model.work import LONGEST_NAME
from penstock.wire.agent_api import StageProgress

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskGroup

    from penstock.engines.dask.jobs import ClusterGate

_LOG = logging.getLogger(__name__)
#: The name of the scheduler's RPC handler.
CALL = "penstock_progress"
EVERY_S = 1.0
#: An unchanged report is repeated after this time (seconds), for an agent that was restarted meanwhile.
AGAIN_S = 10.0
#: The key in the scheduler's metadata that announces the handler.
_ANSWERS: tuple[Any, ...] = ("penstock", "answers progress")
#: Marks the names of task groups whose tasks the master places and sees end (``penstock.engines.dask_dataset``).
PLACED = "0placed"
#: States of unfinished tasks.
_LEFT: tuple[Any, ...] = ("waiting", "queued", "no-worker", "processing")


def stages(groups: Iterable[TaskGroup]) -> list[StageProgress]:
    """Return task groups as stages, in the scheduler's order. A done group is included until Dask forgets it.

    Groups placed by another job are excluded, as that job reports them. The input of a group's remaining tasks is their
    share of the data that its dependencies have made so far.
    """
    told = []
    for group in groups:
        if PLACED in str(group.name):
            continue
        tasks = sum(group.states.values())
        left = sum(group.states.get(state, 0) for state in _LEFT)
        before = list(group.dependencies)
        made = sum(max(0, each.nbytes_total) for each in before)
        told.append(
            StageProgress(
                stage=_name(group.name),
                tasks=tasks,
                done=tasks - left,
                after=[_name(each.name) for each in before],
                input_bytes=made * left // tasks if tasks else 0,
            )
        )
    return told[-MOST_STAGES:]


def by_prefix(states: Mapping[str, Mapping[str, int]]) -> list[StageProgress]:
    """Return stages from any scheduler's task prefixes, without dependencies."""
    left = ("waiting", "processing")
    return [
        StageProgress(
            stage=_name(name),
            tasks=sum(counts.values()),
            done=sum(count for state, count in counts.items() if state not in left),
        )
        for name, counts in states.items()
    ][-MOST_STAGES:]


def answer_at(scheduler: Scheduler) -> None:
    """Let workers ask this scheduler for its groups."""

    async def progress(comm: object = None) -> list[dict[str, Any]]:
        return [dict(msgspec.to_builtins(stage)) for stage in stages(scheduler.task_groups.values())]

    scheduler.handlers[CALL] = progress
    scheduler.set_metadata(keys=list(_ANSWERS), value=True)


class Reporter:
    """Asks the scheduler and reports to the agent while its process is the job's reporter."""

    def __init__(self, gate: ClusterGate) -> None:
        """Start reporting; call it in the workers' event loop."""
        self.gate = gate
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._report(), name="penstock-progress")

    def stop(self) -> None:
        """Stop reporting, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _report(self) -> None:
        before: list[StageProgress] = []
        told_at, troubled = -math.inf, False
        while True:
            if self.gate.speaks:
                try:
                    said = await self._ask()
                    if said != before or self._loop.time() - told_at > AGAIN_S:
                        self.gate.progress(said)
                        before, told_at = said, self._loop.time()
                    troubled = False
                except Exception as error:  # noqa: BLE001 - the outermost frame of a task: work and reports must go on
                    if not troubled:
                        _LOG.warning(
                            "the job's progress cannot be reported for now: %s: %s", type(error).__name__, error
                        )
                    troubled = True
            await asyncio.sleep(EVERY_S)

    async def _ask(self) -> list[StageProgress]:
        scheduler = self.gate.workers[0].scheduler
        if await scheduler.get_metadata(keys=list(_ANSWERS), default=False):
            return msgspec.convert(await getattr(scheduler, CALL)(), list[StageProgress])
        return by_prefix(await scheduler.get_task_prefix_states())


def _name(name: object) -> str:
    return str(name)[:LONGEST_NAME] or "-"
