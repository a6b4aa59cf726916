"""The nodes, the jobs and their tasks, by name."""

from __future__ import annotations

from master.core.drains import Drains
from master.core.job import Job, Key, Task
from master.core.node import Held, Node
from master.core.table import NodeTable


class Membership:
    """The records of the cluster. Each node has a row in the table."""

    def __init__(self, table: NodeTable, drains: Drains) -> None:
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.leaving: dict[Key, dict[str, None]] = {}  # nodes that still hold an unwanted copy of a task
        self.ready_tasks = 0
        self._table = table
        self._drains = drains
        self._sequence = 0

    @property
    def fresh(self) -> bool:
        """Return whether no job has been reported yet."""
        return self._sequence == 0

    def add_job(self, job: str, origin: str, now: float) -> Job:
        """Add a job; its origin is expected to register if it is away."""
        self._sequence += 1
        created = self.jobs[job] = Job(job, origin, self._sequence)
        self.expect(origin, now)
        return created

    def expect(self, name: str, now: float) -> Node:
        """Return the node, adding it if only others have reported it; a new node has ``node_timeout_s`` to register."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name, away_since=now, draining=self._drains.draining(name))
            self._table.add(node)
        return node

    def serve(self, node: Node, job: Job) -> None:
        """Record that a node serves a job, and is sent its present priority, but not the job's user: a node that has
        reported the last of the job's work has dropped that.
        """
        if job.reservation or node.name in job.work.told_last or job.hosts.get(node.name) != job.priority:
            job.served_by(node.name, job.priority)
        job.work.told_last.discard(node.name)
        node.job_came_at = max(node.job_came_at, job.came_at)
        node.serves.add(job.job)

    def with_ready_tasks(self) -> list[Job]:
        """Return the admitted jobs with ready tasks."""
        return [job for job in self.jobs.values() if job.admitted and job.ready_count]

    def task(self, key: Key) -> Task | None:
        """Return a task that has not ended; None where there is none."""
        job = self.jobs.get(key[0])
        return job.tasks.get(key[1]) if job is not None else None

    def at_home(self, node: Node, key: Key) -> tuple[Job, Task] | None:
        """Return a task that is placed on this node, with its job; None: it has ended, or its place is elsewhere."""
        task = self.task(key)
        return (self.jobs[key[0]], task) if task is not None and task.node == node.name else None

    def held_of(self, task: Task) -> Held | None:
        """Return the resources that a task occupies on its node; None where it is not placed."""
        node = self.nodes.get(task.node)
        return node.held.get((task.job, task.name)) if node is not None else None

    def unmark(self, node: Node, held: Held) -> None:
        """Remove the mark of an unwanted copy that is gone."""
        copies = self.leaving.get(held.key)
        if copies is not None:
            copies.pop(node.name, None)
            if not copies:
                del self.leaving[held.key]
