"""Quantities as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.units import (
    QuantityError,
    counted,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_s,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("64k", 64 * 1024),
        ("64M", 64 * 1024**2),
        ("64MiB", 64 * 1024**2),
        ("64mib", 64 * 1024**2),
        ("64MB", 64 * 1000**2),
        ("1.5G", 1536 * 1024**2),
        (" 2 TiB ", 2 * 1024**4),
        (".5k", 512),
        ("1kB", 1000),
    ],
)
def test_bytes(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "M", "12Q", "-1", "1e3", "0", "0.4", "1/s", "12 34", "٣M", "1MiBB", "nan"])
def test_no_bytes(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("24Gb", "'24Gb': Gb is bits; write 24GB or 24GiB"),
        ("1.5 mb", "'1.5 mb': mb is bits; write 1.5MB or 1.5MiB"),
        ("64kb", "'64kb': kb is bits; write 64kB or 64KiB"),
        ("64Kb", "'64Kb': Kb is bits; write 64kB or 64KiB"),
        ("4096b", "'4096b': b is bits; write 4096B"),
        ("12Q", "'12Q': unknown unit 'Q'; write for example 64M, 2GiB or 500MB"),
    ],
)
def test_a_wrong_unit_is_named_with_the_remedy(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_bytes(text)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("10MB/s", 10_000_000),
        ("10M", 10 * 1024**2),
        ("10MiB/s", 10 * 1024**2),
        ("100Mbit/s", 12_500_000),
        ("100Mbit", 12_500_000),
        ("10MBps", 10_000_000),
        ("8bit/s", 1),
        ("4096/s", 4096),
        ("1.5kbit/s", 187),
    ],
)
def test_rates(text: str, amount: int) -> None:
    assert parse_rate(text) == amount


@pytest.mark.parametrize("text", ["1Gbps", "10Mb/s", "10mb", "8b/s"])
def test_a_rate_that_may_be_bits_or_bytes_is_no_rate(text: str) -> None:
    with pytest.raises(QuantityError, match="bits or bytes"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("3s", 3.0), ("1.5", 1.5), ("10min", 600.0), ("2h", 7200.0), ("1d", 86400.0), ("7us", 7e-6)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_rate, text) for text in ("", "fast", "10Qbit/s", "1bit/s", "0", "10MB/h", "-1M")]
    + [(parse_duration_s, text) for text in ("", "soon", "3 weeks", "-1s", "1M")],
)
def test_no_rates_and_no_durations(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_duration_s])
@pytest.mark.parametrize("text", ["9" * 19, "9" * 400])
def test_a_number_too_large_for_a_message_is_refused(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(QuantityError, match=r"^'9+' is too large; write for example "):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_bytes, "8388608T"), (parse_rate, "8388608T"), (parse_rate, "99999999Tbit/s")]
)
def test_a_unit_can_make_it_too_large(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(QuantityError, match="is too large; write less than 2"):
        parse(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (67108864, "64 MiB"),
        (123 * 1024**2, "123 MiB"),
        (5 * 1024**5, "5120 TiB"),
    ],
)
def test_format(amount: int, text: str) -> None:
    assert format_bytes(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60.0, "1 min"),
        (93.4, "1 min 33 s"),
        (119.6, "2 min"),
        (3600.0, "1 h"),
        (9999.0, "2 h 47 min"),
        (200000.0, "2 d 8 h"),
    ],
)
def test_format_of_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.text(max_size=12))
def test_reading_never_fails_otherwise(text: str) -> None:
    for parse in (parse_bytes, parse_rate, parse_duration_s):
        try:
            assert parse(text) >= 0
        except QuantityError:
            continue


@given(st.integers(1, 2**60))
def test_a_shown_value_is_read_back_within_its_three_digits(amount: int) -> None:
    assert parse_bytes(format_bytes(amount).replace(" ", "")) == pytest.approx(amount, rel=0.006)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(1, "job"), "1 job"),
        (counted(0, "job"), "0 jobs"),
        (counted(0.5, "core"), "0.5 cores"),
        (counted(1.0, "core"), "1 core"),
        (counted(1.004, "core", digits=2), "1 core"),
        (counted(1.04, "core", digits=3), "1.04 cores"),
        (counted(1, "task", "wait"), "1 task waits"),
        (counted(2, "task", "wait"), "2 tasks wait"),
        (counted(12_345_678, "character"), "12345678 characters"),
    ],
)
def test_a_number_agrees_with_its_noun(said: str, expected: str) -> None:
    assert said == expected
