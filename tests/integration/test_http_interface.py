"""The HTTP interface of real daemons: as OpenAPI describes it, as Prometheus wants it, as the dashboards use it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent import http_documents as of_agent
from master import http_documents as of_master
from tests.http_bed import RDL, TOKEN, Bed, bed
from tests.integration.conftest import Daemon
from tests.prometheus import Exposed, exposed, faults, used

_DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "observability"
#: Labels that are not in our own pages: Prometheus adds them.
_ADDED = {"instance", "job"}
_WORDS = {
    "kind": {"cpu", "disk", "network"},
    "resource": {"cpu", "memory", "disk", "network"},
    "class": {"regular", "opportunistic"},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("http")) as made:
        yield made


@pytest.fixture(scope="module")
def metrics(running: Bed) -> dict[str, Exposed]:
    """Of both daemons."""
    return exposed(running.agent.get("/metrics").decode()) | exposed(running.master.get("/metrics").decode())


def one_of(running: Bed, name: str) -> Daemon:
    return running.agent if name == "agent" else running.master


# ---------------------------------------------------------------- the interface


@pytest.mark.parametrize("name", ["agent", "master"])
def test_schemathesis_finds_nothing(running: Bed, tmp_path: Path, name: str) -> None:
    """Every operation with values that fit and values that do not: no 5xx, and answers as they are described."""
    command = [
        str(Path(sys.executable).with_name("st")), "run",
        f"http://{one_of(running, name).addresses['http']}/openapi.json",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--seed", "1", "--no-color",
        "--exclude-path", "/events",  # it never ends
        "--request-timeout", "60", "--suppress-health-check", "all",  # the time shows only how busy this machine is
        # No schema can express that an expression of RDL can be read, and that a time is after another one.
        "--exclude-checks", "positive_data_acceptance",
        "-H", f"Authorization: Bearer {TOKEN}",
    ]  # fmt: skip
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=270, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_status_documents_are_as_they_are_described(running: Bed) -> None:
    """Down to the key: a new key must be described."""
    agent = msgspec.json.decode(running.agent.get("/status"), type=of_agent.Status)
    assert {one.container_class for one in agent.containers} == {"regular", "opportunistic"}
    assert any(one.profile is not None for one in agent.containers) and agent.jobs[0].job == running.job
    master = msgspec.json.decode(running.master.get("/status"), type=of_master.Status)
    assert master.nodes["alpha"].state == "connected" and master.jobs[running.job].ready == 1


def test_the_master_s_explanations_and_plans_match_their_description(running: Bed) -> None:
    explained = msgspec.json.decode(running.master.get(f"/explain?job={running.job}"), type=of_master.Explanation)
    assert explained.stages[0].lacks
    said = msgspec.json.decode(running.master.get("/reservations"), type=of_master.ReservationsThen)
    assert said.reservations[0].user == "eve"
    assert msgspec.json.decode(running.master.get("/plan"), type=of_master.Plan).promised
    profiles = msgspec.json.decode(running.master.get("/profiles"), type=list[of_master.ProfileEntry])
    assert [one.application for one in profiles] == ["word count"]
    page = running.master.get("/profiles/eve/word%20count")
    assert len(msgspec.json.decode(page, type=of_master.ApplicationProfile).runs) == 4


def test_the_documents_are_linked_and_their_references_exist(running: Bed) -> None:
    for daemon in (running.agent, running.master):
        document = json.loads(daemon.get("/openapi.json"))
        for reference in _references(document):
            found: Any = document
            for part in reference.removeprefix("#/").split("/"):
                found = found[part]
        assert document["openapi"].startswith("3.1") and "/openapi.json" in document["paths"]


def test_the_page_about_it_names_every_operation(running: Bed) -> None:
    page = (_DIRECTORY.parent / "http.md").read_text(encoding="utf-8")
    for daemon in (running.agent, running.master):
        for path, methods in json.loads(daemon.get("/openapi.json"))["paths"].items():
            assert all(f"| `{method.upper()} {path}` " in page for method in methods), path


def test_the_page_about_metrics_names_every_one(metrics: dict[str, Exposed]) -> None:
    page = (_DIRECTORY / "README.md").read_text(encoding="utf-8")
    for name, metric in metrics.items():
        short = name.removeprefix("penstock_").removeprefix("master_")
        if metric.kind == "histogram":
            short = short.rpartition("_")[0]
        resource = re.fullmatch(r"(cpu|memory|disk|network)_(capacity|promised|used|slack)_(cores|bytes|ratio)", short)
        listed = f"`{resource[1]}_…_{resource[3]}`" if resource else f"`{short}`"
        assert listed in page or short.startswith("process_") or f"{short}" in _SUMMED, f"{name} is not in the page"


#: Counted, and summed up in the page as `…`.
_SUMMED = {"tasks_preempted_for_promises_total", "tasks_stopped_for_drains_total"}


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (each for key, each in value.items() if key == "$ref")
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


@pytest.mark.parametrize(
    ("name", "method", "path", "body", "token", "status", "said"),
    [
        ("agent", "DELETE", "/status", None, TOKEN, 405, "DELETE /status: this address takes GET, HEAD"),
        ("agent", "GET", "/statu", None, TOKEN, 404, "/statu: there is nothing here"),
        ("agent", "GET", "/status?at=1", None, TOKEN, 400, "at: no parameter of this address; known: none"),
        ("master", "PATCH", "/reservations", None, TOKEN, 405, "takes GET, HEAD, POST"),
        ("master", "GET", "/explain", None, TOKEN, 400, "job: is needed: the id of a job"),
        ("master", "GET", "/explain?job=none", None, TOKEN, 404, "no job 'none'"),
        ("master", "GET", "/plan?until=5&since=9", None, TOKEN, 400, "until: not after since"),
        (
            "master",
            "GET",
            "/plan?by=users",
            None,
            TOKEN,
            400,
            "by: 'users' does not fit; expected: reservation or user",
        ),
        ("master", "POST", "/reservations", {"rdl": RDL}, TOKEN, 400, "user"),
        ("master", "POST", "/reservations", {"rdl": "atom(", "user": "eve"}, TOKEN, 400, "expected"),
        ("master", "POST", "/reservations", {"rdl": RDL, "user": "eve"}, "wrong", 401, "Bearer TOKEN"),
        ("master", "PUT", "/reservations/none", {"rdl": RDL}, TOKEN, 404, "no reservation 'none'"),
        ("master", "GET", "/profiles/eve/nothing", None, TOKEN, 404, "no runs of 'eve/nothing' are kept"),
    ],
)
def test_each_mistake_gets_one_line(
    running: Bed, name: str, method: str, path: str, body: object, token: str, status: int, said: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        running.ask(one_of(running, name), method, path, body, token)
    with caught.value as answer:
        line = json.loads(answer.read())["error"]
        assert (answer.code, answer.headers["Content-Type"].partition(";")[0]) == (status, "application/json")
        assert said in line and "\n" not in line


# ---------------------------------------------------------------- metrics


@pytest.mark.parametrize("name", ["agent", "master"])
def test_metrics_are_named_as_prometheus_wants_it(running: Bed, name: str) -> None:
    page = one_of(running, name).get("/metrics").decode()
    assert faults(page) == []
    prefix = "penstock_" if name == "agent" else "penstock_master_"
    assert all(metric.startswith(prefix) for metric in exposed(page))


def test_no_label_has_a_value_that_a_client_chose(metrics: dict[str, Exposed], running: Bed) -> None:
    status = running.agent.status()
    containers = [one[key] for one in status["containers"] for key in ("container", "name", "user")]
    chosen = {running.job, "nightly", "alpha", "eve", "word count", *containers}
    for name, metric in metrics.items():
        for label, values in metric.labels.items():
            assert not values & chosen, f"{name}: {label}"
            assert len(values) <= 40, f"{name}: {label} has {len(values)} values"
            assert values <= _WORDS.get(label, values), f"{name}: {label}"


def expressions() -> Iterator[tuple[str, str, str]]:
    """Of all dashboards and rules: where it is, the expression, and the legend."""
    for name in ("penstock-node.json", "penstock-cluster.json"):
        board = json.loads((_DIRECTORY / name).read_text(encoding="utf-8"))
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']}", target["expr"], target["legendFormat"]
    for group in yaml.safe_load((_DIRECTORY / "alerts.yml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield f"alerts.yml: {rule['alert']}", rule["expr"], " ".join(rule["annotations"].values())


def test_every_metric_and_label_in_dashboards_and_rules_is_there(metrics: dict[str, Exposed]) -> None:
    for where, expression, legend in expressions():
        asked = used(expression)
        named = {label for metric in asked.metrics if metric in metrics for label in metrics[metric].labels} | _ADDED
        for metric, labels in asked.metrics.items():
            if metric == "up":  # Prometheus's own
                continue
            assert metric in metrics, f"{where}: there is no {metric}"
            for label, values in labels.items():
                has = metrics[metric].labels.get(label)
                assert has is not None or label in _ADDED, f"{where}: {metric} has no label {label}"
                for value in (one for said in values for one in said.split("|") if has is not None):
                    assert value in has or value.startswith("$"), f"{where}: no {metric} has {label}={value}"
        assert asked.grouped <= named, f"{where}: nothing has {asked.grouped - named}"
        shown = {word.split("labels.")[-1] for word in _between(legend) if "value" not in word}
        assert shown <= named, f"{where}: the legend shows {shown - named}"


def _between(text: str) -> list[str]:
    return [part.partition("}}")[0].strip() for part in text.split("{{")[1:]]
