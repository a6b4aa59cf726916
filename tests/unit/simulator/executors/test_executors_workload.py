"""Applications: the shapes of Table II, their arrival, and recorded usage."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from simulator.executors.shapes import TABLE_II, levels, profile
from simulator.executors.spec import Spec
from simulator.executors.workload import Application, applications_of
from simulator.traces.errors import TraceError

SHAPES = [(name, column) for name in TABLE_II for column in range(4)]


@pytest.mark.parametrize(("name", "column"), SHAPES)
def test_levels_have_the_statistics_of_table_ii(name: str, column: int) -> None:
    shape = TABLE_II[name][column]
    values = np.concatenate(levels(shape, 1000))
    assert len(values) == 1000 and values.max() == 1
    assert values.min() == pytest.approx(1 / shape.peak_to_trough)
    assert (values == 1).mean() == pytest.approx(shape.at_peak, abs=0.001)
    assert (values >= 0.5).mean() == pytest.approx(shape.above_half, abs=0.001)
    assert values.mean() == pytest.approx(1 / shape.peak_to_average, rel=0.01)


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 34])
@pytest.mark.parametrize("name", TABLE_II)
def test_short_profiles_have_their_peaks(name: str, slots: int) -> None:
    made = profile(name, slots, 5, 10e9, 2, Random(1))
    assert made.shape == (4, slots)
    for row, shape, grown in zip(made, TABLE_II[name], (5 / 3, 5 / 3, 5 / 3, 10 / 8), strict=True):
        assert row.max() == pytest.approx(shape.peak * grown) and row.min() >= 0


def test_memory_only_rises() -> None:
    assert (np.diff(profile("lr", 300, 3, 8e9, 4, Random(1))[3]) >= 0).all()


def made(seed: int, **hibench: Any) -> list[Application]:
    return applications_of(msgspec.convert({"workload": {"hibench": hibench}}, Spec), seed)


def test_the_same_applications_in_another_order() -> None:
    first, second = made(1, new_applications=0), made(2, new_applications=0)
    kinds = [sorted(each.name.partition("-")[2] for each in run) for run in (first, second)]
    assert kinds[0] == kinds[1] and len(kinds[0]) == 120
    assert [each.name for each in first] != [each.name for each in second]
    assert [each.at_s for each in first] == sorted(each.at_s for each in first)


def test_new_applications_come_while_the_others_do() -> None:
    run = made(1, applications=10, new_applications=5)
    recurring = [each.at_s for each in run if each.name.endswith("recurring")]
    new = [each.at_s for each in run if each.name.endswith("new")]
    assert (len(recurring), len(new)) == (10, 5) and max(new) <= max(recurring)


def test_inputs_change_by_so_much() -> None:
    slots = {each.profile.shape[1] for each in made(1, runtimes_s=[900.0], resized=0.1)}
    assert min(slots) >= 270 and max(slots) <= 330 and len(slots) > 10


def test_stages_cover_the_profile() -> None:
    for each in made(1):
        assert each.stages[-1] == each.profile.shape[1] and len(each.stages) == 6


COLUMNS = "cpu_pct_of_8,mem_used_kb_excl_cache,disk_rd_kb_s,disk_wr_kb_s,net_rx_kb_s,net_tx_kb_s"
LUMOS = f"""interval_s,workload,run,t_s,{COLUMNS}
1,spark_sort,1,0,50,1000,10,10,7,7
1,spark_sort,1,1,100,1000,10,10,7,7
1,spark_sort,1,2,0,1000,10,10,7,7
1,spark_sort,1,3,25,2000,0,0,0,0
1,spark_sort,2,0,50,1000,10,10,7,7
1,spark_sort,2,1,100,1000,10,10,7,7
1,spark_sort,2,2,0,1000,10,10,7,7
1,spark_sort,2,3,75,2000,0,0,0,0
1,spark_sort,2,6,75,2000,0,0,0,0
1,hadoop_scan,1,0,10,1,1,1,1,1
"""


def recorded(path: Path, **keys: Any) -> list[Application]:
    trace = {"file": str(path), "prefix": "spark", "applications": 4, "executors": 3, "stages": 2} | keys
    return applications_of(msgspec.convert({"workload": {"trace": trace}}, Spec), seed=0)


def test_recorded_usage_becomes_a_mean_and_a_truth(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text(LUMOS)
    run = recorded(path)
    assert [each.name[4:] for each in run] == ["spark_sort"] * 4
    for each in run:
        assert each.profile.tolist() == [[4.0, 4.0], [20480.0, 0.0], [7168.0, 0.0], [1024e3, 2048e3]]
        assert each.stages == (1, 2) and each.executors == 3
    assert {round(float(each.factor[0]), 6) for each in run} <= {0.75, 1.25}


def test_a_trace_without_such_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text(LUMOS)
    with pytest.raises(TraceError, match=r"series.csv: has no workload whose name begins with 'flink'"):
        recorded(path, prefix="flink")
    with pytest.raises(TraceError, match="No such file"):
        recorded(tmp_path / "missing.csv")
