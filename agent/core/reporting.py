"""The node's reports to the master: its load, and the changes since the last report."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.attained_service import AttainedService
from agent.core.command_sizes import CommandSizes
from agent.core.draining import Drain
from agent.core.executors import Executors
from agent.core.node_resources import NodeResources
from agent.core.ranks import Ranks
from agent.core.slack import Slack
from agent.core.tasks import HeldTasks
from agent.queues import MonotaskQueues
from penstock.model import KindAmounts
from penstock.wire.cluster_api import MOST_RANKS, NodeRanks
from penstock.wire.master_api import Heartbeat, Load


class RankReport:
    """The last report of this node's order of jobs: the master reads it to explain to users why their jobs wait."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._reported = NodeRanks()
        # Whether the master reads ranks, and their tenants; unknown until it answers our registration.
        self.read = self.tenants_read = True

    def changed(self) -> NodeRanks | None:
        """Return the order if it has changed since the last report."""
        if not self.read:
            return None
        standings = self._ranks.standings
        first = sorted(standings.values(), key=lambda each: each.rank)[:MOST_RANKS]
        named = self.tenants_read and any(each.tenant for each in first)
        ranks = NodeRanks(
            jobs=[(each.job, each.weight) for each in first],
            of=len(standings),
            tenants=[each.tenant for each in first] if named else [],
        )
        if ranks == self._reported:
            return None
        self._reported = ranks
        return ranks

    def link_opens(self) -> None:
        """Start over on a new connection: the master may be an older one that does not read ranks."""
        self._reported, self.read, self.tenants_read = NodeRanks(), False, False


@dataclass(eq=False, slots=True)
class Reports:
    """Makes heartbeats. Attained service, executors and ranks keep their last reports."""

    _queues: MonotaskQueues
    _held: HeldTasks
    _attained: AttainedService
    _command_sizes: CommandSizes
    _executors: Executors
    _rank_report: RankReport
    _resources: NodeResources
    _slack: Slack
    _drain: Drain

    def load(self, now: float) -> Load:
        """Return the heartbeat's load (Ursa §4.2.2, UBIS §IV.A), with the jobs that changed since the last one."""
        ledger = self._resources.ledger(now)
        claimed, waiting_bytes = self._slack.claimed()
        in_use = self._slack.in_use(ledger) + claimed
        cpu, *_ = self._queues.resources()
        pending, coming = self._queues.pending(), 0
        for held in self._held:
            if held.request.command is None:  # a command's work is in the queue until it is done
                pending = pending + held.remaining
                coming += held.takes_core
        return Load(
            rates=self._queues.rates(now),
            pending=pending,
            idle=self._queues.idle().minus(KindAmounts(cpu=coming)),
            used_cores=in_use.cpu,
            used_memory_bytes=ledger.used_memory_bytes + waiting_bytes,
            disk_busy=in_use.disk,
            network_busy=in_use.network,
            opportunistic_queue_free=self._slack.queue_free(),
            most_commands=cpu.most_commands if self._attained.most_commands_read else 0,
            promised_cores=ledger.promised_cores,
            promised_memory_bytes=ledger.promised_memory_bytes,
            jobs=self._attained.report(now),
            t_alloc=self._slack.moved_t_alloc,
            availability=self._executors.availability(ledger, now),
            ranks=self._rank_report.changed(),
        )

    def heartbeat(self, decided: int, now: float) -> Heartbeat:
        """Return the load, and the use of executors and of ended commands that the master has not received.

        ``decided`` is the number of the last decisions carried out.
        """
        load = self.load(now)
        own, commands = self._drain.own_work(), self._command_sizes.report()
        return Heartbeat(load, decided, executors=self._executors.report(load), own=own, commands=commands)

    def link_opens(self) -> None:
        """Start over on a new connection to the master, which has lost all reports."""
        self._attained.link_opens()
        self._command_sizes.read = False
        self._rank_report.link_opens()
        self._executors.link_opens()
