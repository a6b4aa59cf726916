"""Tenants in a simulated cluster: the daemons' own objects give each its share, on the nodes, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.scenario import load, run

#: A user with a job of two commands, and one with five such jobs, which begin before.
_SCENARIO = """
model = "tasks"
[cluster]
nodes = [{ cores = 2, memory_bytes = 16e9 }]
[agent]
ranked = true
[policy]
ordering = "ORDERING"
TENANTS
[[jobs]]
name = "many"
user = "ann"
count = 5
[[jobs.stages]]
tasks = 2
command = { cpu_cores = 0, phases = [{ seconds = 20, cpu_cores = 1 }] }
[[jobs]]
name = "single"
user = "bob"
submitted_at_s = 2
[[jobs.stages]]
tasks = 2
command = { cpu_cores = 0, phases = [{ seconds = 20, cpu_cores = 1 }] }
"""


def single_s(directory: Path, ordering: str, tenants: str = "") -> float:
    """How long the single job takes."""
    file = directory / "scenario.toml"
    file.write_text(_SCENARIO.replace("ORDERING", ordering).replace("TENANTS", tenants))
    [made] = run(load(file).points())
    (job,) = [job for job in made.report.jobs if job.name == "single"]
    return job.response_s


@pytest.mark.parametrize("ordering", ["fifo", "gittins"])
def test_a_tenant_of_one_job_has_half_of_the_node_beside_one_of_five(tmp_path: Path, ordering: str) -> None:
    """Alone it takes 20 s, in a half 40 s, and behind all others 120 s."""
    if ordering == "fifo":
        assert single_s(tmp_path, ordering) > 90
    assert 36 < single_s(tmp_path, ordering, "weights = { bob = 1.0 }") < 50
    assert 24 < single_s(tmp_path, ordering, "weights = { bob = 3.0 }") < 34
