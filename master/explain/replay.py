"""Replay of one round over a recorded state, in the order of its decisions."""

from __future__ import annotations

import math
from typing import Any

from master.explain.recording import Recording
from master.ordering import Ranking
from master.placement import why_not
from master.placement.ursa import Account
from penstock.cli.plain_text import printable
from penstock.model.units import counted


def explained(recording: Recording) -> dict[str, Any]:
    """Return a round's decisions as JSON: the ``order`` of the jobs, ``decisions``, and the tasks ``left``, with
    reasons.

    Each decision has the stage's score, its key (the larger goes first) and, for every node, the task's F or the other
    placement's score: null where the task must not go.
    """
    settings = recording.settings.cluster_settings()
    ranking = recording.ranking()
    order = _order(recording, ranking)
    placement, stages = recording.placement(), recording.stages()
    names = [node.name for node in recording.nodes]
    accounts: list[Account] = []
    placement.place(stages, ranking, account=accounts.append)
    placed = {(account.placement.need.job, account.placement.need.task) for account in accounts}
    left = [
        {
            "job": stage.job,
            "stage": stage.stage,
            "tasks": [need.task for need in waiting],
            "waits": f"task {waiting[0].task}: {why_not(waiting[0], placement)}",
        }
        for stage in stages
        if (waiting := [need for need in stage.needs if (need.job, need.task) not in placed])
    ]
    return {
        "ordering": settings.ordering,
        "placement": settings.placement,
        "order": order,
        "decisions": [_decision(account, names) for account in accounts],
        "left": left,
        "not_admitted": [job.job for job in recording.jobs if not job.admitted and job.stages],
    }


def _order(recording: Recording, ranking: Ranking) -> list[dict[str, Any]]:
    names = {job.job: job.name for job in recording.jobs}
    return [
        {
            "job": job,
            "name": names[job],
            "why": ranking.why(job),
            "room_containers": room if math.isfinite(room := ranking.room(job)) else None,
        }
        for job in ranking.order()
    ]


def _decision(account: Account, names: list[str]) -> dict[str, Any]:
    placement = account.placement
    return {
        "job": placement.need.job,
        "stage": placement.stage.stage,
        "task": placement.need.task,
        "node": names[placement.worker],
        "stage_score": account.score,
        "whole": account.whole,
        "key": list(account.key),
        "why": placement.why,
        "fit": {
            name: (fit if math.isfinite(fit) else None) for name, fit in zip(names, account.fit.tolist(), strict=True)
        },
    }


def text(said: dict[str, Any]) -> str:
    """Return the replay as text: each task with its three best nodes."""
    lines = [f"Order ({said['ordering']}):" + ("" if said["order"] else " no job")]
    lines += [f"  {i}. {each['job']} {each['name']}: {each['why']}" for i, each in enumerate(said["order"], start=1)]
    stage = None
    for number, decision in enumerate(said["decisions"], start=1):
        if stage != (decision["job"], decision["stage"]):
            stage = (decision["job"], decision["stage"])
            bonus = " + bonus" if decision["whole"] else ""
            lines.append(f"Stage {stage[1]} of {stage[0]}: score {decision['stage_score']:.4g}{bonus}")
        fits = {name: fit for name, fit in decision["fit"].items() if fit is not None}
        ranked = sorted(fits, key=lambda name: -fits[name])[:3]
        shown = ", ".join(f"{name} {fits[name]:.4g}" for name in ranked)
        barred = len(decision["fit"]) - len(fits)
        lines.append(
            f"  {number}. {decision['task']} → {decision['node']}: F {shown}"
            + (f"; {barred} of {counted(len(decision['fit']), 'node')} barred" if barred else "")
        )
    for each in said["left"]:
        left = counted(len(each["tasks"]), "task")
        lines.append(f"Left of stage {each['stage']} of {each['job']}: {left}; {each['waits']}")
    lines += [f"Not admitted: {job}" for job in said["not_admitted"]]
    return "\n".join(map(printable, lines))
