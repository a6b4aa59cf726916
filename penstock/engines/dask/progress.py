"""How far a cluster's work is, by its task groups: what orders jobs by remaining work must know it.

The scheduler has the groups, a worker has the connection to its host's agent. So on each host one worker, the one whose
job at the agent all others joined, asks the scheduler twice a second and passes on what it says: of task groups and
their order, where the scheduler has our plugin; else of task prefixes alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.wire.agent_api import StageProgress

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskGroup
    from distributed.worker import Worker

_LOG = logging.getLogger(__name__)
#: The name of the call that the scheduler answers.
CALL = "penstock_progress"
EVERY_S = 0.5
#: Where the metadata of a scheduler says that it answers.
_ANSWERS: tuple[Any, ...] = ("penstock", "answers progress")
#: A task in one of these states has something left to do.
_LEFT: tuple[Any, ...] = ("waiting", "queued", "no-worker", "processing")
#: What a message may name (penstock.wire.agent_api.Progress).
_MOST_STAGES, _LONGEST_NAME = 4096, 128


def stages(groups: Iterable[TaskGroup]) -> list[StageProgress]:
    """Task groups as stages, in the scheduler's order. A group that is done says so until Dask forgets it.

    The input of a group's tasks is what the groups before it have made so far; of what is left, its share.
    """
    told = []
    for group in groups:
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
    return told[-_MOST_STAGES:]


def by_prefix(states: Mapping[str, Mapping[str, int]]) -> list[StageProgress]:
    """What any scheduler says of its task prefixes; what waits for what is not among it."""
    left = ("waiting", "processing")
    return [
        StageProgress(stage=_name(name), tasks=sum(counts.values()), done=sum(counts.values()) - _sum(counts, left))
        for name, counts in states.items()
    ][-_MOST_STAGES:]


def answer_at(scheduler: Scheduler) -> None:
    """Let workers ask this scheduler for its groups."""

    async def progress(comm: object = None) -> list[dict[str, Any]]:
        return [dict(msgspec.to_builtins(stage)) for stage in stages(scheduler.task_groups.values())]

    scheduler.handlers[CALL] = progress
    scheduler.set_metadata(keys=list(_ANSWERS), value=True)


class Reporter:
    """Asks the scheduler and passes on what it says, as long as it can be asked."""

    def __init__(self, worker: Worker, tell: Callable[[list[StageProgress]], object]) -> None:
        """In the worker's event loop."""
        self._scheduler = worker.scheduler
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._report())

    def stop(self) -> None:
        """No more of it; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _report(self) -> None:
        before: list[StageProgress] = []
        try:
            while True:
                said = await self._ask()
                if said != before:
                    self._tell(said)
                    before = said
                await asyncio.sleep(EVERY_S)
        except Exception as error:  # noqa: BLE001 - the root of a task, and work goes on without it
            _LOG.info("how far the job is cannot be told: %s", error)

    async def _ask(self) -> list[StageProgress]:
        if await self._scheduler.get_metadata(keys=list(_ANSWERS), default=False):
            return msgspec.convert(await getattr(self._scheduler, CALL)(), list[StageProgress])
        return by_prefix(await self._scheduler.get_task_prefix_states())


def _sum(counts: Mapping[str, int], states: Iterable[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


def _name(name: object) -> str:
    return str(name)[:_LONGEST_NAME] or "-"
