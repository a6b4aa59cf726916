"""The master's metrics: every state and way to end is there from the beginning, every counter has a name and a text."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from master import metrics
from master.http_documents import JobStatus, PromisedNow
from master.status import COUNTERS
from penstock.model import EndedBy
from tests.prometheus import faults
from tests.unit.master.cluster_bed import job_row, master_status


def page(**changed: Any) -> list[str]:
    status = master_status(**changed)
    registry = CollectorRegistry()
    registry.register(metrics.MasterCollector(lambda: status))
    text = generate_latest(registry).decode()
    assert faults(text) == []
    return text.splitlines()


def test_of_an_empty_cluster_everything_is_there() -> None:
    lines = page()
    for state in ("connected", "draining", "drained", "away", "expected"):
        assert f'penstock_master_nodes{{state="{state}"}} 0.0' in lines
    for by in EndedBy:
        assert f'penstock_master_tasks_ended_total{{by="{by}"}} 0.0' in lines
    assert "penstock_master_node_away_max_seconds 0.0" in lines


def test_every_counter_of_the_core_has_a_name_and_a_text() -> None:
    assert set(COUNTERS) <= set(metrics._COUNTERS)


def test_one_that_is_not_known_is_included_all_the_same() -> None:
    assert "penstock_master_things_done_total 3.0" in page(decisions={"things_done": 3})


def test_the_promises_of_the_moment_are_added_up() -> None:
    promised = {
        "r-1": PromisedNow(cores=2.0, memory_bytes=5, bundles=2),
        "r-2": PromisedNow(cores=1.0, memory_bytes=3, bundles=1),
    }
    lines = page(promised=promised)
    assert "penstock_master_reservations_due 2.0" in lines
    assert "penstock_master_reservations_promised_cores 3.0" in lines
    assert "penstock_master_reservations_promised_bytes 8.0" in lines


def test_the_outcomes_of_requests_for_promises() -> None:
    lines = page(reservations={"accepted": 3, "rejected": 1, "missed": 0})
    assert 'penstock_master_reservations_total{outcome="accepted"} 3.0' in lines
    assert 'penstock_master_reservations_total{outcome="missed"} 0.0' in lines


def job(rank: int, **more: Any) -> JobStatus:
    return job_row("eve", "running", rank=rank, service_container_s=10.0 * rank, **more)


def test_the_order_is_given_by_rank_and_by_queue_and_not_by_job() -> None:
    jobs = {f"j{rank}": job(rank, queue=rank) for rank in range(1, 13)}
    lines = page(jobs=jobs | {"new": job(0)})
    assert "penstock_master_ranked_jobs 12.0" in lines
    assert 'penstock_master_rank_service_seconds{rank="2"} 20.0' in lines
    assert 'penstock_master_rank_service_seconds{rank="10"} 100.0' in lines
    assert 'penstock_master_queue_jobs{queue="9"} 1.0' in lines
    assert 'penstock_master_queue_jobs{queue="10"} 3.0' in lines, "of the tenth and beyond"
    assert not any('="11"' in line or "j1" in line for line in lines)


def test_the_expectation_of_jobs_is_reported_where_it_is_known() -> None:
    lines = page(jobs={"a": job(1, expected_left_s=4.5), "b": job(2)})
    assert 'penstock_master_rank_expected_left_seconds{rank="1"} 4.5' in lines
    assert not any('expected_left_seconds{rank="2"}' in line for line in lines)
    assert 'penstock_master_queue_jobs{queue="1"} 0.0' in page()
