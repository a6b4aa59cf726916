"""The service that agents after each other report of a job is what its containers have used, however often the agent is
stopped, the master is away, or a report is lost with the connection.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import events as e
from agent.core.snapshot import ContainerUse
from master.core.work import Work
from tests.fakes.node_bed import NodeBed

_JOBS = ("b-y-1", "b-y-2")
#: An event, its job, and the CPU time that the job's containers use before it, in quarters of a second.
_EVENTS = st.tuples(
    st.sampled_from(["start", "sample", "end", "report", "lose", "link", "stop"]),
    st.sampled_from(_JOBS),
    st.integers(0, 8),
)


class _Bed(NodeBed):
    """A node with commands of two jobs of another origin, and what a master knows of the jobs' service."""

    def __init__(self) -> None:
        super().__init__(cores=8)
        self.linked = False
        self.works = {job: Work() for job in _JOBS}
        self.used_s: dict[str, float] = {}  # running container → its CPU time
        self.expected_s = dict.fromkeys(_JOBS, 0.0)
        self._commands: dict[str, tuple[str, str]] = {}  # container → its job and task
        self._started = 0

    def use(self, job: str, more_s: float) -> None:
        for container in self.of_job(job):
            self.used_s[container] += more_s
            self.expected_s[job] += more_s

    def of_job(self, job: str) -> list[str]:
        return [container for container in self.used_s if self._commands[container][0] == job]

    def start(self, job: str) -> None:
        self._started += 1
        task = f"t{self._started}"
        self.command(task, job=job, origin="b")
        container = self.container(task, job)
        if container:
            self._commands[container] = job, task
            self.begin(container)
            self.used_s[container] = 0.0

    def sample(self) -> None:
        """Take a sample; no time passes, as the time of a slot counts where no CPU time is known."""
        self.sampled({container: ContainerUse(cpu_seconds=used_s) for container, used_s in self.used_s.items()})

    def end(self, container: str) -> None:
        self.exit(container, cpu_s=self.used_s.pop(container))
        self.send(e.EndAcknowledged(*self._commands[container]))

    def link(self) -> None:
        """Let the agent register, with a master that reads final reports."""
        self.linked = True
        self.node.link_opens()
        self.report()
        self.node.attained.lasts_read = True
        self.report()

    def report(self) -> None:
        for use in self.node.load(self.now).jobs if self.linked else ():
            self.works[use.job].attained("n", use)

    def lose(self) -> None:
        """Let the connection be lost with the report of a sample on it."""
        if self.linked:
            self.report()  # ended jobs
            self.sample()
            self.node.load(self.now)
        self.linked = False

    def stop(self) -> None:
        """Stop the agent, and start another one."""
        self.report()
        self.linked = False
        self.restart(*self.used_s, **self.last_count())


@given(st.lists(_EVENTS, max_size=40))
def test_the_service_of_jobs_is_what_their_containers_have_used(events: list[tuple[str, str, int]]) -> None:
    bed = _Bed()
    for what, job, quarters in events:
        bed.use(job, quarters / 4)
        match what:
            case "start":
                bed.start(job)
            case "end":
                for container in bed.of_job(job)[:1]:
                    bed.end(container)
            case "link":
                bed.link()
            case "sample":
                bed.sample()
            case "report":
                bed.report()
            case "lose":
                bed.lose()
            case _:
                bed.stop()
        for each in _JOBS:
            assert bed.works[each].service_s <= bed.expected_s[each] + 1e-6
    for container in list(bed.used_s):
        bed.end(container)
    bed.link()
    for each in _JOBS:
        assert bed.works[each].service_s == pytest.approx(bed.expected_s[each])
