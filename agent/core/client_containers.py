"""Containers at the request of clients: start, adopt, lend, attach to, kill, and change the limits of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from agent.core import events as e
from agent.core import floors, quotas
from agent.core.containers import ROOM, Containers
from agent.core.elasticity import Elasticity
from agent.core.instructions import AdoptProcess, Instruction, Notify, Record, Reply
from agent.core.ledger import LINK_REMEDY, LINK_UNKNOWN, Ledger
from agent.core.lent_containers import LentContainers
from agent.core.membership import Membership
from agent.core.node_resources import NodeResources
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import NodeSettings
from agent.core.slack import Slack
from penstock.model import ContainerSpec, EndedBy, Limits
from penstock.model.container import wrong_texts
from penstock.model.decode_errors import explained
from penstock.model.floors import limits_too_small, profile_too_small, too_small
from penstock.wire.agent_api import Attach, ContainerEnded, ContainerRef, Done, Launch, Launched, Resize
from penstock.wire.errors import RpcError, bad_request, refused


@dataclass(eq=False, slots=True)
class ClientContainers:
    """Admits containers that a connection asks for, if the node can promise their resources."""

    settings: NodeSettings
    _members: Membership
    _containers: Containers
    _elasticity: Elasticity
    _ranks: Ranks
    _resources: NodeResources
    _slack: Slack
    _lent: LentContainers
    _ids: Iterator[str]

    # ------------------------------------------------------------ new containers

    def launch(self, event: e.Requested[Launch], now: float) -> list[Instruction]:
        """Start a command if the node can keep its promise, or, for an opportunistic one, if the slack has room."""
        spec = event.params.container
        floors.check(wrong_texts(spec), "container.")
        record = self._admit(event.session, spec, now)
        return [Reply(record.container), *self._containers.add(record)]

    def adopt(self, event: e.AdoptRequested, now: float) -> list[Instruction]:
        """Take in a process as if it had been started here. It does not end with the connection.

        The launcher, which can inspect the process, checks its owner. A client whose own process is taken in runs in
        that container from now on, and may already do so.
        """
        if event.own and (there := self._containers.live.get(event.inside)) is not None:
            return self._is_inside(event.session, there, event.pid, now, own=True)
        record = self._admit(event.session, msgspec.structs.replace(event.spec, detach=True), now)
        record.adopt(event.pid)
        if event.own:
            self._members.sessions[event.session].run_in(record.container)
        adopt = AdoptProcess(
            record.container, record.user, record.spec, event.pid, event.tree, record.rank_weight, record.groups
        )
        return [Reply(record.container), *self._containers.add(record, adopt)]

    def lend(self, event: e.LendRequested, now: float) -> list[Instruction]:
        """Take in a process and its descendants for a job. A process that is in a container already stays in it."""
        job = self._members.job_of(event.session, event.job, member=False)
        record = self._lent.holder(event)
        if record is None:
            spec = ContainerSpec(argv=event.argv, name=job.record.name, detach=True)
            return self._lent.lend(event, self._admit(event.session, spec, now))
        instructions = self._is_inside(event.session, record, event.pid, now, own=event.own)
        claimed = self._lent.claim(event, record)
        return [*instructions, *claimed, *(self._ranks.rank(now) if claimed else ())]

    def _is_inside(self, opened: int, record: ContainerRecord, pid: int, now: float, *, own: bool) -> list[Instruction]:
        """Reply with the container that a process is in already; it becomes the connection's if the process is its
        ``own``.

        Raises:
            RpcError: ``refused``: the container is another user's.
        """
        session = self._members.sessions[opened]
        if record.user != session.user:
            raise refused(f"process {pid} is in container {record.container!r} of {record.user}", field="pid")
        if own:
            session.run_in(record.container)
        reply = Reply(Launched(container=record.container, pid=pid, not_enforced=record.not_enforced))
        return [reply, *(self._ranks.rank(now) if own and session.jobs else ())]

    def _admit(self, opened: int, spec: ContainerSpec, now: float) -> ContainerRecord:
        """Create a record if the node can promise the container's resources.

        Raises:
            RpcError: ``refused``: it cannot.
        """
        session = self._members.sessions[opened]
        quotas.check_container(session, self.settings.quotas, self._containers.live.values(), spec)
        floors.check(limits_too_small(spec.limits), "container.limits.")
        ledger = self._resources.ledger(now)
        if spec.opportunistic:
            why = ledger.refuse_opportunistic(spec.cpu_cores, spec.memory_bytes, self._slack.t_alloc)
        else:
            why = ledger.refuse_regular(spec.cpu_cores, spec.memory_bytes)
            why = why or ledger.refuse_network(spec.network_bytes_per_s, self.settings.link_bytes_per_s)
        if why:
            raise _refusal(spec, why, ledger, self._slack.t_alloc, self.settings.link_bytes_per_s)
        record = ContainerRecord(
            container=f"c-{next(self._ids)}",
            user=session.user,
            spec=spec,
            opportunistic=spec.opportunistic,
            limits=spec.limits,
        )
        # A detached container of a connection with one job is most likely the manager of that job.
        self._ranks.begin(record, manages=min(session.jobs) if spec.detach and len(session.jobs) == 1 else "")
        session.launch(record.container)
        return record

    # ------------------------------------------------------------ known containers

    def attach(self, event: e.Requested[Attach], now: float) -> list[Instruction]:
        """Notify this connection of the container's end; a client's container without a connection becomes this one's,
        unless it only watches. A task belongs to its job.
        """
        session = self._members.sessions[event.session]
        container = event.params.container
        record = self._containers.accessible(container, session)
        session.attach(container)
        if record.ended is not None:
            over = ContainerEnded(container=container, ended=record.ended)
            return [Reply(Done()), Notify(event.session, over)]
        others = self._members.sessions.values()
        if event.params.own and not record.task and not any(container in other.launched for other in others):
            session.launch(container)
        return [Reply(Done())]

    def kill(self, event: e.Requested[ContainerRef], now: float) -> list[Instruction]:
        """End a container at a user's request."""
        session = self._members.sessions[event.session]
        record = self._containers.accessible(event.params.container, session)
        why = f"cancelled by {session.user}"
        return [Reply(Done()), *self._containers.stop(record.container, EndedBy.CANCELLED, why)]

    def resize(self, event: e.Requested[Resize], now: float) -> list[Instruction]:
        """Set other limits. A container that follows a profile must stop that first, so that only one source sets
        limits.
        """
        session = self._members.sessions[event.session]
        record = self._containers.accessible(event.params.container, session)
        _must_live(record)
        if record.profile is not None:
            _must_be_nobodys(record)
            raise refused(
                f"{record.container} follows a profile",
                field="container",
                remedy="end that first: `penstock follow CONTAINER none`",
            )
        try:
            limits = record.limits.changed(event.params.limits)
        except msgspec.ValidationError as error:
            at, wrong = explained(error, Limits)
            if at in event.params.limits:  # this check has a remedy
                floors.check(too_small({at: event.params.limits[at]}), "limits.")
            raise bad_request(wrong, field=f"limits.{at}" if at else "limits") from None
        floors.check(too_small(event.params.limits), "limits.")
        if limits.pids_max != record.limits.pids_max:
            quotas.check_pids(session, self.settings.quotas, limits)
        instructions = record.resize(limits)
        if instructions:
            instructions.insert(0, Record(ROOM, record.container, record))
        return [Reply(record.container), *instructions]

    def follow(self, event: e.FollowRequested, now: float) -> list[Instruction]:
        """Follow the profile from now on; None: keep the present limits."""
        record = self._containers.accessible(event.container, self._members.sessions[event.session])
        _must_live(record)
        _must_be_nobodys(record)
        if event.profile is not None:
            floors.check(profile_too_small(event.profile), "profile.")
        record.follow(event.profile, event.at)
        if event.profile is None:
            self._elasticity.unfollow(record.container)
            return [Reply(Done()), Record(ROOM, record.container, record)]
        self._elasticity.follow(record, now - event.since_s)
        instructions = record.resize(self._elasticity.limits(record, now))
        return [Reply(Done()), Record(ROOM, record.container, record), *instructions]


