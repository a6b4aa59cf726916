"""Other settings while the master runs: their effect on the next round, the agents and the table of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from master.config import MasterConfig
from master.core import MasterSettings
from master.core import events as e
from penstock.config.settings import live_keys
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import Bed, bed, task


def change(made: Bed, **settings: Any) -> list[Any]:
    return made.serve(e.Reconfigured(replace(made.cluster.settings, **settings)))


def test_the_next_round_follows_the_new_order() -> None:
    made = bed("n", ordering="fifo", placement="capacity")
    made.job("n", "large", at=1.0)
    made.job("n", "small", at=2.0)
    made.ready("n", *(task(f"l{each}", 400) for each in range(4)), job="large")
    made.ready("n", *(task(f"s{each}", 400) for each in range(1)), job="small")
    assert [name for name, _ in made.round()] == ["l0", "l1"]
    change(made, ordering="fair")
    for name in ("l0", "l1"):
        made.serve(e.Received("n", api.TasksDone(job="large", tasks=[name])))
    assert "s0" in [name for name, _ in made.round()]


def test_agents_get_the_new_order_at_once() -> None:
    made = bed("n", ordering="ejf")
    made.job("n", "a", at=1.0)
    made.job("n", "b", at=2.0)
    first = {job.job: job.priority for job in made.cluster.jobs.values()}
    assert first["a"] > first["b"]
    change(made, ordering="srjf")
    assert made.cluster.dues.order_due > made.now, "it has been looked at"


def test_the_rate_of_an_unmeasured_node_is_the_new_default() -> None:
    made = bed("n", default_cpu_bytes_per_s=10.0)
    made.cluster.table.settle()
    assert made.cluster.table.rates[0, 0] == 40.0
    change(made, default_cpu_bytes_per_s=20.0)
    made.cluster.table.settle()
    assert made.cluster.table.rates[0, 0] == 80.0


def test_the_needs_of_tasks_are_computed_anew_where_the_network_begins_to_count() -> None:
    made = bed("n")
    made.job("n")
    made.ready("n", task("t", 2000))
    made.round()
    [waiting] = made.cluster.jobs["j"].tasks.values()
    assert waiting.need is not None
    change(made, network_aware=False)
    assert waiting.need is None


def test_more_jobs_may_run_at_once() -> None:
    made = bed("n", max_running_jobs=1)
    made.job("n", "a", at=1.0)
    made.job("n", "b", at=2.0)
    made.round()
    assert [job.admitted for job in made.cluster.jobs.values()] == [True, False]
    change(made, max_running_jobs=2)
    made.round()
    assert [job.admitted for job in made.cluster.jobs.values()] == [True, True]


def test_placed_tasks_stay_and_opportunistic_work_is_promoted_no_more() -> None:
    made = bed("n", promotion=True)
    made.job("n")
    made.ready("n", task("t", 100))
    made.round()
    change(made, promotion=False, ordering="las_mq", placement="tetris")
    assert made.cluster.jobs["j"].tasks["t"].node == "n"


#: Other values than the defaults, where half of one or its opposite is none.
_OTHER: dict[str, Any] = {
    "ordering": "fair", "placement": "tetris", "las_mq_inside": "fifo", "las_mq_weights": (2.0,), "las_mq_queues": 3,
    "tenants": {"u": "a"}, "weights": {"a": 2.0}, "bundles": {"b": "<1GB,1core>"}, "max_running_jobs": 3,
    "las_mq_step": 3.0, "executor_placement": "trc", "executor_demand": "mean", "reservation_planner": "gree_l",
}  # fmt: skip
#: Not the cluster's: the manager's.
_OF_THE_DESK = {"bundles"}


def _settings(key: str) -> MasterSettings:
    default = getattr(MasterConfig(), key)
    value = _OTHER.get(key, not default if isinstance(default, bool) else default)
    if value == default:
        value = default + "x" if isinstance(default, str) else default / 2 or 1
    return msgspec.structs.replace(MasterConfig(), **{key: value}).cluster_settings()


@pytest.mark.parametrize("key", sorted(live_keys(MasterConfig) - _OF_THE_DESK))
def test_a_key_that_is_read_again_reaches_the_running_cluster(key: str) -> None:
    before = MasterConfig().cluster_settings()
    assert before.changed(_settings(key)) != before


@pytest.mark.parametrize("key", sorted(set(MasterConfig.__struct_fields__) - live_keys(MasterConfig)))
def test_a_key_that_needs_a_restart_does_not(key: str) -> None:
    before = MasterConfig().cluster_settings()
    assert before.changed(_settings(key)) == before


def test_values_derived_from_other_settings_equal_values_derived_from_these() -> None:
    made = bed("n", ordering="fifo")
    change(made, ordering="las_mq", las_mq_queues=3)
    assert type(made.cluster.order.ordering).__name__ == "LasMq"
    before = made.cluster.order.ordering
    change(made, ept_s=3.0)
    assert made.cluster.order.ordering is before, "the turns are not dropped without need"
