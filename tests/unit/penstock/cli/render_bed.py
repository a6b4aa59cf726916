"""Documents for the views of a host and of a cluster, and such a view as text."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import strategies as st
from rich.console import Console, RenderableType

from penstock.cli.render_host import host_view
from penstock.wire.reservation_api import PromisedPiece, Reserved

STATUS: dict[str, Any] = {
    "node": "alpha",
    "version": "0.1.0",
    "uptime_s": 93.4,
    "kinds": {
        "cpu": {
            "slots": 2,
            "running": 1,
            "queued": 7,
            "bypassing": 0,
            "rate_bytes_per_s": 2048,
            "pending_bytes": 4096,
            "head": {"job": "j-1", "task": "m-1", "waits_s": 3.2, "held_by": "j-2", "held_s": 90.0},
        },
        "disk": {"slots": 1, "running": 0, "queued": 0},
    },
    "resources": {
        "memory": {"unit": "bytes", "capacity": 1 << 30, "promised": 1 << 20, "used": 1 << 19, "slack": 1 << 29},
        "disk": {"unit": "share", "capacity": 1.0, "promised": None, "used": 0.97, "slack": 0.0},
    },
    "host": {
        "cpu_percent": 42.0,
        "memory_used_bytes": 1 << 29,
        "memory_total_bytes": 1 << 30,
        "disk_read_bytes_per_s": 1e7,
        "disk_write_bytes_per_s": 2e7,
    },
    "jobs": [
        {
            "job": "j-1",
            "name": "wordcount",
            "user": "eve",
            "admitted": False,
            "queued": 3,
            "running": 1,
            "cpu_s": 41.0,
            "rank": {"rank": 2, "of": 3, "cpu_s": 41.0, "queue": 8, "weight": 12, "why": "in the master's order"},
        }
    ],
    "containers": [
        {
            "container": "c-1",
            "name": "hog",
            "class": "opportunistic",
            "state": "running",
            "limits": {"cpu_cores": 0.5, "memory_max_bytes": 64 << 20},
            "sample": {
                "cpu_cores": 0.49,
                "memory_bytes": 32 << 20,
                "cpu_stalled": 0.3,
                "cpu_throttled": 0.4,
                "network_send_bytes_per_s": 1000.0,
            },
            "not_enforced": {"disk_read_bytes_per_s": "no io controller"},
        },
        {
            "container": "c-3",
            "class": "regular",
            "state": "running",
            "rank": {
                "job": "j-2",
                "rank": 3,
                "of": 3,
                "cpu_s": 7.0,
                "queue": 5,
                "weight": 1,
                "nice": 19,
                "why": "by priority",
            },
        },
        {"container": "c-2", "ended": {"by": "oom", "exit_status": 137, "wall_seconds": 3.0}, "note": "memory.max"},
    ],
    "preemptions": [{"at": 0.0, "container": "c-9", "resource": "memory", "reason": "92 % used, T_preempt 90 %"}],
    "enforcement": {"io.max": {"ok": False, "why": "cgroup v1", "remedy": "boot with v2"}, "cpu.max": {"ok": True}},
    "master": {"address": "127.0.0.1:7420", "linked": True},
}

NOW = 1_795_000_000.0
CLUSTER: dict[str, Any] = {
    "version": "0.1.0",
    "started_at": NOW - 93.4,
    "ordering": "ejf",
    "models": {"svr": "scikit-learn is not installed", "neighbours": ""},
    "resources": STATUS["resources"],
    "nodes": {
        "beta": {
            "state": "connected",
            "capacity": {"cores": 16.0, "memory_bytes": 64 << 30},
            "load": {
                "used_cores": 3.5, "used_memory_bytes": 8 << 30,
                "promised_cores": 4.0, "promised_memory_bytes": 2 << 30,
                "disk_busy": 0.25, "network_busy": 0.5, "pending": {"cpu": 1048576.0, "disk": 1048576.0},
            },
            "tasks": 3,
            "opportunistic_tasks": 1,
        },
        "alpha": {"state": "away", "away_s": 12.0},
    },
    "jobs": {
        "j-1": {
            "name": "count", "user": "eve", "state": "waiting", "placed": 1, "ready": 7, "waits": "it wants 2 GiB",
            "rank": 2, "service_container_s": 41.0, "reason": "41 s of service so far",
            "progress": [{"stage": "map", "tasks": 10, "done": 3}, {"stage": "reduce", "tasks": 2, "done": 0}],
        }
    },
    "tasks": {"placed": 1, "ready": 7},
    "memory": {"reserved_bytes": 1 << 30, "reservable_bytes": 4 << 30},
    "preemptions": [{"at": NOW, "node": "beta", "job": "j-1", "task": "m-3", "reason": "memory: 95 % used"}],
    "more": {"nodes": 0, "jobs": 0, "jobs_of_others": 3},
}  # fmt: skip

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def promised(name: str, *pieces: tuple[float, float], dropped: str = "") -> Reserved:
    made = [
        PromisedPiece(start=NOW + a, finish=NOW + b, bundles=4, cpu_cores=1.0, memory_bytes=1 << 30) for a, b in pieces
    ]
    return Reserved(
        reservation=f"r-{name}", user="eve", rdl="x", created_at=0.0, name=name, promised=made, dropped=dropped
    )


def printed(view: RenderableType, width: int = 200, *, terminal: bool = False) -> str:
    to = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=terminal, color_system=None)
    to.print(view)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def shown(status: dict[str, Any], width: int = 200) -> str:
    return printed(host_view(status), width)
