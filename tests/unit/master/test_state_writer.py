"""The next master knows the records of the former one; a store that is away stops nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from master import state_writer
from master.config import MasterConfig
from master.core import events as e
from master.core.drains import DrainRequest
from master.core.finished_jobs import FinishedJob
from master.core.history import Needed
from master.core.instructions import Keep
from master.daemon import Master
from master.ordering import HandOrder
from master.placement.lengths import KnownLengths
from master.service import MasterService
from master.state_writer import StateWriter
from master.store.database import Database, StoreError
from master.store.remembered import RememberedStore
from penstock.model import Capacity
from penstock.wire import master_api as api
from penstock.wire.cluster_api import Draining
from penstock.wire.jobs_api import JobView, StageView, TaskFailure
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import Bed, job_state, load, task

ROOT = DrainRequest(Draining("root", 1000.0))


def past(job: str, by: str = "") -> FinishedJob:
    failure = TaskFailure(task="t", stage="s", node="b", by="exit", exit_status=3, reason="no")
    view = JobView(
        job=job, name="daily", user="eve", origin="a", state="ended", submitted_at=1.0, ended_at=2.5,
        outcome="failed", progress=[StageView(stage="s", tasks=2, done=1, after=["r"])], failures=[failure],
    )  # fmt: skip
    return FinishedJob(view, by)


async def started(path: Path) -> tuple[StateWriter, dict[str, DrainRequest], list[FinishedJob]]:
    one = StateWriter(str(path / "master.db"))
    known = await one.start()
    return one, dict(known.drains), list(known.jobs)


async def test_the_next_master_knows_which_jobs_are_first_by_hand(tmp_path: Path) -> None:
    one, _, _ = await started(tmp_path)
    one.keep(Keep({}, {}, orders={"u": HandOrder("u", ("j-2", "j-1")), "": HandOrder("root", ("j-1",))}))
    await one.written()
    one.keep(Keep({}, {}, orders={"": None}))
    await one.close()
    again = StateWriter(str(tmp_path / "master.db"))
    assert (await again.start()).orders == {"u": HandOrder("u", ("j-2", "j-1"))}
    await again.close()


@pytest.mark.parametrize("paramstyle", ["qmark", "named"])  # as of drivers that take parameters by position, by name
def test_a_write_prepares_no_statement_anew(
    paramstyle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(sa, "create_engine", partial(sa.create_engine, paramstyle=paramstyle))
    database = Database(str(tmp_path / "master.db"))
    store = RememberedStore(database)
    prepared: list[object] = []
    sa.event.listen(database._engine, "before_execute", lambda *statement: prepared.append(statement))
    store.keep(Keep({"a": ROOT}, {"j": past("j"), "k": past("k")}))
    store.keep(Keep({"a": None}, {"k": None, "j": past("j", "root")}))
    assert not prepared
    assert (store.all().drains, store.all().jobs) == ({}, [past("j", "root")])
    store.close()


async def test_the_next_master_knows_how_long_tasks_and_jobs_take(tmp_path: Path) -> None:
    one, _, _ = await started(tmp_path)
    old, new = Needed((1.0, 2.0, 3.0), 4.0, (5.0, 6.0)), Needed((0.0, 0.0, 1.0), 2.0)
    one.keep(Keep(needed={("u", "sort"): old, ("u", 'a "job"'): old, ("v", "gone"): old}))
    one.keep(Keep(lengths=KnownLengths(2.0, (1.0, 3.0))))
    await one.written()
    one.keep(Keep(needed={("v", "gone"): None, ("u", "sort"): new}, lengths=KnownLengths(3.0, (3.0,))))
    await one.close()
    again = StateWriter(str(tmp_path / "master.db"))
    known = await again.start()
    assert known.needed == [(("u", 'a "job"'), old), (("u", "sort"), new)], "the latest is the last"
    assert known.lengths == KnownLengths(3.0, (3.0,))
    await again.close()


async def test_the_next_master_knows_it_in_the_same_order(tmp_path: Path) -> None:
    one, drains, jobs = await started(tmp_path)
    assert (drains, jobs) == ({}, [])
    one.keep(Keep({"a": ROOT, "b": DrainRequest(None)}, {"j-2": past("j-2"), "j-1": past("j-1", "root")}))
    one.keep(Keep({"c": ROOT}, {}))
    await one.close()
    one, drains, jobs = await started(tmp_path)
    assert drains == {"a": ROOT, "b": DrainRequest(None), "c": ROOT}
    assert jobs == [past("j-2"), past("j-1", "root")]
    one.keep(Keep({"a": None}, {"j-2": None, "j-3": past("j-3")}))
    one.keep(Keep({}, {"j-2": past("j-2", "eve")}))
    await one.close()
    one, drains, jobs = await started(tmp_path)
    assert list(drains) == ["b", "c"]
    assert jobs == [past("j-1", "root"), past("j-3"), past("j-2", "eve")]
    await one.close()


async def test_a_waiting_caller_finds_it_stored(tmp_path: Path) -> None:
    one, _, _ = await started(tmp_path)
    await one.written()
    for node in ("a", "b"):
        one.keep(Keep({node: ROOT}, {}))
        await one.written()
        store = RememberedStore(Database(str(tmp_path / "master.db")))
        assert node in store.all().drains
        store.close()
    await one.close()


async def test_records_in_short_order_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, writes = RememberedStore.keep, list[list[str]]()

    def watched(self: RememberedStore, changed: Keep) -> None:
        writes.append(list(changed.jobs))
        keep(self, changed)

    monkeypatch.setattr(RememberedStore, "keep", watched)
    monkeypatch.setattr(state_writer, "_TOGETHER_S", 60.0)  # a caller does not wait so long
    one, _, _ = await started(tmp_path)
    one.keep(Keep({}, {"j-1": past("j-1")}))
    for _ in range(10):
        await asyncio.sleep(0)
    one.keep(Keep({}, {"j-2": past("j-2")}))
    await one.written()
    assert writes == [["j-1", "j-2"]]
    one.keep(Keep({}, {"j-3": past("j-3")}))
    await one.close()
    assert writes[1:] == [["j-3"]]


async def test_a_record_that_could_not_be_stored_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = RememberedStore.keep
    tries = []

    def fails_once(self: RememberedStore, changed: Keep) -> None:
        tries.append((dict(changed.drains), list(changed.jobs)))
        if len(tries) == 1:
            raise StoreError("store: the disk is full")
        keep(self, changed)

    monkeypatch.setattr(RememberedStore, "keep", fails_once)
    one, _, _ = await started(tmp_path)
    one.keep(Keep({"a": ROOT, "b": ROOT}, {"j-1": past("j-1"), "j-2": past("j-2")}))
    await one.written()
    one.keep(Keep({"a": None}, {"j-1": None, "j-3": past("j-3")}))
    await one.close()
    assert tries == [({"a": ROOT, "b": ROOT}, ["j-1", "j-2"]), ({"a": None, "b": ROOT}, ["j-2", "j-1", "j-3"])]
    one, drains, jobs = await started(tmp_path)
    assert (drains, jobs) == ({"b": ROOT}, [past("j-2"), past("j-3")])
    await one.close()


async def test_while_the_store_is_away_the_ends_of_a_user_do_not_displace_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, away = RememberedStore.keep, True

    def fails(self: RememberedStore, changed: Keep) -> None:
        if away:
            raise StoreError("store: the disk is full")
        keep(self, changed)

    monkeypatch.setattr(RememberedStore, "keep", fails)
    monkeypatch.setattr(state_writer, "MOST", 2)
    one, _, _ = await started(tmp_path)
    one.keep(Keep({}, {"of-another": past("of-another"), "j-0": past("j-0")}))
    for number in range(1, 10):
        one.keep(Keep({}, {f"j-{number}": past(f"j-{number}"), f"j-{number - 1}": None}))
    away = False
    await one.close()
    one, _, jobs = await started(tmp_path)
    assert jobs == [past("of-another"), past("j-9")]
    await one.close()


async def test_a_transaction_without_descriptors_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy loads modules when it first needs them, which fails without a descriptor."""
    one, _, _ = await started(tmp_path)
    begin = sa.Engine.begin

    def without(_: sa.Engine) -> None:
        monkeypatch.setattr(sa.Engine, "begin", begin)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(sa.Engine, "begin", without)
    one.keep(Keep({"a": ROOT}, {}))
    await one.written()
    await one.close()
    one, drains, _ = await started(tmp_path)
    assert drains == {"a": ROOT}
    await one.close()


