"""A missed bar is seen as one, and the page gets its tables where they belong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.enforcement.command import PAGE, PARTS, main, markers, write
from bench.enforcement.falling import FAST, SLOW, figure
from bench.enforcement.figures import Accuracy, Cost, Figure, Isolation, Reaction, Report, measure, percentile, tables
from bench.enforcement.files import Operation, timed


def accuracy(charged: float, *, at_most: bool = False, bar: float | None = 0.02) -> Accuracy:
    return Accuracy(what="cpu", unit="cores", asked=0.5, charged=charged, bar=bar, at_most=at_most)


@pytest.mark.parametrize(("charged", "met"), [(0.5, True), (0.509, True), (0.491, True), (0.511, False), (0.48, False)])
def test_accuracy_goes_both_ways(charged: float, met: bool) -> None:
    assert accuracy(charged).met is met
    assert accuracy(charged, bar=None).met


@pytest.mark.parametrize(("charged", "met"), [(0.5, True), (0.1, True), (0.501, False)])
def test_an_upper_bound_may_be_undercut(charged: float, met: bool) -> None:
    assert accuracy(charged, at_most=True, bar=0.0).met is met


@pytest.mark.parametrize(
    ("beside", "p1", "met"), [(96.0, 91.0, True), (94.0, 93.0, False), (96.0, 89.0, False), (110.0, 100.0, True)]
)
def test_isolation_is_judged_by_the_mean_and_by_the_worst_second(beside: float, p1: float, met: bool) -> None:
    figure = Isolation(what="", hogs="", unit="", alone=100.0, alone_p1=99.0, beside=beside, beside_p1=p1)
    assert figure.met is met
    assert msgspec.structs.replace(figure, judged=False).met


def test_a_reaction_that_never_came_misses_every_bar() -> None:
    figure = Reaction(what="", times_s=(0.1, None), bar_s=0.25)
    assert not figure.met
    assert figure.cells()[2:4] == ("100 ms", "never")


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 1), percentile(values, 50), percentile(values, 99)) == (1.0, 50.0, 99.0)
    assert percentile([7.0, 8.0], 1) == 7.0


@pytest.mark.parametrize(("time_s", "met"), [(0.9, True), (1.0, True), (1.1, False)])
def test_a_cost_is_judged_by_its_peer_in_the_same_run(time_s: float, met: bool) -> None:
    cost = Cost(what="kept", time_s=time_s, peer="opened", peer_s=2.0, bar=0.5)
    assert cost.met is met
    assert ("**missed**" in cost.cells()) is not met
    assert Cost(what="opened", time_s=time_s).met


def test_an_operation_is_timed_after_a_round_that_does_not_count() -> None:
    done: list[str] = []
    operations = [
        Operation("opened", lambda: done.append("opened")),
        Operation("kept", lambda: done.append("kept"), 1000, peer="opened", bar=1.0),
    ]
    opened, kept = timed(operations, 2)
    assert done == ["opened", "kept"] * 3
    assert isinstance(opened, Cost) and isinstance(kept, Cost)
    assert kept.peer_s == opened.time_s
    assert kept.met  # a thousandth of the time that the same takes


@pytest.mark.parametrize(
    ("first", "then", "wrong"),
    [
        (0.5 * SLOW, SLOW, 0),
        (0.5 * SLOW + 0.15 * FAST, SLOW, 0),  # a slice at the old limit
        (2 * FAST, SLOW, 1),
        (0.5 * SLOW, 0.0, 1),
        (2 * FAST, 0.0, 1),
    ],
)
def test_a_lowered_limit_goes_wrong_by_too_much_at_first_or_silence_afterwards(
    first: float, then: float, wrong: int
) -> None:
    in_order = (0.5 * SLOW, float(SLOW))
    lowering = figure("held", [in_order, (first, then)], judged=True)
    assert (lowering.wrong, lowering.met) == (wrong, not wrong)
    assert lowering.cells()[1:3] == ("2", str(wrong))
    assert figure("at once", [in_order, (first, then)], judged=False).met


def test_reports_survive_their_way_out_of_the_machine() -> None:
    made: list[Figure] = [
        accuracy(0.4),
        Reaction(what="x", times_s=(None,), bar_s=0.25),
        Cost(what="kept", time_s=2.0, peer="opened", peer_s=1.0, bar=1.0),
        figure("held", [(2 * FAST, 0.0)], judged=True),
    ]
    reports = measure({"files": lambda: made, "falling": list}, ["files"], "there")
    assert msgspec.json.decode(msgspec.json.encode(reports), type=list[Report]) == reports
    assert [report.part for report in reports] == ["files"]
    assert tables(reports[0].figures).count("**missed**") == len(made)


def test_only_the_tables_of_its_part_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first, second = ("\n".join((markers(part)[0], "old", markers(part)[1])) for part in ("files", "native-files"))
    page.write_text(f"before\n{first}\nbetween\n{second}\nafter\n")
    write(page, "files", "new")
    assert page.read_text() == f"before\n{first.replace('old', 'new')}\nbetween\n{second}\nafter\n"
    with pytest.raises(ValueError, match="has no <!-- bench-enforcement falling -->"):
        write(page, "falling", "new")


@pytest.mark.parametrize("part", PARTS)
def test_the_page_has_the_tables_of_a_part(part: str) -> None:
    begin, end = markers(part)
    _, _, rest = PAGE.read_text().partition(begin)
    assert "| --- |" in rest.partition(end)[0]


def test_a_part_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no part nonsense" in capsys.readouterr().err