def _refusal(spec: ContainerSpec, why: str, ledger: Ledger, t_alloc: float, link_bytes_per_s: int) -> RpcError:
    """Return the answer to a request that cannot be promised now, or ever."""
    share, network_bytes_per_s = (t_alloc, 0) if spec.opportunistic else (1.0, spec.network_bytes_per_s)
    never = ledger.refuse_ever(spec.cpu_cores, spec.memory_bytes, share, network_bytes_per_s, link_bytes_per_s)
    if never:
        why, remedy = never, "ask for less"
    elif network_bytes_per_s and not link_bytes_per_s:
        why, remedy = LINK_UNKNOWN, LINK_REMEDY
    elif spec.opportunistic:
        remedy = "try later, or without --opportunistic"
    else:
        remedy = "ask for less, wait until something ends, or run it opportunistic"
    return refused(f"this node cannot promise that: {why}", remedy=remedy)


def _must_live(record: ContainerRecord) -> None:
    if record.ended is not None or record.state is ContainerState.STOPPING:
        raise refused(f"container {record.container} has ended", field="container")


def _must_be_nobodys(record: ContainerRecord) -> None:
    if record.executor is not None:
        raise refused(
            f"{record.container} is an executor: its limits follow its predicted demand",
            field="container",
            remedy="give it `limits` when it is submitted: they are its bounds",
        )
