"""Commands beyond the slots: granted exactly as by the plainest account, for any events in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, precondition, rule

from agent.queues import COMMANDS, Monotask
from agent.queues.resource import MOST_AHEAD
from penstock.model import MOST_BEYOND, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import make_queues

CORES = 2
GATE = 1  # the session of a framework
CPU = ResourceKind.CPU
Key = tuple[str, int, int]  # job, session, number


class CommandsBeyond(RuleBasedStateMachine):
    """The queues beside a list of the waiting and the running commands."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.queues = make_queues(CORES, ranked=True)
        self.now = 0.0
        self.number = 0
        self.order: dict[str, tuple[float, int]] = {}  # the smallest is the first
        self.waiting: list[Key] = []
        self.running: list[Key] = []

    def check(self, grants: list[Monotask]) -> None:
        """They are those of the book."""
        expected: list[Key] = []
        while self.waiting:
            first = self.next_in_order()
            if first is None:
                break
            self.waiting.remove(first)
            self.running.append(first)
            expected.append(first)
        assert [(grant.job, grant.session, grant.id) for grant in grants] == expected

    def next_in_order(self) -> Key | None:
        """Return the first that may start.

        One that waits for a slot lets none pass, a command only where its job has enough.
        """
        seen = set[str]()
        for key in sorted(self.waiting, key=lambda key: (self.order[key[0]], key[2])):
            if key[0] in seen:
                continue  # a job's own order is kept
            seen.add(key[0])
            if self.has_room(key):
                return key
            if key[1] != COMMANDS or self.own(key[0]) < CORES:
                return None
        return None

    def own(self, of: str) -> int:
        return sum(session == COMMANDS and job == of for job, session, _ in self.running)

    def has_room(self, key: Key) -> bool:
        running = len(self.running)
        if running < CORES:
            return True
        if not any(session == COMMANDS for _, session, _ in self.running):
            return False
        if key[1] == COMMANDS and self.own(key[0]) >= CORES:
            return False
        behind = sum(s == COMMANDS and self.order[job] > self.order[key[0]] for job, s, _ in self.running)
        most_ahead = MOST_BEYOND * CORES if key[1] == COMMANDS else CORES
        return running - behind < most_ahead and running < MOST_AHEAD * CORES

    @rule(target=jobs, priority=st.integers(0, 5))
    def add_job(self, priority: int) -> str:
        self.number += 1
        job = f"j{self.number}"
        self.queues.add_job(job, priority)
        self.order[job] = (-priority, self.number)
        return job

    @rule(target=jobs, priorities=st.lists(st.integers(0, 5), min_size=MOST_BEYOND, max_size=MOST_AHEAD + 1))
    def crowd(self, priorities: list[int]) -> MultipleResults[str]:
        """As many jobs with commands as it takes to come to the bounds."""
        added = [self.add_job(priority) for priority in priorities]
        for job in added:
            self.submit(job, COMMANDS, CORES)
        return multiple(*added)

    @rule(job=jobs, session=st.sampled_from((COMMANDS, COMMANDS, GATE)), count=st.integers(1, 3))
    def submit(self, job: str, session: int, count: int) -> None:
        if job not in self.order:
            return
        specs = []
        for _ in range(count):
            self.number += 1
            self.waiting.append((job, session, self.number))
            specs.append(MonotaskSpec(id=self.number, kind=CPU, input_bytes=0))
        self.check(self.queues.submit(session, job, specs, self.now))

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 63), seconds=st.floats(0, 2), cancelled=st.booleans())
    def end(self, at: int, seconds: float, cancelled: bool) -> None:
        self.now += seconds
        job, session, number = self.running.pop(at % len(self.running))
        if cancelled:
            self.check(self.queues.cancel(session, job, [number], self.now))
        else:
            self.check(self.queues.complete(session, job, [Completion(id=number)], self.now))

    @rule(moved=st.lists(st.tuples(jobs, st.integers(0, 5)), max_size=3))
    def reorder(self, moved: list[tuple[str, int]]) -> None:
        for job, priority in moved:
            if job in self.order:
                self.queues.set_priority(job, priority, self.now)
                self.order[job] = (-priority, self.order[job][1])
        self.check(self.queues.reordered(self.now))

    @rule(job=jobs)
    def remove_job(self, job: str) -> None:
        if job not in self.order:
            return
        self.waiting = [key for key in self.waiting if key[0] != job]
        self.running = [key for key in self.running if key[0] != job]
        grants = self.queues.remove_job(job, self.now)
        self.check(grants)
        del self.order[job]

    @invariant()
    def the_sums_are_those_of_the_book(self) -> None:
        assert self.queues.counts(CPU, self.now).running == len(self.running)
        assert self.queues.queued() == len(self.waiting)
        assert self.queues.idle().cpu == max(0, CORES - len(self.running))


TestCommandsBeyond = CommandsBeyond.TestCase
TestCommandsBeyond.settings = settings(max_examples=30, stateful_step_count=40)
