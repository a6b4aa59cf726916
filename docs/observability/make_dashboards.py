"""Writes the Grafana dashboards beside it, from what is declared here.

python docs/observability/make_dashboards.py            # rewrite
python docs/observability/make_dashboards.py --check    # exit status 1 if one is out of date
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_COLUMNS = 24
#: Of the host, or master, that is chosen above.
_AT = '{instance=~"$instance"}'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """``targets``: expression → legend. ``unit`` is one of Grafana's; ``stacked`` adds the series up."""

    title: str
    targets: dict[str, str]
    unit: str = "short"
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    most: float | None = None


@dataclass(frozen=True)
class Row:
    """A heading and what is below it."""

    title: str
    panels: list[Panel]


def _stat(title: str, expression: str, unit: str = "short", legend: str = "", about: str = "") -> Panel:
    return Panel(title, {expression: legend}, unit, about, kind="stat", width=4, height=4)


def _resources(prefix: str, of: str) -> list[Panel]:
    def panel(title: str, name: str, unit: str, grafana: str, *what: str) -> Panel:
        names = [f"{prefix}{name}_{one}_{unit}" for one in what]
        about = "Slack is T_alloc × capacity − used (UBIS §IV.A): what opportunistic work may still take."
        series = {f'{each}{{instance=~"$instance"}}': one for each, one in zip(names, what, strict=True)}
        return Panel(f"{title} {of}", series, grafana, about, width=6, most=1.0 if unit == "ratio" else None)

    return [
        panel("Cores", "cpu", "cores", "short", "capacity", "promised", "used", "slack"),
        panel("Memory", "memory", "bytes", "bytes", "capacity", "promised", "used", "slack"),
        panel("Disks in use", "disk", "ratio", "percentunit", "used", "slack"),
        panel("Links in use", "network", "ratio", "percentunit", "used", "slack"),
    ]


def _quantiles(histogram: str) -> dict[str, str]:
    rate = f'sum by (le) (rate({histogram}_bucket{{instance=~"$instance"}}[$__rate_interval]))'
    return {f"histogram_quantile(0.99, {rate})": "99 of 100", f"histogram_quantile(0.5, {rate})": "half"}


def _itself(prefix: str) -> Row:
    return Row(
        "The daemon itself",
        [
            Panel(
                "Processor", {f"rate({prefix}process_cpu_seconds_total{_AT}[$__rate_interval])": "{{instance}}"},
                "percentunit", "Of one core.",
            ),
            Panel("Memory", {f"{prefix}process_resident_memory_bytes{_AT}": "{{instance}}"}, "bytes"),
            Panel(
                "Lateness of the event loop",
                _quantiles(f"{prefix}event_loop_lag_seconds"),
                "s", "A timer a second. Below 2 ms there is nothing to tell.",
            ),
        ],
    )  # fmt: skip


