"""Keys that are equal belong together, in every process."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import pytest

from penstock.dataset.keys import partition_of, stable_hash


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Unit(enum.StrEnum):
    METRE = "m"


@dataclass(frozen=True)
class Point:
    x: int
    y: int
    label: str = field(default="", compare=False)


class Pair(tuple[int, int], enum.Enum):  # noqa: SLOT001 - members of an Enum have a __dict__
    FIRST = (1, 2)


class Letters(frozenset[str], enum.Enum):
    VOWELS = frozenset("aeiou")


class Day(dt.date):
    def __str__(self) -> str:
        return "a day"


EAST = dt.timezone(dt.timedelta(hours=5))
UTC_NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Decimal(1), Fraction(1), 1 + 0j, Level.LOW],
        [0, 0.0, -0.0, False],
        [-1, -1.0],
        [2**100, 2.0**100, Decimal(2**100)],
        ["m", Unit.METRE],
        [(1, ("a", None)), (1.0, ("a", None))],
        [frozenset({1, "a"}), frozenset({"a", 1.0})],
        [Point(1, 2, "here"), Point(1, 2, "there")],
        [UTC_NOON, UTC_NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))],
        [dt.date(2020, 1, 1), dt.date(2020, 1, 1), Day(2020, 1, 1)],
        [dt.time(12, tzinfo=dt.UTC), dt.time(17, tzinfo=EAST)],
        [dt.datetime.min.replace(hour=5, tzinfo=EAST), dt.datetime.min.replace(tzinfo=dt.UTC)],
        [(1, 2), Pair.FIRST],
        [frozenset("aeiou"), Letters.VOWELS],
    ],
)
def test_equal_keys_have_equal_hashes(equal: list[object]) -> None:
    for one in equal:
        assert one == equal[0]
        assert stable_hash(one) == stable_hash(equal[0])


def test_keys_of_numpy_and_pandas_are_as_those_that_they_equal() -> None:
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    assert [stable_hash(np.bool_(one)) for one in (True, False)] == [stable_hash(True), stable_hash(False)]
    duration = dt.timedelta(days=-1, seconds=5, microseconds=7)
    assert stable_hash(pd.Timedelta(duration)) == stable_hash(duration)
    assert stable_hash(pd.Timestamp(UTC_NOON)) == stable_hash(UTC_NOON)
    assert stable_hash(pd.NaT) == 0


def test_a_moment_before_the_first_one_in_utc_has_a_place() -> None:
    assert stable_hash(dt.datetime.min.replace(tzinfo=EAST)) != stable_hash(dt.datetime.min.replace(tzinfo=dt.UTC))


def test_different_keys_mostly_have_different_hashes() -> None:
    keys: list[object] = [None, "", b"", 0, 1, "0", b"0", (), (0,), ("0",), (0, 0), ((0,), 0), frozenset(), Colour.RED]
    keys += [Colour.BLUE, Point(1, 2), Point(2, 1), uuid.UUID(int=7), dt.date(2020, 1, 1), dt.timedelta(1), "ab", "ba"]
    assert len({stable_hash(key) for key in keys}) == len(keys)


def test_a_key_that_is_not_equal_to_itself_has_a_place_all_the_same() -> None:
    assert stable_hash(float("nan")) == stable_hash(float("-nan")) == 0


def test_the_same_in_a_process_with_other_hashes_of_text() -> None:
    keys = "[(1, 'two', b'three'), 'ä', None, frozenset({'x', 'y', 'z'})]"
    program = f"from penstock.dataset.keys import stable_hash; print([stable_hash(key) for key in {keys}])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, timeout=60
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{[stable_hash(key) for key in eval(keys)]}\n".encode()}


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_keys_spread_over_partitions(partitions: int) -> None:
    for keys in (range(6400), [f"word{number}" for number in range(6400)]):
        counts = Counter(partition_of(key, partitions) for key in keys)
        assert set(counts) == set(range(partitions))
        assert max(counts.values()) < 2 * 6400 / partitions


@pytest.mark.parametrize("key", [[1], {"a": 1}, object(), (1, [2]), Point])
def test_a_value_that_cannot_be_a_key_is_named(key: object) -> None:
    with pytest.raises(TypeError, match=r"a (list|dict|object|type) cannot be a key: use numbers, text"):
        stable_hash(key)
