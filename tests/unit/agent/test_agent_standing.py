"""A host's status has the same word for where a job stands as the master (penstock/model/job_state.py)."""

from __future__ import annotations

from agent.core import events as e
from agent.status import status_document
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.wire.agent_api import RegisterJob
from penstock.wire.master_api import AdmitJob, Assign
from tests.fakes.node_bed import node_with_a_job


def test_a_job_runs_as_soon_as_something_of_it_was_placed_though_all_slots_are_taken() -> None:
    node, first = node_with_a_job()

    def said() -> dict[str, str]:
        jobs = status_document(node, started_at=0.0, enforcement={}, master={}, events=[])["jobs"]
        return {shown["job"]: shown["state"] for shown in jobs}

    def command(job: str, task: str) -> None:
        request = TaskRequest(task=task, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("true",)))
        assigned = Assign(job=job, stage="s", user="u", origin="a", priority=0.0, request=request)
        node.handle(e.Decided(node.decided + 1, [assigned]), 0.0)

    assert said() == {first: "waiting"}
    node.handle(e.JobRegistered(1, RegisterJob(name="k"), 0.0), 0.0)
    (second,) = said().keys() - {first}
    node.handle(e.Decided(1, [AdmitJob(job=job) for job in (first, second)]), 0.0)
    assert said() == {first: "admitted", second: "admitted"}
    for number in range(4):  # of four cores
        command(first, f"c{number}")
    command(second, "t")
    assert said() == {first: "running", second: "running"}
    assert node.queues.job_counts(second)["running"] == 0
