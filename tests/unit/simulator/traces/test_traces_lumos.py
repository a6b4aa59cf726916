"""lumos samples: units, grouping into runs, errors."""

from __future__ import annotations

import pytest

from simulator.traces import LumosSample, TraceError, lumos

_HEADER = (
    "interval_s,workload,run,t_s,cpu_pct_of_8,mem_used_kb_excl_cache,mem_used_kb,"
    "disk_rd_kb_s,disk_wr_kb_s,net_rx_kb_s,net_tx_kb_s"
)
_SORT = "1,spark_sort,1,0,25,1024,2048,1,2,3,4"


def test_a_sample_is_in_cores_and_bytes() -> None:
    (run,) = lumos([_HEADER, _SORT])
    assert (run.workload, run.run, run.interval_s) == ("spark_sort", 1, 1.0)
    assert run.samples == (
        LumosSample(
            t_s=0.0,
            cpu_cores=2.0,
            memory_bytes=1024 * 1024,
            disk_read_bytes_per_s=1024,
            disk_write_bytes_per_s=2048,
            network_receive_bytes_per_s=3072,
            network_send_bytes_per_s=4096,
        ),
    )


def test_samples_of_the_same_workload_repeat_and_interval_are_a_run() -> None:
    rows = [_SORT, _SORT.replace(",1,0,", ",2,0,"), _SORT.replace(",1,0,", ",1,1,"), "5" + _SORT[1:]]
    runs = lumos([_HEADER, *rows])
    assert [(run.run, run.interval_s, [s.t_s for s in run.samples]) for run in runs] == [
        (1, 1.0, [0.0, 1.0]),
        (2, 1.0, [0.0]),
        (1, 5.0, [0.0]),
    ]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "s.csv:1: the header has no column 'workload'"),
        ([_HEADER.replace("cpu_pct_of_8", "cpu"), _SORT], "s.csv:1: the header has no column 'cpu_pct_of_8'"),
        ([_HEADER, _SORT, _SORT.replace("25", "much")], "s.csv:3: cpu_pct_of_8: 'much' is not a number from 0 on"),
        ([_HEADER, "1,spark_sort,1,0,25"], "s.csv:2: mem_used_kb_excl_cache: None is not a number from 0 on"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        lumos(lines, where="s.csv")
    assert str(caught.value) == complaint


def test_amounts_count_the_loopback_once_and_both_ways_of_the_disk() -> None:
    (run,) = lumos([_HEADER, _SORT])
    (sample,) = run.samples
    disk = sample.disk_read_bytes_per_s + sample.disk_write_bytes_per_s
    assert sample.amounts == (sample.cpu_cores, disk, sample.network_send_bytes_per_s, sample.memory_bytes)
