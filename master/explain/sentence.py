"""A job's place and the reason for it in one sentence: in the order of the jobs, and on nodes with another order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from master.core.order import Place
from penstock.model.units import counted, ordinal
from penstock.wire.cluster_api import NodeRanks

#: Number of jobs before a job that are named (the nearest), and of nodes.
_NAMED = 3


def sentence(
    job: str,
    place: Place,
    ordering: str,
    order: Sequence[str],
    nodes: Mapping[str, NodeRanks],
    named: Callable[[str], str] = str,
) -> str:
    """Return the sentence. ``order`` has all jobs, the first first; ``nodes`` are those that reported ranks; ``named``
    returns the display name for a job's id.
    """
    known, before = set(order), order[: place.rank - 1]

    def called(ranked: str) -> str:
        return named(ranked) if ranked in known else f"container {ranked} of no job"

    said = [f"{ordinal(place.rank)} of {place.of} by {ordering}: {place.reason.said}"]
    if before:
        said.append(f"before it {_list([named(each) for each in before])}")
    return f"{'; '.join(said + _elsewhere(job, set(before), nodes, called))}."


def _elsewhere(
    job: str, before: Collection[str], nodes: Mapping[str, NodeRanks], called: Callable[[str], str]
) -> list[str]:
    """Describe the nodes where other containers go before the job, or where jobs before it do not."""
    found: dict[str, list[str]] = {}
    for node, of_all in nodes.items():
        ranks = of_all.beside(job)
        here = [name for name, _ in ranks.jobs]
        if job not in here:
            continue
        rank = here.index(job)
        ahead, behind = here[:rank], here[rank + 1 :]
        if all(name in before for name in ahead) and not any(name in before for name in behind):
            continue
        after = f" after {_list([called(name) for name in ahead])}" if ahead else ""
        found.setdefault(f"it is {ordinal(rank + 1)} of {ranks.of}{after}", []).append(node)
    return [f"on {_list(names)} {said}" for said, names in list(found.items())[:_NAMED]]


def _list(names: Sequence[str]) -> str:
    """Return the names; of many, the last ones and the number of the rest."""
    more = len(names) - _NAMED
    if more > 0:
        return f"{', '.join(names[-_NAMED:])} and {counted(more, 'other')}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
