"""A host's status has the same word for a job's state as the master (penstock/model/job_state.py)."""

from __future__ import annotations

from penstock.wire.master_api import AdmitJob
from tests.fakes.node_bed import NodeBed, status_of


def test_a_job_runs_as_soon_as_something_of_it_was_placed_though_all_slots_are_taken() -> None:
    bed = NodeBed()
    bed.open()

    def states() -> dict[str, str]:
        return {shown.job: shown.state for shown in status_of(bed.node).jobs}

    first = bed.register()
    assert states() == {first: "waiting"}
    second = bed.register()
    bed.decide(*(AdmitJob(job=job) for job in (first, second)))
    assert states() == {first: "admitted", second: "admitted"}
    for number in range(4):  # of four cores
        bed.command(f"c{number}", job=first)
    bed.command("t", job=second)
    assert states() == {first: "running", second: "running"}
    assert bed.node.queues.job_counts(second)["running"] == 0
