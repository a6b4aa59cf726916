"""Invariants of the cluster's state that hold after every event."""

from __future__ import annotations

from master.core.cluster import Cluster


def broken(cluster: Cluster) -> list[str]:
    """Describe every violated invariant; empty where all hold."""
    return _tasks(cluster) + _holdings(cluster) + _rows(cluster)


def _tasks(cluster: Cluster) -> list[str]:
    """Check that each task is either ready or placed, and that a placed task is held by its node."""
    wrong: list[str] = []
    ready = 0
    for job in cluster.jobs.values():
        if job.origin not in cluster.nodes:
            wrong.append(f"{job.job}: its origin {job.origin} is not among the nodes")
        waiting = {name for tasks in job.ready.values() for name in tasks}
        ready += sum(len(tasks) for tasks in job.ready.values())
        if waiting - job.tasks.keys():
            wrong.append(f"{job.job}: ready but ended: {waiting - job.tasks.keys()}")
        described = [task.request.usage for task in job.tasks.values() if task.request is not None]
        unknown = sum(not (usage.cpu or usage.disk or usage.network) for usage in described)
        if unknown != job.work.unknown:
            wrong.append(f"{job.job}: {unknown} tasks came without bytes, {job.work.unknown} are counted")
        for task in job.tasks.values():
            if task.name in job.unconfirmed_ends:
                wrong.append(f"{job.job}/{task.name} lives after its end")
            if (task.name in waiting) == bool(task.node):
                wrong.append(f"{job.job}/{task.name}: ready is {task.name in waiting}, node is {task.node!r}")
            if task.state != ("placed" if task.node else "ready"):
                wrong.append(f"{job.job}/{task.name} is {task.state}, node is {task.node!r}")
            is_command = task.request is not None and task.request.command is not None
            if is_command and task.told and task.node not in job.ran_on:
                wrong.append(f"{job.job}/{task.name}: its node {task.node} is not among those that took commands")
            node = cluster.nodes.get(task.node)
            if task.node and (node is None or (job.job, task.name) not in node.held):
                wrong.append(f"{job.job}/{task.name} is not held by its node {task.node}")
    if ready != cluster.members.ready_tasks:
        wrong.append(f"{ready} tasks are ready, {cluster.members.ready_tasks} are counted")
    return wrong


def _holdings(cluster: Cluster) -> list[str]:
    """Check that a node holds only tasks placed there or being withdrawn; so no task is wanted on two nodes."""
    wrong: list[str] = []
    for node in cluster.nodes.values():
        if node.connected is not (node.state == "connected"):
            wrong.append(f"{node.name} is {node.state}, and away since {node.away_since}")
        if not node.connected and node.requests.gathered:
            wrong.append(f"{node.name} is away and has decisions waiting")
        late = [held.key for held in node.held.values() if held.assigned_in > node.draining_in > 0]
        if node.draining is not None and late:
            wrong.append(f"{node.name} is drained and was given {late}")
        for held in node.held.values():
            task = cluster.members.task(held.key)
            at_home = task is not None and task.node == node.name
            if not held.leaving and not at_home:
                wrong.append(f"{held.key} stays on {node.name}, where it is not wanted")
            if held.leaving and at_home and task is not None and not task.unwanted:
                wrong.append(f"{held.key} is withdrawn from {node.name}, where it is wanted")
    return wrong


def _rows(cluster: Cluster) -> list[str]:
    """Check that the table's rows match the records, except rows marked as stale."""
    table = cluster.table
    wrong = [] if [node.name for node in table.nodes] == list(table.rows) else ["the table's rows are out of order"]
    if {node.name for node in table.nodes} != cluster.nodes.keys():
        wrong.append("the table has other nodes than the cluster")
    marked = {(key, node) for key, nodes in cluster.members.leaving.items() for node in nodes}
    leaving = {(k, n.name) for n in cluster.nodes.values() for k, held in n.held.items() if held.leaving}
    if marked != leaving:
        wrong.append(f"leaving: {marked ^ leaving} is marked or is not")
    for row, node in enumerate(table.nodes):
        if node.name in table._touched:
            continue
        if bool(table.connected[row]) != node.connected:
            wrong.append(f"{node.name}: the table does not know whether it is connected")
        if bool(table.takes_work[row]) != node.takes_work:
            wrong.append(f"{node.name}: the table does not know whether it takes work")
        if node.connected and table.memory_free[row] != node.memory_free_bytes():
            wrong.append(
                f"{node.name}: {table.memory_free[row]} bytes are free in the table, {node.memory_free_bytes()}"
            )
        if node.connected and abs(table.cores_free[row] - node.cores_free()) > 1e-6:
            wrong.append(f"{node.name}: {table.cores_free[row]} cores are free in the table, {node.cores_free()}")
    return wrong
