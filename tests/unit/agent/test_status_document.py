"""The keys of a host's status: clients, the page and dashboards read them by these names."""

from __future__ import annotations

from agent.check.facts import Fact
from agent.core import events as e
from agent.core.snapshot import ContainerUse, HostUse
from penstock.documents import Certificate, Degraded, SetByHand
from penstock.model import Executor, Limits, Profile
from penstock.model.work import StageProgress
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Progress
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import Drain
from tests.fakes.node_bed import MIB, NodeBed, status_of
from tests.keys_of import keys_of

#: Of each object, by its path, the keys.
KEYS = """
.: acts capacity certificates configuration containers cores degraded drain enforcement events host jobs journal
  kinds master memory node preemptions reaction resources started_at t_alloc uptime_s version
acts[]: action count resource
capacity: cores disk_slots memory_bytes network_slots
certificates[]: ends_at file key
configuration: *
configuration.*: value where
containers[]: adopted class container ended executor follows job limits name not_enforced note orphaned pid profile
  rank sample started_at state task user
containers[].ended: by cpu_seconds exit_status wall_seconds
containers[].executor: application behind reprovisioned run slot slots stuck
containers[].limits: cpu_cores memory_max_bytes
containers[].profile: slot slot_s slots wants
containers[].profile.wants: cpu_cores memory_bytes
containers[].rank: cpu_s job nice of queue rank tenant weight why
containers[].sample: cpu_cores cpu_seconds cpu_stalled cpu_throttled disk_bytes_per_s disk_stalled memory_bytes
  memory_cache_bytes memory_high_events memory_peak_bytes memory_stalled memory_unreclaimable_bytes
  network_receive_bytes_per_s network_send_bytes_per_s oom_kills pids
cores: capacity opportunistic promised used
degraded[]: since times what why
drain: by count remaining since state
drain.remaining[]: id kind name user
enforcement: *
enforcement.*: ok remedy why
events[]: at what
host: cpu_percent disk_busy disk_read_bytes_per_s disk_write_bytes_per_s memory_total_bytes memory_used_bytes
  network_busy network_receive_bytes_per_s network_send_bytes_per_s
jobs[]: admitted connections cpu_s done failed job name priority queued rank running stages state user waits
jobs[].stages[]: after done input_bytes skipped stage tasks usage
jobs[].stages[].usage: cpu disk network
journal: writes
kinds: *
kinds.*: bypassing granted head overdue pending_bytes queued rate_bytes_per_s running sharing slot_seconds slots
  taken_back waits withheld
kinds.*.head: held_by held_s job task waits_s
kinds.*.waits: bounds_s counts sum_s
master: address linked
memory: capacity_bytes opportunistic_bytes promised_bytes used_bytes
preemptions[]: action at container reason resource
reaction: bounds_s counts sum_s
resources: *
resources.*: capacity promised slack unit used
"""


def busy() -> NodeBed:
    """A node on which everything happens: a queue, a profile, an executor, a preemption, a rank, a drain."""
    bed = NodeBed(cores=2, memory_bytes=1000 * MIB, ranked=True)
    bed.open()
    job = bed.register()
    bed.submit(1, job, 1, 2, 3, 4)
    bed.send(e.Requested(m.PROGRESS, 1, Progress(job=job, stages=[StageProgress(stage="map", tasks=9)])))
    limits = Limits(cpu_cores=2.0, memory_max_bytes=512 * MIB)
    regular, slack, over = (
        bed.launch(memory_bytes=512 * MIB, limits=limits), bed.launch(opportunistic=True), bed.launch(name="over"),
    )  # fmt: skip
    for container in (regular, slack, over):
        bed.begin(container)
    profile = Profile(cpu_cores=(1.5, 0.5), memory_bytes=(400 * MIB,), slot_s=3600.0)
    bed.send(e.FollowRequested(1, regular, profile, bed.wall_s))
    bed.command("x", executor=Executor(application="sort"), profile=profile, memory_bytes=MIB)
    bed.exit(over, 3)
    bed.now += 1.0
    uses = {regular: ContainerUse(memory_bytes=300 * MIB), slack: ContainerUse(memory_bytes=690 * MIB)}
    bed.sampled(uses, HostUse(cpu_percent=42.0))
    bed.decide(Drain(draining=Draining(by="root", since=1.0)))
    return bed


def document_of(bed: NodeBed) -> object:
    """The status of a node, with something in every list."""
    return status_of(
        bed.node,
        enforcement={"cpu": Fact(ok=True, why="")},
        events=[{"at": 1.0, "what": "node is drained"}],
        configuration={"t_alloc": SetByHand(value="0.9", where="set by eve")},
        certificates=[Certificate(key="tls_ca", file="/x", ends_at=1.0)],
        degraded=[Degraded(what="http", why="taken", since=1.0, times=1)],
    )


def test_the_keys_stay() -> None:
    assert keys_of(document_of(busy()), "kinds", "resources", "enforcement", "configuration").split() == KEYS.split()


def test_a_container_without_a_name_has_that_of_its_command_however_long_its_path_is() -> None:
    bed = NodeBed()
    bed.open()
    for program in ("sort", "x" * 200_000):
        bed.launch(argv=(program,))
    assert [one.name for one in status_of(bed.node).containers] == ["sort", "x" * 128]
