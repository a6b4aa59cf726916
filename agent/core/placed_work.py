"""The master's work on this node: it is checked against the node's own state, held, started and promoted.

Opportunistic commands may wait here for slack, which is the future work of UBIS (§VII): "queuing opportunistic
containers allows the nodes to execute tasks as soon as they finish one".
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import draining, tasks
from agent.core.containers import ROOM, Containers
from agent.core.draining import Drain
from agent.core.elasticity import Elasticity
from agent.core.events import JobIntroduced, Recovered
from agent.core.executors import Executors
from agent.core.instructions import Explain, Instruction, Record
from agent.core.job_lifecycle import JobLifecycle
from agent.core.membership import Membership
from agent.core.node_resources import NodeResources
from agent.core.preemption_actions import PreemptionActions
from agent.core.ranks import Ranks
from agent.core.records import ContainerState, HeldTask, journal_key
from agent.core.settings import NodeSettings
from agent.core.slack import Slack
from agent.core.slot_grants import SlotGrants
from agent.queues import MonotaskQueues
from penstock.wire.master_api import Assign


@dataclass(eq=False, slots=True)
class PlacedWork:
    """Holds, starts, promotes and restores the tasks that the master placed here."""

    settings: NodeSettings
    _members: Membership
    _queues: MonotaskQueues
    _held: tasks.HeldTasks
    _containers: Containers
    _ranks: Ranks
    _elasticity: Elasticity
    _executors: Executors
    _resources: NodeResources
    _slack: Slack
    _preemption: PreemptionActions
    _slot_grants: SlotGrants
    _lifecycle: JobLifecycle
    _drain: Drain

    # ------------------------------------------------------------ placement

    def assign(self, decision: Assign, out: list[Instruction], at: float, now: float) -> str:
        """Hold the task's memory and queue its command, if any; refuse a task that would break a promise.

        ``at`` is Unix time.
        """
        request = decision.request
        if (known := self._held.by_key.get((decision.job, request.task))) is not None:
            return self._stops(known)  # "": repeated after a lost connection, it is here already
        if self._drain.draining is not None:
            return draining.REFUSAL
        why = self._refuse(decision, now)
        may_wait = decision.opportunistic and request.command is not None
        waits = bool(why) and may_wait and self._slack.queue_free() > 0
        if why and not waits:
            return why
        if decision.job not in self._members.jobs:
            if decision.origin == self.settings.node:
                return f"job {decision.job!r} has ended"
            introduced = JobIntroduced(decision.job, decision.job, decision.user, decision.priority)
            out += self._lifecycle.welcome(introduced, now)
        self._queues.set_priority(decision.job, decision.priority, now)
        out += self._slot_grants.recalls()
        held = self._held.hold(decision)
        if request.executor is not None and not decision.opportunistic:
            out += self._start_executor(held, at, now)
        elif decision.opportunistic and request.command is not None and not waits:
            out += self._slot_grants.start(held, now)
        elif request.command is not None:
            out += self._slot_grants.queue(held, now)
        if not held.container:  # a command that starts is recorded with its container
            out.append(Record(tasks.ROOM, journal_key(held.job, held.task), held))
        return ""

    def _stops(self, held: HeldTask) -> str:
        """Return that a task is being stopped, or "". Its end is to come, and a later run would get it for its own."""
        record = self._containers.live.get(held.container)
        stops = record is not None and record.state is ContainerState.STOPPING
        return "it is still being stopped here" if stops else ""

    def _refuse(self, decision: Assign, now: float) -> str:
        """Return why the task would break a promise, or ""."""
        request, command, ledger = decision.request, decision.request.command, self._resources.ledger(now)
        if not decision.opportunistic and request.executor is not None and decision.profile is not None:
            return self._executors.refuse(request, decision.profile, ledger, now)
        cores, network = (command.cpu_cores, command.network_bytes_per_s) if command is not None else (0.0, 0)
        if decision.opportunistic:
            return ledger.refuse_opportunistic(cores, request.memory_bytes, self._slack.t_alloc)
        why = ledger.refuse_regular(cores, request.memory_bytes)
        return why or ledger.refuse_network(network, self.settings.link_bytes_per_s)

    def _start_executor(self, held: HeldTask, at: float, now: float) -> list[Instruction]:
        """Start an executor at once; its limits follow its profile, if it has one, whose slots begin now."""
        instructions = self._slot_grants.start(held, now)
        record = self._containers.live[held.container]
        if held.profile is not None:
            record.follow(held.profile, at)
            self._executors.follow(held, record, held.profile, now)
            instructions += record.resize(self._elasticity.limits(record, now))
        return instructions

    # ------------------------------------------------------------ promotion (UBIS §IV.D)

    def promote(self, held: HeldTask, out: list[Instruction], at: float, now: float) -> str:
        """Make opportunistic work regular in place, if its promise can be kept; return why not, or ""."""
        if not held.opportunistic:
            return ""
        if why := self._stops(held):
            return why
        command = held.request.command
        ledger, link = self._resources.ledger(now), self.settings.link_bytes_per_s
        why = ledger.refuse_regular(command.cpu_cores if command else 0.0, held.request.memory_bytes)
        why = why or ledger.refuse_network(command.network_bytes_per_s if command else 0, link)
        if not why and held.slot is not None and self._queues.idle().of(held.request.command_kind) < 1:
            why = f"{held.request.command_kind}: no slot is free"
        if why:
            return why
        waited = self._held.promote(held)
        out.append(Record(tasks.ROOM, journal_key(held.job, held.task), held))
        if waited and held.request.executor is not None:
            out += self._start_executor(held, at, now)
        elif waited:
            out += self._slot_grants.queue(held, now)
        elif held.container:
            out += self._promote_container(held, now)
        return ""

    def _promote_container(self, held: HeldTask, now: float) -> list[Instruction]:
        """Move a command that runs to the regular class, and give it a slot."""
        container = held.container
        record = self._containers.live.get(container)
        if record is None:
            return []
        if held.slot is not None:
            self._slot_grants.give_slot(held, now)
        self._preemption.policy.drop(container)
        return [
            *self._containers.promote(record, held.slot),
            self._ranks.reclassed(record),
            Record(ROOM, container, record),
            Explain("promoted", {"container": container}),
            *self._containers.watch(),
        ]

    # ------------------------------------------------------------ commands that wait for slack

    def start_waiting(self, now: float) -> list[Instruction]:
        """Start the waiting commands that fit now, in order."""
        instructions: list[Instruction] = []
        for key in list(self._held.waiting):
            held = self._held.by_key[key]
            if self._slack.refuse(held.cores, held.request.memory_bytes, now):
                break
            instructions += self._slot_grants.start(held, now)
        return instructions

    def sampled(self, now: float) -> list[Instruction]:
        """Start the commands that fit now; hand back to the master those that have waited too long."""
        wait_s = self.settings.opportunistic_wait_s
        instructions = self.start_waiting(now)
        for key, since in list(self._held.waiting.items()):
            if now - since >= wait_s:
                reason = f"it has waited {wait_s:g} s for slack"
                instructions += self._lifecycle.hand_back(self._held.by_key[key], reason, now)
        return instructions

    # ------------------------------------------------------------ after a restart of the agent

    def recovered(self, event: Recovered, now: float) -> list[Instruction]:
        """Hold the tasks' memory again; commands wait for their slot again, or hold it if they run."""
        instructions: list[Instruction] = []
        for held in event.tasks:
            if held.ended is not None:
                instructions += self._held.command_ended(held, held.ended)
                continue
            alive = held.container in self._containers.live
            self._held.take_back(held, running=alive)
            if held.job not in self._members.jobs and not alive:
                instructions += self._lifecycle.withdraw(held, "its job ended", now)
            elif held.request.executor is not None and not held.opportunistic:
                instructions += self._take_back_executor(held, event.at, now)
            elif held.job not in self._members.jobs:
                continue  # its job ended while it was being stopped: its container still has to end
            elif held.request.command is not None:
                if alive:  # promoted or not, it has its proper slot
                    record = self._containers.live[held.container]
                    record.hold(None if held.opportunistic else held.slot)
                instructions += self._slot_grants.queue(held, now, running=alive)
        return instructions

    def _take_back_executor(self, held: HeldTask, at: float, now: float) -> list[Instruction]:
        """Resume an executor that outlived an agent, at its place in the profile; start it if it was not started."""
        record = self._containers.live.get(held.container)
        if record is None:
            return self._start_executor(held, at, now)
        record.hold(None)
        if held.job in self._members.jobs:  # otherwise it is being stopped
            self._slot_grants.queue(held, now, running=True)
        if held.profile is not None:
            record.follow(held.profile, record.profile_at or at)  # 0: its record was lost
            self._executors.follow(held, record, held.profile, now - (at - record.profile_at))
        return []
