"""The cluster as one round sees it: one frozen picture, made when the round begins, that every decision of it reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from master.core.records import Held, Key, Node, Task
from master.core.settings import MasterSettings
from master.opportunistic import Asked, Slack
from master.placement import Need, Workers
from master.placement.workers import COLUMN, Mask
from penstock.model import KINDS, KindAmounts, ResourceKind

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def workers_of(settings: MasterSettings, nodes: Sequence[Node], now: float) -> Workers:
    """What regular placement sees (Ursa §4.2.2)."""
    rates = [_rates(settings, node) for node in nodes]
    pending = [_pending(settings, node, rate) for node, rate in zip(nodes, rates, strict=True)]
    return Workers.of(
        [node.name for node in nodes],
        settings.ept_s,
        rates=_array(rates, 3),
        pending=_array(pending, 3),
        slots=_array([_slots(node) for node in nodes], 3),
        idle_cores=np.array([_idle(node, ResourceKind.CPU, now) for node in nodes], dtype=np.float64),
        memory_free=np.array([node.memory_free_bytes() for node in nodes], dtype=np.float64),
        memory_capacity=np.array([node.capacity.memory_bytes for node in nodes], dtype=np.float64),
        cores_free=np.array([node.cores_free() for node in nodes], dtype=np.float64),
    )


def slack_of(nodes: Sequence[Node], now: float) -> Slack:
    """What opportunistic work may use: T_alloc × capacity − utilization (UBIS, Algorithm 1, line 21)."""
    cores, memory = [], []
    for node in nodes:
        launched = [held for held in node.held.values() if held.assigned_in > node.decided]
        used_cores = sound(node.load.used_cores) + sum(max(held.cores, float(held.uses_core())) for held in launched)
        used_memory = node.load.used_memory_bytes + sum(held.memory_bytes for held in launched)
        cores.append(node.t_alloc * node.capacity.cores - used_cores)
        memory.append(node.t_alloc * node.capacity.memory_bytes - used_memory)
    return Slack(
        [node.name for node in nodes],
        t_alloc=np.array([node.t_alloc for node in nodes], dtype=np.float64),
        cores=np.array(cores, dtype=np.float64),
        memory=np.array(memory, dtype=np.float64),
        core_capacity=np.array([node.capacity.cores for node in nodes], dtype=np.float64),
        memory_capacity=np.array([node.capacity.memory_bytes for node in nodes], dtype=np.float64),
        idle=_array([[_idle(node, kind, now) for kind in KINDS] for node in nodes], 3),
    )


def leaving(nodes: Sequence[Node]) -> frozenset[Key]:
    """Tasks of which some node still holds a copy that nobody wants any more."""
    return frozenset(key for node in nodes for key, held in node.held.items() if held.leaving_in is not None)


def need_of(task: Task, nodes: Sequence[Node], leaving: frozenset[Key]) -> Need:
    """What a ready task asks of regular placement."""
    request = task.request
    assert request is not None
    usage = request.usage
    command = request.command
    return Need(
        task.job,
        task.name,
        np.array((usage.cpu, usage.disk, usage.network, request.memory_bytes), dtype=np.float64),
        cores=command.cpu_cores if command is not None else 0.0,
        unknown_size=request.command_kind if command is not None and usage.of(request.command_kind) <= 0 else None,
        allowed=_allowed(task, nodes, leaving),
    )


def asked_of(task: Task, nodes: Sequence[Node], leaving: frozenset[Key]) -> Asked:
    """What a ready task asks of the slack."""
    request = task.request
    assert request is not None
    command = request.command
    slot = request.command_kind if command is not None else (ResourceKind.CPU if request.usage.cpu > 0 else None)
    cores = command.cpu_cores if command is not None else 0.0
    return Asked(task.job, task.name, request.memory_bytes, cores, slot, _allowed(task, nodes, leaving))


def unfit(cluster: Cluster, task: Task) -> str:
    """Why no node of the cluster, were it empty, could hold the task; empty where one could."""
    request = task.request
    assert request is not None
    cores = request.command.cpu_cores if request.command is not None else 0.0
    known = [node for node in cluster.nodes.values() if node.capacity.memory_bytes]
    named = [node for node in known if not request.nodes or node.name in request.nodes]
    if not named:
        return f"none of its nodes ({', '.join(request.nodes)}) is in the cluster" if request.nodes else ""
    for node in named:
        share = node.t_alloc if task.opportunistic else 1.0
        if request.memory_bytes <= share * node.capacity.memory_bytes and cores <= share * node.capacity.cores:
            return ""
    return f"no node that it may use could ever hold {request.memory_bytes} bytes and {cores:g} cores"


def _allowed(task: Task, nodes: Sequence[Node], leaving: frozenset[Key]) -> Mask | None:
    """Which nodes may be asked: its own choice, less those that refused it and have not reported since, and those that
    still hold an earlier copy of it."""
    request = task.request
    assert request is not None
    key = (task.job, task.name)
    if not request.nodes and not task.refusals and key not in leaving:
        return None
    named = frozenset(request.nodes)
    mask = np.ones(len(nodes), dtype=np.bool_)
    for index, node in enumerate(nodes):
        shy = task.refusals.get(node.name) == node.heartbeats or key in node.held
        mask[index] = (not named or node.name in named) and not shy
    return mask


def _rates(settings: MasterSettings, node: Node) -> list[float]:
    """Bytes/s per kind; a default where the node has measured nothing yet."""
    defaults = settings.default_rates(node.capacity)
    return [sound(node.load.rates.of(kind)) or default for kind, default in zip(KINDS, defaults, strict=True)]


def _pending(settings: MasterSettings, node: Node, rates: list[float]) -> list[float]:
    """Work assigned and not done: the node's report, plus what was sent since, plus commands of unknown size."""
    pending = [sound(node.load.pending.of(kind)) for kind in KINDS]
    for held in node.held.values():
        if held.leaving_in is not None:
            continue
        if held.assigned_in > node.decided:
            _add(pending, held.usage)
        if held.unknown_size:
            column = COLUMN[held.kind]
            pending[column] += rates[column] * settings.ept_s / node.capacity.slots(held.kind)
    return pending


def _add(pending: list[float], usage: KindAmounts) -> None:
    for column, kind in enumerate(KINDS):
        pending[column] += usage.of(kind)


def _idle(node: Node, kind: ResourceKind, now: float) -> float:
    """Free slots, less those that are spoken for by tasks on their way."""
    free = sound(node.load.idle.of(kind))
    return free - sum(1 for held in node.held.values() if _takes(held, kind) and _on_its_way(held, node, now))


def _takes(held: Held, kind: ResourceKind) -> bool:
    if kind is ResourceKind.CPU:
        return held.uses_core()
    return held.command and held.kind is kind


def _on_its_way(held: Held, node: Node, now: float) -> bool:
    """Not in the node's queues as far as its last report can know."""
    return held.assigned_in > node.decided or held.settles_at > now


def _slots(node: Node) -> list[float]:
    return [float(node.capacity.slots(kind)) for kind in KINDS]


def sound(value: float) -> float:
    """An agent's number as one that can be calculated with."""
    return value if math.isfinite(value) and value > 0 else 0.0


def _array(rows: Sequence[Sequence[float]], columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(rows, dtype=np.float64).reshape(len(rows), columns)