_PREEMPTIONS = f"penstock_preemptions_total{_AT}[$__rate_interval]"
NODE = [
    Row(
        "At a glance",
        [
            _stat("Version", f"penstock_build_info{_AT}", legend="{{version}}"),
            _stat("Master answers", f"penstock_connected_to_master{_AT}", "bool_yes_no"),
            _stat("Containers", f"sum(penstock_containers{_AT})"),
            _stat("Monotasks that wait", f"sum(penstock_monotasks_queued{_AT})"),
            _stat("Preemptions in the last hour", f"sum(increase(penstock_preemptions_total{_AT}[1h]))"),
            _stat("Limits not enforced", f"penstock_containers_not_enforced{_AT}", about="Containers with one."),
        ],
    ),
    Row("Resources", _resources("penstock_", "of the host")),
    Row(
        "Queues",
        [
            Panel("Monotasks that wait", {f"penstock_monotasks_queued{_AT}": "{{kind}}"}, stacked=True),
            Panel(
                "Slots in use",
                {f"penstock_slots_in_use{_AT} / penstock_slots{_AT}": "{{kind}}"},
                "percentunit",
                most=1.0,
            ),
            Panel(
                "Wait of who is next",
                {f"penstock_queue_head_wait_seconds{_AT}": "{{kind}}"},
                "s",
                "Since the job's last grant. A job gets one before all others after job_wait_max_s (30 s).",
            ),
            Panel("Grants", {f"rate(penstock_grants_total{_AT}[$__rate_interval])": "{{kind}}"}, "ops"),
            Panel("Wait for a grant", _quantiles("penstock_grant_wait_seconds"), "s"),
            Panel(
                "Records journaled", {f"rate(penstock_journal_writes_total{_AT}[$__rate_interval])": "writes"}, "ops"
            ),
            Panel("Work not done", {f"penstock_pending_bytes{_AT}": "{{kind}}"}, "bytes", stacked=True),
            Panel(
                "Processing rate",
                {f"penstock_processing_rate_bytes_per_second{_AT}": "{{kind}}"},
                "Bps",
                "X/T over a sliding window (Ursa §4.2.2).",
            ),
            Panel(
                "Slots busy, of what ended",
                {f"rate(penstock_slot_seconds_total{_AT}[$__rate_interval])": "{{kind}}"},
                about="Slot-seconds a second of the monotasks that ended.",
            ),
        ],
    ),
    Row(
        "Containers",
        [
            Panel(
                "Containers",
                {f"sum by (class, state) (penstock_containers{_AT}) > 0": "{{class}} {{state}}"},
                stacked=True,
            ),
            Panel(
                "Stalls of regular containers",
                {f"penstock_regular_stalled_max_ratio{_AT}": "{{resource}}"},
                "percentunit",
                "The largest share of the time in which one of them waited (PSI): whether promises are kept.",
                most=1.0,
            ),
            Panel(
                "Cannot be enforced here",
                {f"penstock_enforced{_AT} == 0": "{{what}}"},
                about="penstock check says why.",
            ),
        ],
    ),
    Row(
        "Preemption",
        [
            Panel(
                "What was done, for which resource",
                {f"sum by (action, resource) (rate({_PREEMPTIONS}))": "{{action}} for {{resource}}"},
                "ops",
                width=12,
            ),
            Panel(
                "From the decision to the end",
                _quantiles("penstock_preemption_seconds"),
                "s",
                width=12,
            ),
        ],
    ),
    _itself("penstock_"),
]
CLUSTER = [
    Row(
        "At a glance",
        [
            _stat("Version", f"penstock_master_build_info{_AT}", legend="{{version}}"),
            _stat("Nodes connected", 'penstock_master_nodes{instance=~"$instance", state="connected"}'),
            _stat("Nodes away", 'penstock_master_nodes{instance=~"$instance", state="away"}'),
            _stat("Jobs that wait", 'penstock_master_jobs{instance=~"$instance", state="waiting"}'),
            _stat("Tasks that wait", 'penstock_master_tasks{instance=~"$instance", state="ready"}'),
            _stat("Reservations due now", f"penstock_master_reservations_due{_AT}"),
        ],
    ),
    Row("Resources", _resources("penstock_master_", "of the connected nodes")),
    Row(
        "Nodes and jobs",
        [
            Panel("Nodes", {f"penstock_master_nodes{_AT}": "{{state}}"}, stacked=True),
            Panel("Jobs", {f"penstock_master_jobs{_AT}": "{{state}}"}, stacked=True),
            Panel("Tasks", {f"penstock_master_tasks{_AT}": "{{state}}"}, stacked=True),
            Panel(
                "Memory that jobs reserve",
                {
                    f"penstock_master_reservable_bytes{_AT}": "may be reserved",
                    f"penstock_master_reserved_bytes{_AT}": "reserved",
                },
                "bytes",
                "A job that does not fit waits for admission.",
            ),
            Panel(
                "Silence of connected nodes",
                {f"penstock_master_heartbeat_age_max_seconds{_AT}": "longest"},
                "s",
                "Each says something at least every second.",
            ),
            Panel("Promises", {f"increase(penstock_master_reservations_total{_AT}[1h])": "{{outcome}}"}),
            Panel("Longest absence of a node", {f"penstock_master_node_away_max_seconds{_AT}": "seconds"}, "s"),
            Panel(
                "Promised by reservations now",
                {f"penstock_master_reservations_promised_cores{_AT}": "cores"},
            ),
        ],
    ),
    Row(
        "Decisions",
        [
            Panel(
                "Tasks",
                {
                    f"rate(penstock_master_tasks_{what}_total{_AT}[$__rate_interval])": what.replace("_", " ")
                    for what in ("received", "assigned", "refused", "promoted", "withdrawn", "placed_again")
                },
                "ops",
            ),
            Panel(
                "How tasks ended",
                {f"sum by (by) (rate(penstock_master_tasks_ended_total{_AT}[$__rate_interval]))": "{{by}}"},
                "ops",
                stacked=True,
            ),
            Panel(
                "Time of a round",
                _quantiles("penstock_master_round_seconds"),
                "s",
            ),
        ],
    ),
    Row(
        "Every node, from its agent",
        [
            Panel(
                "Cores in use",
                {"topk(20, penstock_cpu_used_cores / penstock_cpu_capacity_cores)": "{{instance}}"},
                "percentunit",
                width=12,
            ),
            Panel(
                "Monotasks that wait",
                {"topk(20, sum by (instance) (penstock_monotasks_queued))": "{{instance}}"},
                width=12,
            ),
        ],
    ),
    _itself("penstock_master_"),
]


