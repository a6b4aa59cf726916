"""The files that operators import (dashboards, alert rules, the scrape configuration) are well formed, and their
references exist.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus import used

_ROOT = Path(__file__).resolve().parents[3]
_DIRECTORY = _ROOT / "docs" / "observability"
_MAKER = runpy.run_path(str(_DIRECTORY / "make_dashboards.py"))
_DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")
_RULES = [
    rule
    for group in yaml.safe_load((_DIRECTORY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]


def anchors(page: str) -> set[str]:
    """Of its headings, as GitHub makes them."""
    return {line.lstrip("# ").strip().lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")}


def test_the_dashboards_are_those_that_are_declared() -> None:
    assert _MAKER["main"](["--check"]) == 0, "run python docs/observability/make_dashboards.py"


@pytest.mark.parametrize("name", _MAKER["DASHBOARDS"])
def test_grafana_can_import_it(name: str) -> None:
    board = json.loads((_DIRECTORY / name).read_text(encoding="utf-8"))
    assert board["uid"] and board["title"] and "id" not in board and "__inputs" not in board
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} <= {"row", "timeseries", "stat"}, "a plugin that Grafana has by itself"
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert place["x"] + place["w"] <= 24 and not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        targets = panel.get("targets", [])
        assert len({target["refId"] for target in targets}) == len(targets)
        for target in targets:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(?!__)\{?(\w+)", target["expr"])) <= variables.keys()
            assert used(target["expr"]).metrics


def test_the_rules_file_is_as_prometheus_wants_it() -> None:
    document = yaml.safe_load((_DIRECTORY / "alerts.yml").read_text(encoding="utf-8"))
    assert set(document) == {"groups"}
    names = [group["name"] for group in document["groups"]]
    assert len(set(names)) == len(names)
    assert all(set(group) <= {"name", "interval", "rules", "limit"} for group in document["groups"])
    alerts = [rule["alert"] for rule in _RULES]
    assert len(set(alerts)) == len(alerts)


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_whole_and_its_runbook_is_there(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations", "keep_firing_for"}
    assert re.fullmatch(r"Penstock[A-Z]\w+", rule["alert"])
    assert "for" not in rule or _DURATION.fullmatch(rule["for"])
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    asked = used(rule["expr"])
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors((_ROOT / page).read_text(encoding="utf-8"))
    for text in rule["annotations"].values():
        assert text.count("{{") == text.count("}}")
        aggregated = "sum by" in rule["expr"]
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert label in {"instance", "job"} or (not aggregated and asked.metrics), f"{label} is not in the result"


def test_every_entry_of_the_runbook_is_an_alert() -> None:
    page = (_DIRECTORY / "runbook.md").read_text(encoding="utf-8")
    headings = {line[3:] for line in page.splitlines() if line.startswith("## ")}
    assert headings == {rule["alert"] for rule in _RULES}


def test_the_scrape_configuration_uses_tls_and_a_token() -> None:
    document = yaml.safe_load((_DIRECTORY / "scrape.yml").read_text(encoding="utf-8"))
    assert document["rule_files"] == ["alerts.yml"]
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    assert set(jobs) == {"penstock-agent", "penstock-master"}
    for job in jobs.values():
        assert job["scheme"] == "https" and job["metrics_path"] == "/metrics"
        assert set(job["tls_config"]) == {"ca_file", "min_version"} and job["tls_config"]["min_version"] == "TLS13"
        assert set(job["authorization"]) == {"type", "credentials_file"} and job["authorization"]["type"] == "Bearer"
        assert job["static_configs"][0]["targets"]
    named = {used(rule["expr"]).metrics["up"]["job"].copy().pop() for rule in _RULES if "up{" in rule["expr"]}
    assert named == set(jobs)
