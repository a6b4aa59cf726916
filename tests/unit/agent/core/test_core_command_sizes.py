"""Ended commands of no job tell the master their size, and the node what the next run of each needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from agent.core import events as e
from agent.core.command_sizes import CommandSizes
from agent.core.instructions import Record
from agent.core.records import ContainerRecord
from penstock.model import ContainerSpec, Ended, EndedBy
from penstock.program_name import name_of
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef, EndJob
from penstock.wire.cluster_api import CommandUse
from tests.unit.agent.core.ranks_bed import EVE, Bed

SORT = ("/usr/bin/sort", "big.txt")


@pytest.fixture
def bed() -> Bed:
    return Bed(has_master=True)


def told(bed: Bed) -> list[CommandUse]:
    return bed.node.heartbeat(bed.now).commands


def ran(bed: Bed, cpu_s: float, status: int = 0, **spec: object) -> None:
    container = bed.launch(**{"argv": SORT, **spec})
    bed.exit(container, status, cpu_s)
    del bed.used_s[container]


def test_a_completed_command_is_reported_once_by_its_name_or_its_programs(bed: Bed) -> None:
    ran(bed, 2.0)
    ran(bed, 3.0, name="nightly")
    ran(bed, 4.0, argv=("python3", "-u", "jobs/report.py"), opportunistic=True)
    ran(bed, 5.0, name="promised", cpu_cores=0.5)
    assert told(bed) == [
        CommandUse(user="eve", name=name, cpu_s=cpu_s)
        for name, cpu_s in (("sort", 2.0), ("nightly", 3.0), ("report.py", 4.0), ("promised", 5.0))
    ]
    assert told(bed) == []


def test_what_did_not_complete_or_has_no_name_or_no_size_tells_nothing(bed: Bed) -> None:
    ran(bed, 2.0, status=1)
    ran(bed, 2.0, argv=("python", "-c", "pass"))
    ran(bed, 0.0)
    cancelled = bed.launch(argv=SORT)
    bed.send(e.Requested(m.KILL, EVE, ContainerRef(container=cancelled)))
    bed.exit(cancelled)
    adopted = str(bed.send(e.AdoptRequested(EVE, ContainerSpec(argv=SORT), 77, tree=False)))
    bed.begin(adopted, 77)
    bed.exit(adopted)
    bed.command("t")
    bed.begin(bed.container("t"))
    bed.exit(bed.container("t"))
    assert told(bed) == []


def test_the_use_of_a_job_in_a_container_is_the_jobs_even_if_it_ends_first(bed: Bed) -> None:
    container = bed.launch(argv=SORT)
    session = bed.connect(container)
    job = bed.register(session)
    bed.send(e.Requested(m.END_JOB, session, EndJob(job=job)))
    bed.sample()
    bed.exit(container, cpu_s=5.0)
    assert told(bed) == []


def test_the_next_agent_knows_that_a_job_was_in_a_container_and_it_is_stored_once(bed: Bed) -> None:
    container = bed.launch(argv=SORT)
    session = bed.connect(container)
    job = bed.register(session)
    for _ in range(3):
        bed.sample(**{container.replace("-", "_"): 1.0})
    stored = [one.key for one in bed.given(Record) if one.room == "containers"]
    assert stored == [container] * 3, "before its start, once it has started, and with the job"
    bed.send(e.Requested(m.END_JOB, session, EndJob(job=job)))
    bed.restart(container, now=200.0)
    bed.exit(container, cpu_s=5.0)
    assert told(bed) == []


def test_reports_wait_for_a_master_that_reads_them(bed: Bed) -> None:
    bed.node.link_opens()
    ran(bed, 2.0)
    assert told(bed) == []
    bed.node.command_sizes.read = True
    assert [use.cpu_s for use in told(bed)] == [2.0]


@pytest.mark.parametrize("has_master", [False, True])
def test_a_command_whose_last_run_was_long_goes_behind_until_little_of_it_is_left(has_master: bool) -> None:
    bed = Bed(has_master=has_master)
    ran(bed, 100.0)
    known, unknown = bed.launch(argv=SORT), bed.launch(argv=("cc",))
    bed.sample(**{known.replace("-", "_"): 1.0, unknown.replace("-", "_"): 10.0})
    assert bed.order() == [unknown, known]
    assert bed.said(known).why.endswith("; as 1 earlier run, it needs about 1 min 49 s more")
    bed.sample(**{known.replace("-", "_"): 100.0, unknown.replace("-", "_"): 10.0})
    assert bed.order() == [known, unknown]
    bed.sample(**{known.replace("-", "_"): 10.0, unknown.replace("-", "_"): 10.0})
    assert bed.order() == [unknown, known], "it has outlasted its known run"
    assert "earlier run" not in bed.said(known).why


def test_the_runs_of_other_users_and_commands_are_not_expected_nor_those_before_an_adoption(bed: Bed) -> None:
    ran(bed, 100.0)
    adopted = str(bed.send(e.AdoptRequested(bed.eve, ContainerSpec(argv=SORT), 77, tree=False)))
    bed.begin(adopted, 77)
    bed.used_s[adopted] = 0.0
    bed.open(session := next(bed.sessions), user="max")
    bed.eve, eve = session, bed.eve
    others = bed.launch(argv=SORT)
    bed.eve = eve
    another = bed.launch(argv=("cc",))
    bed.sample()
    assert [bed.said(each).queue for each in (others, another, adopted)] == [1, 1, 1]


def test_the_next_agent_knows_the_kept_runs_and_does_not_report_them_again(bed: Bed) -> None:
    ran(bed, 100.0)
    assert told(bed)
    bed.restart(now=200.0)
    bed.open(bed.eve)
    container = bed.launch(argv=SORT)
    bed.sample()
    assert bed.said(container).queue > 7
    assert told(bed) == []


def test_the_name_of_a_live_command_is_made_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(bed, 100.0)
    container = bed.launch(argv=SORT)
    made: list[Sequence[str]] = []

    def counted(argv: Sequence[str]) -> str:
        made.append(argv)
        return name_of(argv)

    monkeypatch.setattr("agent.core.command_sizes.name_of", counted)
    for _ in range(3):
        bed.sample(**{container.replace("-", "_"): 1.0})
    bed.exit(container)
    assert len(made) == 1
    assert [use.name for use in told(bed)] == ["sort", "sort"]


def test_a_command_that_a_shell_is_given_does_not_go_behind_as_earlier_ones_were_long(bed: Bed) -> None:
    for _ in range(16):
        ran(bed, 100.0, argv=("bash", "-c", "make"))
    short, other = bed.launch(argv=("bash", "-c", "ls")), bed.launch(argv=("cc",))
    bed.sample(**{other.replace("-", "_"): 5.0})
    assert bed.order() == [short, other]


def test_runs_of_a_name_that_differ_much_tell_nothing() -> None:
    sizes = CommandSizes(has_master=False)
    record = ContainerRecord(container="c", user="eve", spec=ContainerSpec(argv=SORT), opportunistic=False)
    for cpu_s in (100.0, 26.0):
        record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=cpu_s)
        sizes.ended(record)
    assert sizes.expected(record, 0.0) is not None
    record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=24.0)
    sizes.ended(record)
    assert sizes.expected(record, 0.0) is None
    assert sizes.expected(record, 30.0) is None, "even if those that are left agree"
    record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=30.0)
    for _ in range(15):
        sizes.ended(record)
    assert sizes.expected(record, 0.0) is not None, "the runs of another size are too long ago"


def test_of_runs_of_several_sizes_the_likely_short_end_counts_until_it_is_over() -> None:
    sizes = CommandSizes(has_master=False)
    record = ContainerRecord(container="c", user="eve", spec=ContainerSpec(argv=SORT), opportunistic=False)
    for cpu_s in (1.0, 1.0, 1.0, 4.0):
        record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=cpu_s)
        sizes.ended(record)
    first, later = sizes.expected(record, 0.0), sizes.expected(record, 2.0)
    assert first is not None and first.left_s == pytest.approx(1.1 * 4 / 3) and first.runs == 4
    assert later is not None and later.left_s == pytest.approx(1.1 * 4 - 2.0) and later.runs == 1
    assert sizes.expected(record, 5.0) is None


def test_the_latest_runs_count_and_the_latest_commands() -> None:
    sizes = CommandSizes(has_master=False)
    record = ContainerRecord(container="c", user="eve", spec=ContainerSpec(argv=SORT), opportunistic=False)
    record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=64.0)
    sizes.ended(record)
    record.ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=1.0)
    for _ in range(16):
        sizes.ended(record)
    first = ContainerRecord(container="d", user="eve", spec=ContainerSpec(argv=SORT), opportunistic=False)
    assert sizes.expected(first, 1.2) is None
    for number in range(1024):
        record.spec = ContainerSpec(argv=SORT, name=f"{number}")
        sizes.ended(record)
    assert sizes.expected(record, 0.0) is not None
    assert sizes.expected(first, 0.0) is None


def test_the_many_names_of_a_user_drop_none_of_another() -> None:
    sizes = CommandSizes(has_master=False)
    ended = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=64.0)
    bob, eve = (
        ContainerRecord(container=user, user=user, spec=ContainerSpec(argv=SORT), opportunistic=False, ended=ended)
        for user in ("bob", "eve")
    )
    sizes.ended(bob)
    sizes.ended(eve)
    for number in range(2048):
        sizes.ended(msgspec.structs.replace(eve, spec=ContainerSpec(argv=SORT, name=f"{number}")))
    assert sizes.expected(eve, 0.0) is None
    assert sizes.expected(bob, 0.0) is not None
