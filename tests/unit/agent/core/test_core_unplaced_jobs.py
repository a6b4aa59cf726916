"""A job between its registration and the master's first word on its place: nothing is moved for it, and moved back."""

from __future__ import annotations

from agent.core.events import CpuTimesRead
from agent.core.instructions import Confine, ReadCpuTimes, Renice
from agent.core.records import JobRecord
from agent.core.snapshot import ContainerUse, Snapshot
from tests.unit.agent.core.ranks_bed import Bed, told_order


def kernel_told(bed: Bed) -> list[str]:
    """Return the containers of which the kernel was told a weight or a nice value, in order."""
    return [one.container for one in bed.done if isinstance(one, Confine | Renice)]


def looked(bed: Bed) -> None:
    """Let the agent read the CPU time of all containers."""
    uses = {container: ContainerUse(cpu_seconds=each) for container, each in bed.used_s.items()}
    bed.send(CpuTimesRead(Snapshot(bed.now, 0.1, containers=uses)))


def test_a_job_that_is_registered_moves_no_other_until_the_master_has_placed_it() -> None:
    bed = Bed(has_master=True)
    olds = [bed.launch() for _ in range(2)]
    jobs = [bed.register(bed.connect(container)) for container in olds]
    told_order(bed, jobs, highest=-1e9)  # as by the times at which they were submitted
    bed.used_s |= dict.fromkeys(olds, 1.0)
    fresh = bed.launch()
    bed.used_s[fresh] = 1.0
    bed.sample()
    before = bed.order()
    assert before == [*olds, fresh]
    bed.done.clear()
    session = bed.connect(fresh)
    job = bed.register(session, priority=7.0)
    looked(bed)
    bed.sample(0.5)
    assert kernel_told(bed) == [] and bed.order() == before
    assert bed.said(fresh).why.startswith("not a job of the master"), "it goes by its CPU time, as its container did"
    told_order(bed, [job, *jobs], highest=-1e9)
    assert bed.order() == [fresh, *olds]


def test_a_job_goes_by_its_processor_time_while_no_master_places_it() -> None:
    bed = Bed(has_master=True)
    old = bed.launch()
    told_order(bed, [bed.register(bed.connect(old))], highest=-1e9)
    greedy, modest = bed.launch(), bed.launch()
    for each in (greedy, modest):
        bed.register(bed.connect(each))
    bed.sample(**{old: 1.5, greedy: 30.0, modest: 0.1})
    assert bed.order() == [modest, old, greedy]


def test_without_a_master_a_job_is_ranked_when_it_is_registered() -> None:
    bed = Bed()
    old, fresh = bed.launch(), bed.launch()
    bed.register(bed.connect(old))
    bed.register(bed.connect(fresh), priority=1.0)
    assert bed.order() == [fresh, old]


def test_the_next_agent_knows_whether_the_master_has_placed_a_job() -> None:
    bed = Bed(has_master=True)
    jobs = [bed.register(bed.connect(bed.launch())) for _ in range(2)]
    told_order(bed, jobs[:1])
    recorded = {job.job: job.ordered for job in bed.of("jobs")}
    assert recorded == {jobs[0]: True, jobs[1]: False}
    assert JobRecord(job="j", name="n", user="u").ordered, "of an earlier agent's journal"


def test_for_a_job_whose_container_is_alone_no_processor_time_is_read() -> None:
    bed = Bed(has_master=True)
    alone = bed.launch()
    bed.sample()
    bed.done.clear()
    bed.now += 0.5
    bed.register(bed.connect(alone))
    assert ReadCpuTimes() not in bed.done and bed.node.ranks.cpu_reads.due is None
    other = bed.launch()
    bed.now += 0.5
    bed.done.clear()
    bed.register(bed.connect(other))
    assert ReadCpuTimes() in bed.done, "there is another one"