# ---------------------------------------------------------------- as Grafana reads it


def dashboard(uid: str, title: str, about: str, rows: list[Row], instances: str) -> dict[str, Any]:
    """``instances`` is the metric whose label names what can be chosen."""
    ids, panels, y = count(1), [], 0
    for row in rows:
        panels.append(
            {"id": next(ids), "type": "row", "title": row.title, "collapsed": False, "panels": [],
             "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y}}
        )  # fmt: skip
        y, x = y + 1, 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                y, x = y + panel.height, 0
            panels.append(_panel(panel, next(ids), {"h": panel.height, "w": panel.width, "x": x, "y": y}))
            x += panel.width
        y += row.panels[-1].height
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source(), _instance(instances)]},
        "annotations": {"list": []},
        "links": [
            {"type": "dashboards", "title": "Penstock", "tags": ["penstock"], "asDropdown": False, "keepTime": True}
        ],
        "panels": panels,
    }  # fmt: skip


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}


def _instance(metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, instance)"
    return {
        "name": "instance", "label": "Instance", "type": "query", "datasource": _SOURCE, "definition": query,
        "query": {"query": query, "refId": "instances"}, "refresh": 2, "sort": 1, "multi": False, "includeAll": False,
        "current": {},
    }  # fmt: skip


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"stacking": stacking, "fillOpacity": 30 if panel.stacked else 0}
        options: dict[str, Any] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "auto"}
        if "version" in "".join(panel.targets.values()):
            options["textMode"] = "name"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for at, (expression, legend) in enumerate(panel.targets.items())
        ],
    }


DASHBOARDS = {
    "penstock-node.json": dashboard(
        "penstock-node", "Penstock: a host", "What one agent says of its host.", NODE, "penstock_build_info"
    ),
    "penstock-cluster.json": dashboard(
        "penstock-cluster", "Penstock: the cluster", "What the master says.", CLUSTER, "penstock_master_build_info"
    ),
}


def main(argv: list[str]) -> int:
    """The exit status."""
    outdated = []
    for name, made in DASHBOARDS.items():
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        path = _HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            outdated.append(name)
            if "--check" not in argv:
                path.write_text(text, encoding="utf-8")
    if outdated and "--check" in argv:
        sys.stderr.write(f"out of date: {', '.join(outdated)}; run python docs/observability/make_dashboards.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
