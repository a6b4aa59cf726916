"""The cluster's nodes: draining (docs/drain.md), ranks of jobs (docs/ranks.md), and a summary of the cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model.work import Name
from penstock.wire.agent_api import Params, Result

#: The most ranked jobs that a node reports; from the fifth on, all have the least weight.
MOST_RANKS = 64
#: The most remaining pieces of work that one answer lists.
MOST_NAMED = 50
NodeNames = Annotated[list[Name], msgspec.Meta(max_length=10_000)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Draining(msgspec.Struct, frozen=True):
    """A node is being drained, by user ``by`` since ``since`` (Unix time)."""

    by: str
    since: float


class Remaining(msgspec.Struct, frozen=True):
    """A piece of work that still runs on a node. ``kind`` is ``command``, ``executor`` or ``task`` (a framework's) if
    the master placed it; ``container`` or ``slots`` if the node's own users and frameworks run it by its agent."""

    kind: str
    id: str
    name: str
    user: str


class DrainNodes(Params, frozen=True):
    """Stop placing work on these nodes (default: this host's) until ``undrain``; repeating it changes nothing. With
    ``stop``, also stop the work that the master placed there, and run it elsewhere. Operators only."""

    nodes: NodeNames = []
    stop: bool = False


class UndrainNodes(Params, frozen=True):
    """Allow new work on these nodes (default: this host's) again. Operators only."""

    nodes: NodeNames = []


class AskDrains(Params, frozen=True):
    """Return the drain state of these nodes (default: this host's). Only operators see the remaining work."""

    nodes: NodeNames = []


class NodeDrain(Result, frozen=True):
    """``state`` is ``draining``, ``drained`` (nothing runs on it any more), ``connected`` (it accepts work), ``away``,
    or ``expected``. ``remaining`` is the known work that still runs, at most 50 pieces of ``count``. ``jobs`` were
    registered there: they go on, and end if the host goes for good."""

    node: str
    state: str
    draining: Draining | None = None
    remaining: list[Remaining] = []
    count: int = 0
    jobs: list[str] = []


class Drains(Result, frozen=True):
    """The nodes in the order of the request."""

    nodes: list[NodeDrain]


class NodeRanks(Params, frozen=True):
    """The ranked jobs of a node, first ones first, as its kernel applies the order: ids, and the total weight of each
    job's containers (``cpu.weight``).

    A container without a job is ranked as a job of its own, by its id. ``of`` is the number of ranked jobs; ``jobs``
    has at most the first 64. ``tenants``: the tenant of each of ``jobs``, whose rank is among those of the same tenant;
    empty: the node is not divided among tenants.
    """

    jobs: Annotated[list[tuple[str, Count]], msgspec.Meta(max_length=MOST_RANKS)] = []
    of: Count = 0
    tenants: Annotated[list[str], msgspec.Meta(max_length=MOST_RANKS)] = []

    def beside(self, job: str) -> NodeRanks:
        """Return the ranks among the jobs of this job's tenant."""
        own = dict(zip((name for name, _ in self.jobs), self.tenants, strict=False))
        if job not in own:
            return self
        jobs = [each for each in self.jobs if own.get(each[0]) == own[job]]
        return NodeRanks(jobs=jobs, of=len(jobs))


class NameTenants(Params, frozen=True):
    """The configured users' tenants, each with its weight; nil: nodes are not divided among tenants. A notification
    right after the answer to ``register`` (none: as nil), and whenever they change."""

    tenants: dict[str, tuple[str, Annotated[float, msgspec.Meta(gt=0)]]] | None


class CommandUse(Params, frozen=True):
    """A command of no job that has ended well: its user, its name or that of its program, and its CPU time."""

    user: str
    name: Name
    cpu_s: Annotated[float, msgspec.Meta(gt=0)]


class ClusterStatus(Params, frozen=True):
    """The master's status document (``GET /status``, docs/master-status.md) cut to a screen's size: at most 500 nodes
    and 200 jobs, jobs of others for operators only; ``more`` has the numbers of ``nodes``, ``jobs`` and
    ``jobs_of_others`` left out. ``preemptions`` are the latest ones among the master's placements."""
