"""The order of a node's jobs: by the master or by priority, by what they have used, and by who came first."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.events import CpuTimesRead
from agent.core.instructions import ReadCpuTimes, Wake
from agent.core.rank_order import BY_PRIORITY, FIRST_QUEUE_S, ContainerRank, queue_of
from agent.core.rank_weights import STEP, nice_of
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.wire.master_api import Decided, SetPriority
from tests.unit.agent.core.ranks_bed import Bed, end_job, told_order


def test_a_job_sinks_with_the_processor_time_that_it_has_used() -> None:
    queues = [queue_of(used_s) for used_s in (0.0, FIRST_QUEUE_S - 0.01, FIRST_QUEUE_S, 0.99, 1.0, 2.0, 64.0)]
    assert queues == [0, 0, 1, 1, 2, 3, 8]


def test_who_came_first_goes_first_and_who_has_used_more_goes_behind(bed: Bed) -> None:
    first, second, third = bed.launch(), bed.launch(), bed.launch()
    bed.sample()
    assert bed.order() == [first, second, third]
    assert [bed.nice[each] for each in (second, third)] == [nice_of(1, 3), nice_of(2, 3)]
    bed.used_s[first] = 10.0
    bed.sample()
    assert bed.order() == [second, third, first]
    assert bed.nice[second] == nice_of(0, 3) and bed.nice[first] == nice_of(2, 3)


def test_the_priority_of_a_job_comes_before_what_it_has_used(bed: Bed) -> None:
    slow, urgent = bed.launch(), bed.launch()
    low = bed.register(bed.connect(slow))
    high = bed.register(bed.connect(urgent), priority=5.0)
    bed.used_s[urgent] = 50.0
    bed.sample()
    assert bed.order() == [urgent, slow]
    standings = bed.node.ranks.standings
    assert standings[high].rank == 0 and standings[low].rank == 1
    assert bed.node.cpu_times.cpu_s[high] == 50.0


def test_a_client_of_another_user_does_not_move_a_container(bed: Bed) -> None:
    container = bed.launch()
    session = next(bed.sessions)
    bed.send(e.SessionOpened(session, "max", "c", container=container))
    job = bed.register(session)
    bed.sample()
    assert job not in bed.node.ranks.standings and container in bed.node.ranks.standings


@pytest.mark.parametrize("sampled_s", [0.0, 3.0])
def test_a_container_that_outlives_its_job_begins_anew(sampled_s: float) -> None:
    """Else what is left of a short job, the exit of its processes, would wait for all that have used less."""
    bed = Bed(has_master=True)
    short, others = bed.launch(), [bed.launch(), bed.launch()]
    session = bed.connect(short)
    job = bed.register(session)
    told_order(bed, [job, *(bed.register(bed.connect(each)) for each in others)])
    bed.used_s |= {short: sampled_s, others[0]: 1.0, others[1]: 1.0}
    bed.sample()
    end_job(bed, session, job)
    bed.sample(**{short.replace("-", "_"): 3.2 - sampled_s})
    assert bed.order()[0] == short, "a short job may not have been sampled before its end"
    assert bed.node.cpu_times.cpu_s[short] == pytest.approx(0.0)
    bed.sample(**{short.replace("-", "_"): 0.4})
    assert bed.order()[0] == short and bed.node.cpu_times.cpu_s[short] == pytest.approx(0.4)
    bed.sample(**{short.replace("-", "_"): 5.0})
    assert bed.order()[-1] == short, "it goes on like any other container without a job"


def test_a_known_command_that_outlives_its_job_is_not_expected_to_need_as_much_as_earlier_runs() -> None:
    bed = Bed(has_master=True)
    for _ in range(3):
        run = bed.launch(name="etl")
        bed.sample(**{run.replace("-", "_"): 100.0})
        bed.end(run)
    other, last = bed.launch(), bed.launch(name="etl")
    session = bed.connect(last)
    job = bed.register(session)
    told_order(bed, [job, bed.register(bed.connect(other))])
    bed.sample(**{last.replace("-", "_"): 105.0, other.replace("-", "_"): 5.0})
    end_job(bed, session, job)
    bed.sample()
    bed.sample(**{last.replace("-", "_"): 0.1})
    assert bed.order() == [last, other]


def test_opportunistic_work_has_no_rank_until_it_is_promoted(bed: Bed) -> None:
    slack = bed.launch(opportunistic=True)
    bed.launch()
    bed.sample()
    assert slack not in bed.node.ranks.standings


def test_a_new_job_is_ranked_when_it_starts_and_not_only_at_the_next_sample(bed: Bed) -> None:
    old = bed.launch()
    bed.used_s[old] = 100.0
    bed.sample()
    fresh = bed.launch()
    assert bed.order() == [fresh, old]


def test_the_order_of_the_master_holds_as_soon_as_it_is_told() -> None:
    bed = Bed(has_master=True)
    first, second = bed.launch(), bed.launch()
    jobs = [bed.register(bed.connect(container)) for container in (first, second)]
    assert bed.order() == [first, second]
    decisions = [SetPriority(job=job, priority=float(at)) for at, job in enumerate(jobs)]
    assert bed.send(e.Decided(1, decisions, 0.0)) == Decided(refused=[])
    assert bed.order() == [second, first]


def test_jobs_move_up_when_one_of_the_first_ends(bed: Bed) -> None:
    """The third and the fourth weigh the same; without it nobody would be the first until the next sample."""
    jobs = [bed.launch() for _ in range(4)]
    bed.sample()
    assert bed.weights[jobs[2]] == bed.weights[jobs[3]] == 1
    bed.now += 0.1
    bed.end(jobs[0])
    assert bed.order()[:2] == jobs[1:3]
    assert bed.weights[jobs[1]] > STEP * bed.weights[jobs[2]] / 2 > bed.weights[jobs[3]]


@pytest.mark.parametrize("why", ["it was one of the last", "its job has another", "they were ranked just now"])
def test_the_end_of_others_leads_to_no_ranking(bed: Bed, why: str) -> None:
    containers = [bed.launch() for _ in range(4)]
    if why == "its job has another":
        job = bed.register(bed.eve)
        for container in containers[:2]:
            bed.register(bed.connect(container), job=job)
    bed.sample()
    bed.now += 0.01 if why == "they were ranked just now" else 0.1
    before = dict(bed.weights)
    bed.end(containers[3 if why == "it was one of the last" else 0])
    assert bed.weights == before


def test_the_status_says_where_a_job_stands(bed: Bed) -> None:
    one, two = bed.launch(), bed.launch()
    bed.used_s[one] = 3.0
    bed.sample()
    record = bed.node.containers.live[one]
    assert bed.node.ranks.described(record) == ContainerRank(
        job=one, rank=2, of=2, cpu_s=3.0, queue=4, weight=bed.weights[one], nice=nice_of(1, 2), why=BY_PRIORITY,
        tenant="",
    )  # fmt: skip
    bed.end(two)
    assert bed.node.ranks.described(bed.node.containers.ended.by_id[two]) is None


# ---------------------------------------------------------------- containers of no job beside jobs of the master


@pytest.mark.parametrize("highest", [-1e9, 3.0, 2e9])
def test_a_container_of_no_job_stands_behind_as_many_jobs_as_have_used_no_more(highest: float) -> None:
    bed = Bed(has_master=True)
    a, b, c = (bed.launch() for _ in range(3))
    jobs = [bed.register(bed.connect(container)) for container in (a, b, c)]
    command = bed.launch()
    bed.used_s |= {a: 10.0, b: 1.0, c: 100.0}
    told_order(bed, jobs, highest=highest)
    bed.sample()
    ranks = bed.node.ranks.standings

    def order() -> list[str]:
        names = dict(zip(jobs, (a, b, c), strict=True))
        return [names.get(job, job) for job in sorted(ranks, key=lambda job: ranks[job].rank)]

    for used_s, expected in (
        (0.0, [command, a, b, c]), (3.0, [a, command, b, c]), (20.0, [a, b, command, c]), (200.0, [a, b, c, command]),
    ):  # fmt: skip
        bed.used_s[command] = used_s
        bed.sample()
        ranks = bed.node.ranks.standings
        assert order() == expected, used_s


def test_containers_of_no_job_go_by_what_they_used_among_themselves() -> None:
    bed = Bed(has_master=True)
    of_job = bed.launch()
    bed.register(bed.connect(of_job))
    first, second, third = (bed.launch() for _ in range(3))
    bed.used_s |= {of_job: 1.0, first: 5.0, second: 0.0, third: 0.0}
    bed.sample()
    standings = bed.node.ranks.standings
    names = sorted(standings, key=lambda job: standings[job].rank)
    assert [name for name in names if name.startswith("c-")] == [second, third, first]
    assert names.index(bed.node.cpu_times.job_of(of_job)) == 2


# ---------------------------------------------------------------- turns
# Who is always behind has a turn as the first: a short one, after a long wait, and if there is anything to do.


def test_who_is_always_behind_has_a_turn_and_then_no_more() -> None:
    bed = Bed(job_wait_max_s=30.0)
    first, last = bed.launch(), bed.launch()
    job = bed.register(bed.connect(first), priority=1.0)
    turns = []
    for second in range(100):
        bed.sample(**{first: 0.001})
        if bed.order()[0] == last:
            turns.append(second)
    assert len(turns) == 3 and turns[0] == pytest.approx(30, abs=2)
    assert bed.node.ranks.standings[job].rank == 0


def test_a_turn_lasts_until_the_next_sample_whatever_is_ranked_meanwhile() -> None:
    bed = Bed(has_master=True, job_wait_max_s=5.0)
    first, last = bed.launch(), bed.launch()
    job = bed.register(bed.connect(first), priority=1.0)
    while bed.order()[0] != last:
        bed.sample(**{first: 0.001})
    for number in range(1, 6):
        bed.now += 0.1
        bed.send(e.Decided(number, [SetPriority(job=job, priority=2.0 + number)], 0.0))
        assert bed.order()[0] == last
    bed.sample(0.5)
    assert bed.order()[0] == first


def test_turns_take_a_tenth_of_the_time_at_most() -> None:
    bed = Bed(job_wait_max_s=5.0)
    first = bed.launch()
    bed.register(bed.connect(first), priority=1.0)
    for _ in range(40):
        bed.launch()
    others = 0
    for _ in range(200):
        bed.sample(**{first: 0.001})
        others += bed.order()[0] != first
    assert 15 <= others <= 21


def test_who_only_sleeps_has_no_turn_and_nothing_is_told_the_kernel() -> None:
    bed = Bed(job_wait_max_s=5.0)
    first = bed.launch()
    bed.register(bed.connect(first), priority=1.0)
    for _ in range(3):
        bed.launch()
    bed.sample()
    order, told = bed.order(), len(bed.done)
    for _ in range(30):
        bed.sample()
    assert bed.order() == order and len(bed.done) == told
    bed.sample(**{first: 0.001})
    assert bed.order()[0] != first, "now that the first runs, it is somebody else's turn"


# ---------------------------------------------------------------- processor times
# A job that comes has the processor time of the others read again: ranks go by what was used until now.


def test_a_coming_job_is_ranked_by_the_processor_time_of_that_moment(bed: Bed) -> None:
    olds = [bed.launch() for _ in range(2)]
    bed.sample(0.1)
    bed.now += 0.9
    bed.done.clear()
    fresh = bed.launch()
    assert bed.done.count(ReadCpuTimes()) == 1
    assert bed.order() == [*olds, fresh], "all have used nothing by the last sample"
    bed.send(CpuTimesRead(Snapshot(bed.now, 0.1, containers={each: ContainerUse(cpu_seconds=0.9) for each in olds})))
    assert bed.order() == [fresh, *olds]


def test_after_a_job_has_come_the_processor_time_is_read_again_at_gaps_that_double(bed: Bed) -> None:
    """A job that was expected to end at once, and does not, goes behind the new one long before the next sample."""
    bed.launch()
    bed.sample(0.1)
    bed.now += 0.5
    came = bed.now
    bed.done.clear()
    bed.launch()
    looked: list[float] = []
    while (due := bed.node.ranks.cpu_reads.due) is not None:
        assert [each for each in bed.done if isinstance(each, Wake)][-1] == Wake(due)
        bed.now = due
        bed.done.clear()
        bed.send(e.Woken(bed.now))
        looked += [bed.now - came] * bed.done.count(ReadCpuTimes(again=True))
    assert looked == pytest.approx([0.1, 0.3, 0.7], abs=0.02)


def test_a_job_of_another_origin_has_the_processor_time_read_again_too() -> None:
    bed = Bed(has_master=True, ranked=True)
    bed.launch()
    bed.sample(0.1)
    bed.now += 0.5
    bed.done.clear()
    bed.send(e.JobIntroduced("j", "j", "eve", 1.0))
    assert ReadCpuTimes() in bed.done and Wake(bed.node.ranks.cpu_reads.due or 0.0) in bed.done


def test_for_a_job_that_is_the_first_the_processor_time_is_not_read_again(bed: Bed) -> None:
    old = bed.launch()
    bed.used_s[old] = 100.0
    bed.sample(0.1)
    bed.now += 0.5
    fresh = bed.launch()
    assert bed.order() == [fresh, old]
    bed.done.clear()
    assert bed.node.ranks.cpu_reads.due is not None
    bed.now = bed.node.ranks.cpu_reads.due
    bed.send(e.Woken(bed.now))
    assert not [each for each in bed.done if isinstance(each, ReadCpuTimes | Wake)], "nothing more is to be read for it"


def test_a_job_of_which_the_master_is_told_has_it_told_what_others_have_used() -> None:
    bed = Bed(has_master=True, ranked=True)
    old = bed.launch()
    job = bed.register(bed.connect(old))
    bed.node.load(bed.now)
    bed.done.clear()
    bed.now += 1.0
    bed.register(bed.eve)
    bed.register(bed.eve)
    assert bed.done.count(ReadCpuTimes()) == 1, "not twice within a moment"
    bed.send(CpuTimesRead(Snapshot(bed.now, 1.0, containers={old: ContainerUse(cpu_seconds=0.7)})))
    assert {use.job: use.service_s for use in bed.node.load(bed.now).jobs}[job] == 0.7
    bed.now += 1.0
    bed.done.clear()
    bed.register(bed.eve)
    assert bed.done.count(ReadCpuTimes()) == 1


def test_of_jobs_that_are_over_no_processor_time_is_read(bed: Bed) -> None:
    old = bed.launch()
    bed.sample(0.1)
    bed.end(old)
    bed.done.clear()
    bed.now += 0.5
    bed.register(bed.eve)
    assert ReadCpuTimes() not in bed.done
    assert bed.node.ranks.cpu_reads.due is None


def test_where_nothing_is_ranked_nothing_is_looked_at(bed: Bed) -> None:
    bed.register(bed.eve)
    assert ReadCpuTimes() not in bed.done
