"""The master counts the sizes of jobs that end, by user and application, and orders those that come by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.finished_jobs import FinishedJob
from master.core.instructions import Keep
from master.explain.recording import record
from master.explain.replay import explained
from master.ordering.sizes import LEAST
from master.state_writer import StateWriter
from master.store.database import Database
from penstock.model import ContainerSpec, Executor, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.jobs_api import JobView
from tests.unit.master.cluster_bed import Bed, bed, task


def ran(made: Bed, job: str, service_s: float, **more: str) -> None:
    """A job that received so much, and ended."""
    made.job("a", job, **more)
    made.ready("a", task("t"), job=job)
    made.round()
    if service_s:
        made.heartbeat("a", jobs=[api.JobUse(job=job, service_s=service_s)])
    made.serve(e.Received("a", api.TasksDone(job=job, tasks=["t"])))
    made.serve(e.Received("a", api.JobEnded(job=job)))


def order(made: Bed) -> list[str]:
    return made.cluster.order.rank(made.now).order()


def both(made: Bed) -> list[str]:
    made.job("a", "j1", at=1.0, name="big")
    made.job("a", "j2", at=2.0, name="small")
    return order(made)


def test_jobs_that_end_teach_the_order() -> None:
    made = bed("a", ordering="gittins")
    assert both(made) == ["j1", "j2"]
    for run in range(3):
        ran(made, f"b{run}", 500.0, name="big")
        ran(made, f"s{run}", 5.0, name="small")
    assert order(made) == ["j2", "j1"]


def test_another_order_learns_too_and_its_knowledge_counts_once_the_order_is_changed() -> None:
    made = bed("a", ordering="ejf")
    ran(made, "b", 500.0, name="big")
    ran(made, "s", 5.0, name="small")
    assert both(made) == ["j1", "j2"]
    made.serve(e.Reconfigured(replace(made.cluster.settings, ordering="gittins")))
    assert order(made) == ["j2", "j1"]


def test_a_job_of_another_user_is_another_job() -> None:
    made = bed("a", ordering="gittins")
    for run in range(5):
        ran(made, f"x{run}", 500.0, name="sort", user="eve")
        ran(made, f"y{run}", 5.0, name="sort", user="bob")
    made.job("a", "eves", at=1.0, name="sort", user="eve")
    made.job("a", "bobs", at=2.0, name="sort", user="bob")
    assert order(made) == ["bobs", "eves"]


def test_a_job_is_of_the_application_that_its_executors_declare() -> None:
    made = bed("a", ordering="gittins")
    made.job("a", "j", name="tuesday")
    command = ContainerSpec(argv=["true"], cpu_cores=1.0)
    executor = TaskRequest(task="e", usage=task("t").usage, command=command, executor=Executor(application="sort"))
    made.ready("a", executor)
    assert made.cluster.jobs["j"].application == "sort"


def test_a_job_that_was_over_before_a_heartbeat_reported_it_is_of_the_smallest_size() -> None:
    made = bed("a", ordering="gittins")
    ran(made, "j", 0.0, name="quick")
    assert made.cluster.sizes.count("u", "quick") == pytest.approx((1.0, 1.0, 1.0))
    [known] = [each for each in made.cluster.sizes.of([("u", "quick")]) if each.kind == ("u", "quick")]
    assert LEAST > 0
    assert list(known.cells) == [0]


def test_a_job_of_which_tasks_were_refused_teaches_nothing() -> None:
    made = bed("a", ordering="gittins")
    made.job("a", "j", name="big")
    made.serve(e.Received("a", api.JobEnded(job="j", failed="1 task refused; first t: too large")))
    assert len(made.cluster.sizes) == 0


def test_a_recorded_round_has_the_knowledge_of_the_order() -> None:
    made = bed("a", ordering="gittins")
    ran(made, "b", 500.0, name="big")
    ran(made, "s", 5.0, name="small")
    both(made)
    said = explained(record(made.cluster, made.now))
    assert [each["job"] for each in said["order"]] == ["j2", "j1"]
    assert "1 job of small" in said["order"][0]["why"]


async def known_after(path: Path, *changes: Keep) -> e.StateRestored:
    """Return the knowledge of a master after one that kept these."""
    one = StateWriter(str(path))
    await one.start()
    for change in changes:
        one.keep(change)
    await one.close()
    other = StateWriter(str(path))
    found = await other.start()
    await other.close()
    return found


def next_one(found: e.StateRestored) -> Bed:
    made = Bed(ordering="gittins")
    made.cluster = Cluster(MasterSettings(ordering="gittins", gather_s=0.0))
    made.serve(found)
    made.node("a")
    return made


async def test_learnt_sizes_survive_a_restart(tmp_path: Path) -> None:
    made = bed("a", ordering="gittins")
    ran(made, "b", 500.0, name="big")
    ran(made, "s", 5.0, name="small")
    kept = [each for each in made.other if isinstance(each, Keep)]
    after = next_one(await known_after(tmp_path / "master.db", *kept))
    assert both(after) == ["j2", "j1"]
    kinds = [("u", "big"), ("u", "small")]
    assert (after.cluster.sizes.probabilities(kinds) == made.cluster.sizes.probabilities(kinds)).all()


async def test_a_store_that_knows_no_sizes_yet_derives_them_from_the_jobs_that_ended(tmp_path: Path) -> None:
    """An older master has kept how jobs ended, and nothing else."""
    path = tmp_path / "master.db"
    jobs = {
        f"j{n}": FinishedJob(
            JobView(
                job=f"j{n}", name=name, user="u", origin="a", state="ended", submitted_at=1.0, outcome=outcome,
                service_container_s=service_s,
            )
        )
        for n, (name, service_s, outcome) in enumerate(
            [("big", 500.0, "succeeded"), ("small", 5.0, "failed"), ("stopped", 5.0, "cancelled")]
        )
    }  # fmt: skip
    await known_after(path, Keep({}, dict(jobs)))
    database = Database(str(path))
    with database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE job_sizes")
    database.close()
    made = next_one(await known_after(path))
    assert both(made) == ["j2", "j1"]
    assert made.cluster.sizes.count("u", "stopped")[0] == 0
    assert [each.sizes for each in made.other if isinstance(each, Keep)], "and are written down as sizes from now on"


async def test_a_kind_that_is_dropped_is_dropped_in_the_store(tmp_path: Path) -> None:
    made = bed("a")
    ran(made, "b", 500.0, name="big")
    [kept] = [each for each in made.other if isinstance(each, Keep) and each.sizes]
    gone = Keep({}, {}, {("u", "big"): None, ("", "", "big"): None})
    found = await known_after(tmp_path / "master.db", kept, gone)
    assert {known.kind for known in found.sizes} == {(), ("u",)}
