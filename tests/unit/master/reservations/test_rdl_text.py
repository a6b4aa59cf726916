"""The text syntax and the JSON form: their meaning, and the messages on invalid input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from master.reservations.rdl import (
    All,
    Any,
    Atom,
    Bundle,
    Calendar,
    Expression,
    Order,
    RdlError,
    Request,
    Window,
    atoms_of,
    from_json,
    normalized,
    parse,
)
from tests.unit.master.reservations.rdl_strategies import expressions
from tests.unit.master.reservations.rdl_written import show, to_json

GB = 10**9
B = Bundle(cpu_cores=1.0, memory_bytes=2 * GB)
NAMED = {"b": B, "big-1.x": Bundle(cpu_cores=16.0)}
FIG_9 = "window(order(atom(b,1,10,240,2400), atom(b,1,20,120,2400), atom(b,1,15,120,1800)),0,800)"


def test_the_papers_own_example() -> None:
    stages = (Atom(B, 1, 10, 240, 2400), Atom(B, 1, 20, 120, 2400), Atom(B, 1, 15, 120, 1800))
    assert parse(FIG_9, bundles=NAMED) == Request(expression=Window(Order(stages), 0, 800))


def test_bundles_written_out_and_named() -> None:
    said = parse(
        "all(atom(<2GB RAM, 1core>,1,1,1,1), atom(big-1.x,1,1,1,1), atom(<0.5cores,8GiB memory>,1,1,1,1))",
        bundles=NAMED,
    )
    assert isinstance(said.expression, All)
    bundles = [part.bundle for part in said.expression.parts if isinstance(part, Atom)]
    assert bundles == [B, NAMED["big-1.x"], Bundle(cpu_cores=0.5, memory_bytes=8 * 2**30)]
    rates = parse("atom(<100MB/s disk,1Gbit/s network>,1,1,1,1)").expression
    assert isinstance(rates, Atom)
    assert rates.bundle == Bundle(disk_bytes_per_s=100 * 10**6, network_bytes_per_s=125 * 10**6)


def test_times_as_people_write_them() -> None:
    calendar = Calendar(step_s=60.0, origin=1_795_255_200.0, now=30)  # 2026-11-21T10:00:00Z
    said = parse("window(atom(b,1,2,90s,1.5h),2026-11-21T10:00:30Z,2026-11-21T12:00:30+01:00)", calendar, NAMED)
    assert said.expression == Window(Atom(B, 1, 2, 2, 90), 1, 60)
    ahead = parse("window(atom(b,1,2,1,1),+0,+1h)", calendar, NAMED)
    assert ahead.expression == Window(Atom(B, 1, 2, 1, 1), 30, 90)


@pytest.mark.parametrize("step_s", [0.1, 0.7, 1.0, 60.0, 3600.0])
@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**6))
def test_a_window_lies_within_the_times_that_were_written(step_s: float, start: int, length: int, now: int) -> None:
    """Exactly, in hundredths of a second: no start is rounded down, and no end up."""
    calendar = Calendar(step_s=step_s, origin=1_795_255_200.0, now=now)
    step = Fraction(str(step_s)) * 100
    begins = datetime(2026, 11, 21, 10, tzinfo=UTC)
    for base, write in (
        (Fraction(0), lambda at: f"{at / 100:.2f}s"),
        (now * step, lambda at: f"+{at / 100:.2f}s"),
        (Fraction(0), lambda at: (begins + timedelta(milliseconds=10 * at)).isoformat()),
    ):
        first, last = calendar.time(write(start)), calendar.time(write(start + length), last=True)
        assert first * step >= base + start > (first - 1) * step
        assert last * step <= base + start + length < (last + 1) * step


def test_a_window_without_a_whole_step_is_refused_in_one_line() -> None:
    calendar = Calendar(step_s=60.0)
    said = "the window ends at step 1, not behind its start at step 1 (a start is rounded up and an end down to whole"
    for read in (
        lambda: parse("window(atom(b,1,1,1,1),30s,90s)", calendar, NAMED),
        lambda: from_json({"window": [{"atom": ["b", 1, 1, 1, 1]}, "30s", "90s"]}, calendar, NAMED),
    ):
        with pytest.raises(RdlError) as caught:
            read()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("every", ["90s", "0.5min", "61s"])
def test_a_period_is_whole_steps_lest_turns_drift(every: str) -> None:
    calendar = Calendar(step_s=60.0)
    with pytest.raises(RdlError, match="no whole number of steps of 60 s"):
        parse(f"atom(b,1,1,1,1) every {every}", calendar, NAMED)
    with pytest.raises(RdlError, match=r"\$\.every: .* no whole number of steps of 60 s"):
        from_json({"atom": ["b", 1, 1, 1, 1], "every": every}, calendar, NAMED)
    assert parse("atom(b,1,1,1,1) every 2min", calendar, NAMED).every == 2


def test_beyond_the_paper() -> None:
    assert parse("order(atom(b,1,1,1,1), atom(b,1,1,1,1), no_gap)", bundles=NAMED).expression == Order(
        (Atom(B, 1, 1, 1, 1),) * 2, no_gap=True
    )
    said = parse("atom(b,1,1,1,1) every 24h until 2026-12-01T00:00:00Z", Calendar(3600.0), NAMED)
    assert (said.every, said.until) == (24, 1_796_083_200 // 3600)


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 1, "expected all or any or atom or order or window"),
        ("atom(b,1,10,240)", 16, "expected ','"),
        ("atom(b,1,10,240,2400", 21, "expected ')'"),
        ("atom(b,x,10,240,2400)", 8, "expected a whole number"),
        ("atom(c,1,10,240,2400)", 6, "no bundle is named 'c' (known: b, big-1.x)"),
        ("atom(b,0,10,240,2400)", 8, "a gang has one bundle at least"),
        ("atom(b,5,2,240,2400)", 10, "at most 2 is less than the gang of 5"),
        ("atom(<2GB,4GB>,1,1,1,1)", 11, "memory_bytes is given twice"),
        ("atom(<0core>,1,1,1,1)", 7, "some of each resource"),
        ("atom(<2 RAM>,1,1,1,1) x", 23, "expected every or the end"),
        ("window(atom(b,1,1,1,1),8,8)", 26, "ends at step 8, not behind its start at step 8"),
        ("window(atom(b,1,1,1,1),2026-13-01T00:00Z,8)", 24, "is no time"),
        ("any()", 5, "expected all or any"),
        ("atom(b,1,1,1,1) every 0h", 17, "one step at least"),
        ("order(atom(b,1,1,1,1),no_gap,atom(b,1,1,1,1))", 29, "expected ')'"),
        ("atom(b,1,1,1,1)\x00", 16, "or every"),
    ],
)
def test_an_error_is_pointed_at(text: str, position: int, said: str) -> None:
    with pytest.raises(RdlError) as caught:
        parse(text, bundles=NAMED)
    line = str(caught.value)
    assert line.startswith(f"rdl: character {position}: "), line
    assert said in line
    assert "\n" not in line


def test_an_expression_that_is_too_deep_or_too_long_is_not_read() -> None:
    with pytest.raises(RdlError, match="nested deeper"):
        parse("any(" * 5000 + "atom(b,1,1,1,1)" + ")" * 5000, bundles=NAMED)
    with pytest.raises(RdlError, match="at most 100000"):
        parse("x" * 200_000)
    deep: object = {"atom": ["b", 1, 1, 1, 1]}
    for _ in range(100):
        deep = {"any": [deep]}
    with pytest.raises(RdlError, match="nested deeper"):
        from_json(deep, bundles=NAMED)


@given(expressions)
def test_text_and_json_give_back_the_same_expression(expression: Expression) -> None:
    assert parse(show(expression)).expression == expression
    assert from_json(to_json(Request(expression=expression, every=7))) == Request(expression=expression, every=7)
    once = normalized(Window(expression, 0, 9))
    assume(all((atom.start or 0) < (atom.finish or 9) for atom in atoms_of(once)))  # else no text can express it
    assert normalized(parse(show(once)).expression) == once
    assert normalized(from_json(to_json(Request(expression=once))).expression) == once


@given(st.text(alphabet="atomnylderwi()<>,0123456789GBcore+:.-TZ \n", max_size=60) | st.text(max_size=30))
def test_no_text_ends_in_anything_but_a_request_or_a_line(text: str) -> None:
    try:
        parse(text, bundles=NAMED)
    except RdlError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "$: an object with one of"),
        ({"atom": ["b", 1, 1, 1]}, "$.atom: [bundle, g, h, l, w]"),
        ({"atom": ["c", 1, 1, 1, 1]}, "$.atom[0]: no bundle is named 'c'"),
        ({"atom": [{"cores": 1}, 1, 1, 1, 1]}, "$.atom[0]: there is no key 'cores'"),
        ({"atom": ["b", True, 1, 1, 1]}, "$.atom[1]: a whole number"),
        ({"atom": ["b", 2, 1, 1, 1]}, "$.atom[2]: at most 1"),
        ({"atom": ["b", 1, 1, "soon", 1]}, "$.atom[3]: 'soon' is no duration"),
        ({"atom": ["b", 1, 1, "1" * 5000, 1]}, "$.atom[3]: '1111"),
        ({"atom": ["b", 1, 1, 1, 10**400]}, "$.atom[4]: '1000"),
        ({"atom": ["b", 1, 1, 1, -1]}, "$.atom[4]: '-1' is no duration"),
        ({"atom": ["b", 1, 10**400, 1, 1]}, "$.atom[2]: a whole number from 1 to"),
        ({"any": []}, "$.any: a list that is not empty"),
        ({"any": [{"all": [3]}]}, "$.any[0].all[0]: an object"),
        ({"window": [{"atom": ["b", 1, 1, 1, 1]}, 4, "3"]}, "$.window[2]: the window ends"),
        ({"any": [{"atom": ["b", 1, 1, 1, 1]}], "no_gap": True}, "$: any and 'no_gap' do not go together"),
        ({"order": [{"atom": ["b", 1, 1, 1, 1]}], "no_gap": 1}, "$.no_gap: true or false"),
        ({"atom": ["b", 1, 1, 1, 1], "until": 3}, "$.every: a period"),
    ],
)
def test_an_error_in_json_is_named(value: object, said: str) -> None:
    with pytest.raises(RdlError) as caught:
        from_json(value, bundles=NAMED)
    assert said in str(caught.value)


def test_json_means_the_same_as_text() -> None:
    value = {
        "window": [
            {"order": [{"atom": ["b", 1, 10, "4min", "1h"]}, {"any": [{"atom": ["b", 2, 2, 1, 4]}]}], "no_gap": True},
            "+1h",
            9000,
        ]
    }
    said = from_json(value, Calendar(now=100), NAMED)
    text = "window(order(atom(b,1,10,4min,1h),any(atom(b,2,2,1,4)),no_gap),+1h,9000)"
    assert said == parse(text, Calendar(now=100), NAMED)
    assert isinstance(said.expression, Window)
    assert isinstance(said.expression.part, Order)
    assert isinstance(said.expression.part.parts[1], Any)
