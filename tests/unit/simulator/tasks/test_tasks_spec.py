"""The keys of a scenario of the model ``tasks``, and the errors on one that makes no sense."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.scenario import ScenarioError, load
from simulator.scenario.models import MODELS
from simulator.tasks import Spec, run, spec
from simulator.tasks.build import jobs_of
from simulator.tasks.measure import straggling

NODE = {"cores": 2, "memory_bytes": 1e9}


def scenario(**tables: Any) -> Spec:
    document = {"cluster": {"nodes": [NODE]}} | tables
    return msgspec.convert(document, Spec)


def job(*stages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "j", "stages": list(stages)} | keys


WORK = {"monotasks": [{"kind": "cpu", "seconds": 1}]}


def test_the_scenario_knows_the_model() -> None:
    assert MODELS["tasks"].spec is Spec
    assert MODELS["tasks"].run is run


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("cluster.nodes.0.cores", math.inf, "cluster.nodes[0].cores: a finite number below 2^63 expected"),
        ("cluster.nodes.0.memory_bytes", 2**63, "cluster.nodes[0].memory_bytes: a finite number below 2^63"),
        ("agent.t_alloc", math.nan, "agent.t_alloc: a finite number below 2^63 expected"),
        ("cluster.sample_s", 1e-9, "cluster.sample_s: a number of at least 0.001 expected"),
        ("cluster.progress_s", 1e-9, "cluster: progress_s: 0, or at least 0.001 expected"),
        ("reservations.step_s", 1e-9, "reservations.step_s: a number of at least 0.001 expected"),
        ("executors.heartbeat_s", 1e-9, "executors.heartbeat_s: a number of at least 0.001 expected"),
        ("cluster.look_s", 1e-9, "cluster: look_s: 0, or at least 0.001 expected"),
        ("measure.timeline_s", 1e-9, "measure: timeline_s: 0, or at least 0.001 expected"),
    ],
)
def test_a_workload_that_would_never_end_is_named_by_its_key(
    tmp_path: Path, key: str, value: float, complaint: str
) -> None:
    path = tmp_path / "x.toml"
    path.write_text('model = "tasks"\ncluster = { nodes = [{ cores = 1, memory_bytes = 1e9 }] }\n')
    with pytest.raises(ScenarioError) as caught:
        load(path, {key: value}).points()
    assert str(caught.value).startswith(f"{path}: {complaint}")


def test_seconds_are_work_on_an_idle_slot() -> None:
    monotasks = [{"kind": "cpu", "seconds": 2}, {"kind": "network", "seconds": 0.5}, {"kind": "disk", "bytes": 7}]
    (only,) = jobs_of(scenario(jobs=[job({"monotasks": monotasks})]), 0)
    sizes = [monotask.input_bytes for monotask in only.stages[0].tasks[0].monotasks]
    assert sizes == [100_000_000, 625_000_000, 7]


def test_a_stage_waits_for_the_one_before_unless_it_names_others() -> None:
    stages = [WORK | {"name": "a", "repeat": 2}, WORK | {"name": "b"}, WORK | {"name": "c", "after": ["a.0"]}]
    (only,) = jobs_of(scenario(jobs=[job(*stages)]), 0)
    assert [(stage.name, stage.after) for stage in only.stages] == [
        ("a.0", ()),
        ("a.1", ("a.0",)),
        ("b", ("a.1",)),
        ("c", ("a.0",)),
    ]


def test_jobs_of_one_table_come_at_intervals_and_each_has_another_origin() -> None:
    jobs = jobs_of(scenario(jobs=[job(WORK, count=3, every_s=2.0, submitted_at_s=1.0)]), 0)
    assert [(one.name, one.submitted_at_s, one.origin) for one in jobs] == [
        ("j-1", 1.0, 0),
        ("j-2", 3.0, 1),
        ("j-3", 5.0, 2),
    ]


def test_the_seed_draws_the_sizes() -> None:
    spec = scenario(jobs=[job(WORK | {"tasks": 5, "spread": 0.5})])
    assert jobs_of(spec, 1) == jobs_of(spec, 1)
    assert jobs_of(spec, 1) != jobs_of(spec, 2)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "no jobs"),
        ({"jobs": [job(WORK), job(WORK)]}, "two jobs are named 'j'"),
        ({"jobs": [job(WORK | {"after": ["x"]})]}, "stage 's0' waits for 'x', which is not before it"),
        ({"jobs": [job(WORK | {"name": "s"}, WORK | {"name": "s"})]}, "stage 's' is named twice"),
        ({"jobs": [job({})]}, "either monotasks or a command"),
        ({"jobs": [job(WORK)], "policy": {"orderign": "ejf"}}, r"policy\.orderign; did you mean 'ordering'"),
        ({"jobs": [job(WORK)], "policy": {"ept_s": "long"}}, r"\[policy\]: ept_s: a number expected"),
        ({"jobs": [job(WORK)], "policy": {"ept_s": -3}}, r"\[policy\]: ept_s: a number of at least 0 expected"),
        (
            {"jobs": [job(WORK)], "policy": {"tenants": {"ann": "a", "eve": 5}}},
            r"\[policy\]: tenants\.eve: text expected",
        ),
        ({"jobs": [job(WORK)], "policy": {"weights": {"a/b": "x"}}}, r'\[policy\]: weights\."a/b": a number expected'),
        ({"jobs": [job(WORK)], "policy": {"ordering": "srfj"}}, r"\[policy\]: ordering: "),
        ({"jobs": [job(WORK)], "agent": {"node": "x"}}, "unknown key agent.node"),
        ({"jobs": [job(WORK)], "agent": {"preemption": {"afer": 1}}}, r"preemption\.afer; .*'after'"),
    ],
)
def test_a_senseless_scenario_gets_one_line(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        run(scenario(**tables), 0)
    assert "\n" not in str(error.value)


def test_unmeasured_rates_are_those_of_the_first_node_unless_the_policy_sets_others() -> None:
    assert scenario().master().default_network_bytes_per_s == 1.25e9
    assert scenario(policy={"default_network_bytes_per_s": 5.0}).master().default_network_bytes_per_s == 5.0


def test_settings_of_the_agents_reach_them() -> None:
    around = scenario(agent={"t_alloc": 0.5, "preemption": {"thresholds": {"memory": 0.7}}}).surroundings()
    assert around.agent.t_alloc == 0.5
    assert around.agent.preemption.thresholds.memory == 0.7
    assert around.agent.preemption.after == 3, "keys that are not set stay"


def test_the_kernel_knows_the_order_of_jobs_as_installed_unless_a_scenario_says_otherwise() -> None:
    assert scenario().surroundings().agent.ranked
    assert not scenario(agent={"ranked": False}).surroundings().agent.ranked


def test_the_same_seed_gives_the_same_report() -> None:
    stages = [WORK | {"tasks": 6, "spread": 0.5}, WORK | {"tasks": 2}]
    spec = scenario(jobs=[job(*stages, count=3, every_s=0.5)])
    assert msgspec.json.encode(run(spec, 3)) == msgspec.json.encode(run(spec, 3))


def test_a_job_alone_takes_its_critical_path_and_slowdown_is_measured_against_it() -> None:
    stages = [WORK | {"tasks": 2}, WORK]
    spec = scenario(jobs=[job(*stages, count=2)], measure={"alone": True})
    result = run(spec, 0)
    for each in result.jobs:
        assert each.alone_s == pytest.approx(2.0, abs=0.4), "two stages of a second, each after a round"
    assert result.jobs[0].slowdown == pytest.approx(1.0, abs=0.2)
    assert result.jobs[1].slowdown is not None
    assert result.jobs[1].slowdown > 1.3


def test_commands_announce_their_lengths_where_these_are_known() -> None:
    command = {"kind": "disk", "phases": [{"seconds": 2, "cpu_cores": 1}, {"seconds": 3}]}
    stages = [{"command": command}, WORK]
    for known, disk_bytes in ((False, 0.0), (True, 5 * 100e6)):
        (only,) = jobs_of(scenario(jobs=[job(*stages)], known_lengths=known), 0)
        told, monotasks = (stage.tasks[0].usage() for stage in only.stages)
        assert (told.cpu, told.disk) == (0.0, disk_bytes)
        assert monotasks.cpu == 50e6


def test_jobs_come_from_tpch_dags(tmp_path: Path) -> None:
    stages = [{"num_tasks": 3, "mean_task_ms": 1000.0}, {"num_tasks": 1, "mean_task_ms": 500.0}]
    file = tmp_path / "dags.json"
    file.write_text(json.dumps({"2g/q1": {"edges": [[0, 1]], "stages": stages}}), encoding="utf-8")
    table = {"file": str(file), "count": 2, "scales": {"2g": 1}, "time_scale": 2.0}
    first, second = jobs_of(scenario(tpch=table), 0)
    assert (first.name, second.submitted_at_s) == ("1:2g/q1", 5.0)
    scan, join = first.stages
    assert [(m.kind.value, m.input_bytes) for m in scan.tasks[0].monotasks] == [("disk", 25_000_000), ("cpu", 10**8)]
    assert [(m.kind.value, m.input_bytes) for m in join.tasks[0].monotasks] == [
        ("network", 50_000_000),
        ("cpu", 50_000_000),
    ]
    assert join.after == ("s0",)
    assert first.memory_bytes == 3 * 2 * 10**8
    with pytest.raises(ValueError, match=r"tpch\.scales: no such query of scale '9g'; there are 2g"):
        jobs_of(scenario(tpch=table | {"scales": {"9g": 1}}), 0)


def test_jobs_come_from_workflows(tmp_path: Path) -> None:
    tasks = [
        {"id": "b", "parents": ["a"], "in_bytes": 5, "out_bytes": 6, "runtime_s": 1, "avg_cpu_pct": 90},
        {"id": "a", "parents": [], "in_bytes": 7, "out_bytes": 8, "runtime_s": 2, "avg_cpu_pct": 90, "mem_bytes": 9},
    ]
    file = tmp_path / "workflows.json"
    runs = [{"instance": name, "makespan_s": 3, "machines": 1, "tasks": tasks} for name in ("w1", "w2")]
    file.write_text(json.dumps(runs), encoding="utf-8")
    table = {"file": str(file), "every_s": 4, "time_scale": 0.5}
    first, second = jobs_of(scenario(workflows=table), 0)
    assert (first.name, second.name, second.submitted_at_s) == ("w1", "w2", 4.0)
    child, parent = first.stages
    assert child.after == (parent.name,)
    assert parent.tasks[0].memory_bytes == 9
    assert [(m.kind.value, m.input_bytes) for m in parent.tasks[0].monotasks] == [
        ("network", 7),
        ("cpu", 50_000_000),
        ("disk", 8),
    ]
    assert run(scenario(workflows=table), 0).makespan_s == pytest.approx(4 + 1.5, abs=0.5)
    with pytest.raises(ValueError, match=r"workflows\.names: no instance 'w3'"):
        jobs_of(scenario(workflows=table | {"names": ["w3"]}), 0)


def test_stragglers_end_far_above_the_third_quartile() -> None:
    assert straggling([1.0, 1.1, 1.2, 1.3, 1.4, 5.0]) == (1, pytest.approx(5.0 - (1.375 + 1.5 * 0.25)))
    assert straggling([1.0, 1.1, 1.2, 1.3]) == (0, 0.0)
    assert straggling([2.0] * 10) == (0, 0.0)
    assert straggling([1.0, 9.0]) == (0, 0.0), "of so few nothing can be said"


def test_every_key_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[4] / "docs" / "simulate-tasks.md").read_text(encoding="utf-8")
    tables = [spec.Spec, *(table for table in vars(spec).values() if isinstance(table, type))]
    declared = [t for t in tables if issubclass(t, spec.Table) and t is not spec.Table]
    assert len(declared) > 8
    for table in declared:
        for key in table.__struct_fields__:
            assert re.search(rf"`[^`]*\b{key}\b[^`]*`", page), f"docs/simulate-tasks.md does not say what {key} is"
