"""The kernel, the launcher and the clock under a node: processes start, use, end, and outlive the process that started
them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from agent.core import Node, starvation
from agent.core import events as e
from agent.core.records import CancelledJob, ContainerRecord, HeldTask, JobRecord, TaskEnd, Waits
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import EndedBy
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import AwaitedTask
from tests.property.node_books import SETTINGS, NodeBooks


class Processes(NodeBooks):
    """Processes that the node started, or that were lent to it, and the events that it gets of them."""

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), works=st.booleans(), orphaned=st.booleans())
    def start(self, data: st.DataObject, works: bool, orphaned: bool) -> None:
        container = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.discard(container)
        if works:
            self.processes.add(container)
            self.send(e.ContainerStarted(container, 42, {}, self.now, orphaned=orphaned))
            assert (container in self.orphans) == orphaned
        else:
            self.send(e.ContainerNotStarted(container, "no such command"))

    @rule()
    def launcher_dies(self) -> None:
        """End the launcher. Its processes run on; a start that it had accepted is answered like any other."""
        promised = self.node.ledger()
        self.send(e.LauncherLost())
        assert self.orphans == self.processes
        ledger = self.node.ledger()
        assert ledger.promised_cores == promised.promised_cores
        assert ledger.promised_memory_bytes == promised.promised_memory_bytes

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), status=st.sampled_from([0, 1, 137]), oom=st.booleans())
    def exit(self, data: st.DataObject, status: int, oom: bool) -> None:
        container = data.draw(st.sampled_from(sorted(self.doomed or self.processes)))
        asked = container in self.doomed
        self.processes.discard(container)
        self.doomed.discard(container)
        self.giving.discard(container)
        self.frozen.discard(container)
        if container in self.orphans:  # no process saw its exit status
            self.orphans.discard(container)
            self.send(e.ContainerExited(container, None, None, 0.1, 5, int(oom), self.now))
            assert (self.ended[container] is EndedBy.LOST) == (not asked)
        else:
            signal = 9 if status == 137 else None
            self.send(e.ContainerExited(container, status, signal, 0.1, 5, int(oom), self.now))
            assert self.ended[container] is not EndedBy.LOST
        by = self.ended[container]
        ours = {EndedBy.CANCELLED, EndedBy.PREEMPTED, EndedBy.DISCONNECTED}
        assert (by in ours) == asked, f"{by}, though a kill was {'' if asked else 'not '}asked for"

    @precondition(lambda self: self.giving - self.doomed)
    @rule(data=st.data(), why_not=st.sampled_from(["", "", "the launcher is another"]))
    def give_back(self, data: st.DataObject, why_not: str) -> None:
        container = data.draw(st.sampled_from(sorted(self.giving - self.doomed)))
        self.giving.discard(container)
        if not why_not:
            self.processes.discard(container)
            self.orphans.discard(container)
        self.send(e.GivenBack(container, 0.1, 5, self.now, why_not))
        assert self.ended.get(container) is (None if why_not else EndedBy.EXIT)

    @precondition(lambda self: self.alarm is not None)
    @rule()
    def alarm_rings(self) -> None:
        assert self.alarm is not None
        self.now, self.alarm = max(self.now, self.alarm), None
        self.send(e.Woken(self.now))

    @rule(data=st.data(), seconds=st.floats(0.1, 9))
    def sample(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        uses = self.uses(data)
        live = self.node.containers.live
        before = {c for c, r in live.items() if r.opportunistic or r.stopping_by is not None}
        self.send(e.Sampled(Snapshot(self.now, seconds, HostUse(), uses), self.now))
        # Containers of a job whose framework did not come back after a restart are cancelled.
        preempted = {c for c, r in live.items() if r.stopping_by is EndedBy.PREEMPTED}
        assert preempted <= before, "a regular container was preempted"

    def uses(self, data: st.DataObject) -> dict[str, ContainerUse]:
        if data.draw(st.booleans()):  # no container does much: paused ones may go on
            return {container: ContainerUse(memory_bytes=1) for container in sorted(self.processes)}
        return {
            container: ContainerUse(
                memory_bytes=data.draw(st.integers(0, 900)),
                memory_cache_bytes=data.draw(st.integers(0, 300)),
                memory_unreclaimable_bytes=data.draw(st.integers(0, 900)),
                cpu_cores=0.0 if container in self.frozen else data.draw(st.floats(0, 2)),
                disk_bytes_per_s=0.0 if container in self.frozen else data.draw(st.floats(0, 2)),
                cpu_stalled=data.draw(st.sampled_from([0.0, 1.0])),
            )
            for container in sorted(self.processes)
        }

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), pressed=st.booleans())
    def look_at_memory(self, data: st.DataObject, pressed: bool) -> None:
        stalled = tuple(sorted(self.processes)) if pressed else ()
        self.send(e.MemoryChecked(Snapshot(self.now, 1.0, HostUse(), self.uses(data)), stalled, self.now))
        for container in sorted(self.processes):
            self.send(e.Reclaimed(container))

    @rule(data=st.data(), lost=st.booleans(), same_launcher=st.booleans())
    def restart(self, data: st.DataObject, lost: bool, same_launcher: bool) -> None:
        """Kill and restart the agent. The launcher went on, or died, and with it some of its processes.

        Some starts have never reached the launcher, which only the launcher that was to get them knows.
        """
        node = Node(replace(SETTINGS, instance=f"x{self.fresh()}"))
        records: defaultdict[str, list[Any]] = defaultdict(list)
        for (room, _), record in self.journal.items():
            records[room].append(record)
        never_began = frozenset(self.starting) if same_launcher and not lost else frozenset()
        self.starting.clear()
        placed = {record.container for record in records["tasks"] if record.ended is None}
        wanted = {r.container for r in records["containers"] if r.stopping_by is None}
        anew = never_began & placed & wanted
        self.launched -= anew
        self.begun = {key: container for key, container in self.begun.items() if container not in anew}
        orphans = frozenset(self.orphans)
        if lost:
            orphans = data.draw(st.frozensets(st.sampled_from(sorted(self.processes)))) if self.processes else orphans
            self.processes &= orphans
            self.frozen &= orphans
            self.doomed &= orphans
        self.orphans.clear()
        self.giving.clear()  # the next agent requests the processes that are still to be given back
        self.sessions.clear()
        self.jobs.clear()
        self.forget(None)
        kept = self.node.containers.ended.by_id
        self.node = node
        self.alarm, self.watched = None, False
        running = dict.fromkeys(self.processes, 7)
        self.decision = 0
        before, self.unacknowledged = self.unacknowledged, set()
        self.reported -= before
        self.send(
            e.Recovered(
                jobs=[r for r in records["jobs"] if isinstance(r, JobRecord)],
                tasks=[r for r in records["tasks"] if isinstance(r, HeldTask)],
                containers=[r for r in records["containers"] if isinstance(r, ContainerRecord)],
                cancelled=[r for r in records["cancelled"] if isinstance(r, CancelledJob)],
                ends=[r for r in records["ends"] if isinstance(r, TaskEnd)],
                awaited=[r for r in records["awaited"] if isinstance(r, AwaitedTask)],
                running=running,
                exits_to_come=frozenset(),
                at=self.now,
                draining=next((r for r in records["node"] if isinstance(r, Draining)), None),
                waits=next((r for r in records[starvation.ROOM] if isinstance(r, Waits)), None),
                never_began=never_began,
                orphans=orphans,
            )
        )
        assert self.orphans == orphans
        assert never_began <= anew | self.ended.keys()
        assert EndedBy.LOST not in {self.ended[container] for container in never_began - anew}
        assert before <= self.unacknowledged, "an end is lost"
        assert kept.keys() <= self.node.containers.ended.by_id.keys(), "how a container ended is lost"
