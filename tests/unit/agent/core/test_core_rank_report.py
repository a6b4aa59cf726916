"""Reports of the ranks: in the status, and to a master that reads them, where they have changed."""

from __future__ import annotations

from agent.core.rank_order import BY_MASTER, BY_TURN, BY_USE, Standing
from agent.core.ranks import Ranks
from agent.core.reporting import RankReport
from penstock.wire.cluster_api import MOST_RANKS, NodeRanks
from tests.unit.agent.core.ranks_bed import Bed, told_order


def ranked(*jobs: str) -> Ranks:
    ranks = Bed().node.ranks
    stand(ranks, *jobs)
    return ranks


def stand(ranks: Ranks, *jobs: str, weight: int = 1) -> None:
    ranks.standings = {job: Standing(job, rank, weight, 0, 1, BY_MASTER) for rank, job in enumerate(jobs)}


def test_it_is_reported_once_and_again_where_it_has_changed() -> None:
    ranks = ranked("a", "b")
    report = RankReport(ranks)
    assert report.changed() == NodeRanks(jobs=[("a", 1), ("b", 1)], of=2)
    assert report.changed() is None
    stand(ranks, "b", "a")
    assert report.changed() == NodeRanks(jobs=[("b", 1), ("a", 1)], of=2)
    stand(ranks, "b", "a", weight=4)
    assert report.changed() == NodeRanks(jobs=[("b", 4), ("a", 4)], of=2)
    stand(ranks)
    assert report.changed() == NodeRanks()
    assert report.changed() is None


def test_on_a_new_connection_all_is_reported_again_once_the_master_is_known_to_read_it() -> None:
    report = RankReport(ranked("a"))
    assert report.changed() is not None
    report.link_opens()
    assert report.changed() is None, "an older master refuses a message with a key that it does not know"
    report.read = True
    assert report.changed() == NodeRanks(jobs=[("a", 1)], of=1)


def test_of_very_many_the_first_are_reported() -> None:
    told = RankReport(ranked(*map(str, range(MOST_RANKS + 5)))).changed()
    assert told is not None
    assert (len(told.jobs), told.of, told.jobs[0][0]) == (MOST_RANKS, MOST_RANKS + 5, "0")


def test_the_status_has_the_weight_of_a_job_and_the_reason_for_its_rank() -> None:
    bed = Bed(has_master=True, job_wait_max_s=5.0)
    containers = [bed.launch() for _ in range(3)]
    job, other = (bed.register(bed.connect(container)) for container in containers[:2])
    told_order(bed, [job, other])
    bed.sample(**dict.fromkeys((each.replace("-", "_") for each in containers), 2.0))
    said = {name: bed.node.ranks.described_job(name) for name in (job, other, containers[2])}
    assert [each and (each.rank, each.why) for each in said.values()] == [
        (1, BY_MASTER), (2, BY_MASTER), (3, BY_USE),
    ]  # fmt: skip
    assert [each and each.weight for each in said.values()] == [bed.weights[each] for each in containers]
    assert bed.node.ranks.described_job("of-none") is None
    reasons = []
    for _ in range(6):  # the turn of one that has waited is over with the next sample
        bed.sample(**{containers[0].replace("-", "_"): 1.0})
        reasons.append([standing.why for standing in bed.node.ranks.standings.values()])
    assert sum(first == BY_TURN for first, *_ in reasons) == 1
    assert not any(BY_TURN in others for _, *others in reasons)
