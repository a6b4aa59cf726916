"""A missed bar is seen as one, and the page gets its tables where they belong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.enforcement.command import BEGIN, END, PAGE, main, write
from bench.enforcement.figures import Accuracy, Isolation, Reaction, Report, percentile, tables


def accuracy(charged: float, *, at_most: bool = False, bar: float | None = 0.02) -> Accuracy:
    return Accuracy(what="cpu", unit="cores", asked=0.5, charged=charged, bar=bar, at_most=at_most)


@pytest.mark.parametrize(("charged", "met"), [(0.5, True), (0.509, True), (0.491, True), (0.511, False), (0.48, False)])
def test_accuracy_goes_both_ways(charged: float, met: bool) -> None:
    assert accuracy(charged).met is met
    assert accuracy(charged, bar=None).met


@pytest.mark.parametrize(("charged", "met"), [(0.5, True), (0.1, True), (0.501, False)])
def test_what_is_never_exceeded_may_be_less(charged: float, met: bool) -> None:
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


def test_a_report_survives_its_way_out_of_the_machine() -> None:
    report = Report(where="there", kernel="6.1", figures=[accuracy(0.4), Reaction(what="x", times_s=(None,))])
    assert Report.decode(msgspec.json.encode(report)) == report
    assert "**missed**" in tables(report.figures)


def test_only_what_is_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="has no"):
        write(page, "new")
    assert page.read_text() == "no markers"


def test_the_page_has_its_markers() -> None:
    assert PAGE.read_text().index(BEGIN) < PAGE.read_text().index(END)


def test_a_part_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no part nonsense" in capsys.readouterr().err