async def test_a_store_that_cannot_be_had_stops_nothing(tmp_path: Path) -> None:
    one = StateWriter(str(tmp_path / "none" / "master.db"))
    known = await one.start()
    assert (known.drains, known.jobs) == ({}, [])
    one.keep(Keep({"a": ROOT}, {}))
    await one.written()
    await one.close()


def test_the_end_of_a_job_stored_by_an_older_master_counts_as_reported(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "master.db"))
    store = RememberedStore(database)
    store.keep(Keep({}, {"j-1": past("j-1")}))
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE ended_jobs SET past = json_remove(past, '$.reported')")
    assert [job.reported for job in store.all().jobs] == [True]
    store.close()


def test_the_end_of_a_job_stored_by_a_master_that_knew_fewer_fields_is_read(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "master.db"))
    store = RememberedStore(database)
    store.keep(Keep({}, {"j-1": past("j-1")}))
    fields = "'$.view.tasks_skipped', '$.view.progress[0].skipped', '$.view.ran_on'"
    with database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE ended_jobs SET past = json_remove(past, {fields})")
    assert store.all().jobs == [past("j-1")]
    store.close()


def test_a_record_that_cannot_be_read_is_left_out_and_reported_in_a_line(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "master.db"))
    store = RememberedStore(database)
    store.keep(Keep({"a": ROOT, "b": ROOT}, {"j-1": past("j-1"), "j-2": past("j-2")}))
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE node_drains SET said = '{' WHERE node = 'a'")
        connection.exec_driver_sql("UPDATE ended_jobs SET past = '{}' WHERE job = 'j-1'")
    with capture_logs() as logged:
        known = store.all()
    assert (known.drains, known.jobs) == ({"b": ROOT}, [past("j-2")])
    assert [each["what"] for each in logged] == ["DrainRequest", "FinishedJob"]
    store.close()


