"""The keys of the master's documents: commands, the page and dashboards read them by these names."""

from __future__ import annotations

from master.core import events as e
from master.explain.why import JobExplainer
from master.status import status_document
from penstock.model.work import StageProgress
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress
from penstock.wire.cluster_api import Draining
from tests.keys_of import keys_of
from tests.unit.master.cluster_bed import Bed, bed, task
from tests.unit.master.core.test_core_plan_follower import Plan

#: Of each object, by its path, the keys.
STATUS = """
.: certificates configuration decisions degraded ept_s http jobs listen memory models nodes ordering promised
  reservations resources started_at tasks version
decisions: *
jobs: *
jobs.*: expected_left_s known_jobs memory_bytes name origin placed priority progress queue rank ready reason
  reservation service_container_s slots stages state submitted_at user waits
jobs.*.progress[]: after done input_bytes skipped stage tasks usage
jobs.*.progress[].usage: cpu disk network
jobs.*.stages: *
memory: reservable_bytes reserved_bytes
nodes: *
nodes.*: away_s capacity cores_free draining external_memory_bytes kept_cores kept_memory_bytes load
  memory_free_bytes opportunistic_tasks rates state t_alloc tasks unanswered version
nodes.*.capacity: cores disk_slots memory_bytes network_slots
nodes.*.draining: by since
nodes.*.load: idle jobs pending rates used_cores
nodes.*.load.idle: cpu disk network
nodes.*.load.jobs[]: job service_s
nodes.*.rates: cpu disk network
promised: *
promised.*: bundles cores memory_bytes
resources: *
resources.*: capacity promised slack unit used
tasks: ended placed ready
"""
EXPLANATION = """
.: admitted before_it containers expected_left_s job known_jobs name nodes of ordering place placement priority
  queue ranks reason room_containers sentence service_container_s stages waits why
stages[]: lacks opportunistic ready slack_lacks stage waits
stages[].lacks: *
"""


def busy() -> Bed:
    """A cluster with a promise, a drained node, a job that runs and waits, and one behind it."""
    b = bed("a", ordering="fifo")
    b.node("b", draining=Draining(by="root", since=1.0))
    b.cluster.guarantees.plan = Plan(2.0)
    for job in ("first", "second"):
        b.job("a", job, at=1.0, reservation="r" if job == "first" else "")
        b.serve(e.Received("a", Progress(job=job, stages=[StageProgress(stage="s", tasks=9)])))
        b.ready("a", *[task(f"{job}{i}", 700) for i in range(3)], job=job, opportunistic=True)
    b.round()
    b.heartbeat("a", used_cores=1.0, jobs=[api.JobUse(job="first", service_s=1.0)])
    return b


def test_the_keys_of_the_status_stay() -> None:
    b = busy()
    maps = ("resources", "nodes", "jobs", "tasks.ended", "decisions", "promised", "jobs.*.stages")
    assert keys_of(status_document(b.cluster, b.now), *maps).split() == STATUS.split()


def test_the_keys_of_an_explanation_stay() -> None:
    b = busy()
    said = keys_of(JobExplainer.of(b.cluster).document("second", b.now), "stages[].lacks", "stages[].slack_lacks")
    assert said.split() == EXPLANATION.split()
