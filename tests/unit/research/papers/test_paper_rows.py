"""The format of figures."""

from __future__ import annotations

from research.papers.rows import change, close, listed, percent, row, seconds


def test_the_reason_is_given_where_it_is_needed() -> None:
    assert row(what="a", paper="1", ours="2", holds=False, why="because").why == "because"
    assert row(what="a", paper="1", ours="1", holds=True, why="because").why == ""


def test_a_figure_holds_within_a_fraction_of_the_papers() -> None:
    def tried(ours_s: float) -> bool:
        return close("makespan", 40.0, ours_s, within=0.05, say=seconds, why="because").holds

    assert tried(38.0)
    assert tried(42.0)
    assert not tried(37.9)
    assert not tried(42.1)
    made = close("makespan", 40.0, 41.26, within=0.05, say=seconds, why="because")
    assert (made.what, made.paper, made.ours) == ("makespan (± 5 %)", "40 s", "41.3 s")
    assert close("drift", -0.1, -0.11, within=0.2, say=percent, why="because").holds


def test_figures() -> None:
    assert percent(-0.0666) == "−6.7 %"
    assert change(9.0, 10.0) == "−10.0 %"
    assert change(11.0, 10.0) == "+10.0 %"
    assert listed([1234.4, 99.96, 0.123456], seconds) == "1234 s, 100 s, 0.123 s"