async def test_a_master_hands_it_to_the_next_one_with_the_ept_that_it_has_learnt(tmp_path: Path) -> None:
    config = MasterConfig(listen=f"{tmp_path}/master.sock", http="127.0.0.1:0", store=str(tmp_path / "master.db"))
    first = Master(config)
    await first.start()
    register = api.Register(
        protocol=api.PROTOCOL, node="a", version="0", capacity=Capacity(cores=4.0, memory_bytes=1 << 30), load=load(),
        complete=True,
    )  # fmt: skip
    ready = api.ReadyTasks(job="j", stage="s", tasks=[task(f"t{index}", cpu=200) for index in range(4)])
    events = [
        e.Received("a", register),
        e.Received("a", job_state("j")),
        e.Received("a", ready),
        e.RoundDue(1.0),
        e.RoundDue(2.0),
    ]
    for event in [*events, e.Received("a", api.JobEnded(job="j"))]:
        first.service.dispatch(event)
    asked = OnBehalf(user="root", operator=True, call="drain", params={"nodes": ["a"]})
    await first.service.of_nodes(asked)
    await first.close()
    second = Master(config)
    await second.start()
    assert list(second.service.cluster.drains) == ["a"]
    assert [past.view.job for past in second.service.cluster.past] == ["j"]
    assert second.service.cluster.table.ept_s == first.service.cluster.table.ept_s == 4.0, "200 MB at 50 MB/s"
    await second.close()


async def test_an_order_is_in_the_store_when_it_is_answered(tmp_path: Path) -> None:
    """The master may be killed before its user gets the answer."""
    path = str(tmp_path / "master.db")
    state_writer = StateWriter(path)
    await state_writer.start()
    made = Bed()
    made.now = time.monotonic()
    made.node("a")
    made.job("a", "one", user="u")
    service = MasterService(made.cluster, CollectorRegistry())
    service.state_writer = state_writer
    for jobs in (["one"], [], ["one"]):
        await service.of_jobs(OnBehalf(user="u", operator=False, call="order_jobs", params={"jobs": jobs}))
        store = RememberedStore(Database(path))
        assert store.all().orders == ({"u": HandOrder("u", ("one",))} if jobs else {})
        store.close()
    await state_writer.close()
