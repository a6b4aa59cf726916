"""What is said to be first by hand is in the store before its user hears of it: the master may be killed then."""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from master.ordering import HandOrder
from master.service import MasterService
from master.state_writer import StateWriter
from master.store.database import Database
from master.store.remembered import RememberedStore
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import Bed


async def test_an_order_is_in_the_store_when_it_is_answered(tmp_path: Path) -> None:
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
