"""Why a job waits: its place in the order with the numbers, and the resources it lacks on how many nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET, UnsetType, structs

from master.core import Cluster
from master.core.executors import Executors
from master.core.job import Job
from master.core.listing import MOST_BEFORE, Listing, on_nodes
from master.core.node import Node
from master.core.order import Order, Place
from master.core.settings import CurrentSettings
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.user_quotas import UserQuotas
from master.explain.sentence import sentence
from master.http_documents import EndedJobExplained, Explanation, JobExplained, StageExplained, TaskPlaced
from master.opportunistic import why_not as no_slack
from master.placement import why_not

#: Number of placed tasks listed: the latest.
MOST_TOLD = 100


class UnknownJobError(Exception):
    """The job is unknown; the message lists known jobs."""


@dataclass(frozen=True, slots=True)
class JobExplainer:
    """Explains jobs by the owners of their order, their placement and their limits."""

    _settings: CurrentSettings
    _nodes: Mapping[str, Node]
    _jobs: Mapping[str, Job]
    _order: Order
    _listing: Listing
    _snapshots: Snapshots
    _executors: Executors
    _user_quotas: UserQuotas

    @classmethod
    def of(cls, cluster: Cluster) -> JobExplainer:
        """Return the explainer of a cluster's jobs."""
        return cls(
            cluster.current_settings, cluster.nodes, cluster.jobs, cluster.order, cluster.listing, cluster.snapshots,
            cluster.executors, cluster.user_quotas,
        )  # fmt: skip

    def document(self, job: str, now: float) -> Explanation:
        """Return the document of ``GET /explain?job=…``.

        Raises: UnknownJobError: the master knows no job of this id.
        """
        known = self._jobs.get(job)
        if known is None or not known.described:
            ids = sorted(name for name, each in self._jobs.items() if each.described)
            some = f"{', '.join(ids[:10])}{', …' if len(ids) > 10 else ''}" if ids else "none"
            raise UnknownJobError(f"no job {job[:128]!r}; known jobs: {some}")
        settings, nodes = self._settings.current, self._nodes.values()
        ranking, picture = self._order.look(now), self._snapshots.take()
        order, room = ranking.order(), ranking.room(job)
        place = Place(order.index(job) + 1, len(order), ranking.reason(job))
        ranks = {node.name: node.ranks for node in nodes if node.ranks is not None}

        def named(other: str) -> str:
            """Return another job's id, with its name if it is of the same user."""
            its = self._jobs.get(other)
            return f"{other} ({its.name})" if its is not None and its.user == known.user else other

        return Explanation(
            job=job,
            name=known.name,
            ordering=settings.ordering,
            placement=settings.placement,
            sentence=sentence(job, place, settings.ordering, order, ranks, named),
            place=place.rank,
            of=place.of,
            before_it=list(order[: place.rank - 1][-MOST_BEFORE:]),
            reason=place.reason.said,
            queue=place.reason.queue,
            expected_left_s=place.reason.left_s,
            known_jobs=place.reason.known_jobs,
            ranks=on_nodes(known, nodes),
            why=ranking.why(job),
            containers=max(sum(known.placed()), known.work.slots),
            room_containers=room if math.isfinite(room) else None,
            priority=known.priority,
            service_container_s=known.work.service_s,
            admitted=known.admitted,
            waits=known.waits,
            nodes=len(picture.placement()),
            stages=self._stages(known, picture),
        )

    def _stages(self, job: Job, picture: RoundSnapshot) -> list[StageExplained]:
        """Return why the first ready task of each stage waits, on regular resources and on slack."""
        placement, limits = picture.placement(), self._user_quotas.in_round()
        stages = []
        for (stage, opportunistic), tasks in job.ready.items():
            first = next(iter(tasks.values()))
            waits = why() if (why := self._executors.waits.get(job.job)) is not None else ""
            lacks: dict[str, int] | UnsetType = UNSET
            slack_lacks: dict[str, int] | UnsetType = UNSET
            if opportunistic and not first.elastic:
                demand, slack = picture.slack_demand(first), picture.slack()
                slack_lacks, waits = slack.lacks(demand), f"task {first.name}: {no_slack(demand, slack)}"
            if opportunistic != "only" and not first.elastic:
                need = picture.need(first)
                lacks = placement.lacks(need) if len(placement) else {}
                over = limits.why_not(job.user, self._user_quotas.amounts_of(job, first)) if limits is not None else ""
                waits = f"task {first.name}: {over or why_not(need, placement)}"
            stages.append(
                StageExplained(
                    stage=stage,
                    opportunistic=opportunistic,
                    ready=len(tasks),
                    waits=waits,
                    lacks=lacks,
                    slack_lacks=slack_lacks,
                )
            )
        return stages

    def for_owner(self, job: str, now: float) -> JobExplained | EndedJobExplained:
        """Return the explanation for the job's owner, which names its tasks.

        Raises: UnknownJobError: the master knows no job of this id.
        """
        known = self._jobs.get(job)
        if known is None and (view := self._listing.find(job)) is not None:
            return EndedJobExplained(job=job, name=view.name, ended=view)
        explanation = self.document(job, now)
        assert known is not None
        placed = [task for task in known.tasks.values() if task.node]
        return JobExplained(
            **structs.asdict(explanation),
            cancelled_by=known.cancelled_by,
            placed=dict(sorted(Counter(task.node for task in placed).items())),
            last_placed=[
                TaskPlaced(
                    task=task.name,
                    stage=task.stage,
                    node=task.node,
                    opportunistic=task.on_slack,
                    why=task.why,
                    losses=task.losses,
                    refused_by=sorted(task.refusals),
                )
                for task in placed[-MOST_TOLD:]
            ],
        )
