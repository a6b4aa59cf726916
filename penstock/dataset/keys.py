"""Assign keys to partitions: equal keys get the same partition in every process.

Python's hash of text differs between processes. Its hash of numbers does not, and equal numbers of different types
have equal hashes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import numbers
import uuid
import zlib

_MASK = 0xFFFFFFFF
#: The start values of checksums, which differ so that an empty text and an empty tuple have different hashes.
_TEXT, _BYTES, _NAME, _SET, _TUPLE = (number << 20 for number in (1, 2, 3, 4, 5))


def partition_of(key: object, partitions: int) -> int:
    """Return the partition of a key.

    Raises:
        TypeError: the key is no number, text, bytes, date, UUID or Enum, nor a tuple, frozenset or frozen dataclass
            of those.
    """
    # CRC-32 values of keys that differ only in the last digit differ in few bits; Fibonacci hashing spreads them.
    return ((stable_hash(key) * 0x9E3779B1 & _MASK) * partitions) >> 32


def stable_hash(key: object) -> int:
    """Return a hash of 32 bits that is equal for equal keys in every process.

    Raises:
        TypeError: as for :func:`partition_of`.
    """
    match key:
        case None:
            return _of_text("None")
        case str():
            return zlib.crc32(key.encode("utf-8", "surrogatepass"), _TEXT)
        case numbers.Number():
            # NaN is not equal to itself, and its hash would depend on its address.
            return hash(key) & _MASK if key == key else 0
        case bytes():
            return zlib.crc32(key, _BYTES)
        case tuple():
            return _of_sequence(key)
        case frozenset():
            return (sum(map(stable_hash, key)) + _SET) & _MASK
        case uuid.UUID():
            return hash(key.int) & _MASK
        case dt.date() | dt.time() | dt.timedelta():
            return _of_time(key) if key == key else 0  # NaT of pandas is like NaN
        case enum.Enum():  # a member that is also of a type above is equal to a value of that type
            return _of_text(f"{type(key).__qualname__}.{key.name}")
    if type(key).__module__ == "numpy" and type(key).__name__ in {"bool", "bool_"}:
        return int(bool(key))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        values = [getattr(key, field.name) for field in dataclasses.fields(key) if field.compare]
        return _of_sequence((type(key).__qualname__, *values))
    raise TypeError(f"a {type(key).__name__} cannot be a key: use numbers, text, bytes, dates or tuples of those")


def _of_text(text: str) -> int:
    return zlib.crc32(text.encode(), _NAME)


def _of_time(key: dt.date | dt.time | dt.timedelta) -> int:
    """Return a hash that depends neither on the time zone nor on the subclass. ``astimezone`` fails near year 1."""
    if isinstance(key, dt.timedelta):
        return _of_text(f"{key.days} {key.seconds} {key.microseconds}")
    days = key.toordinal() if isinstance(key, dt.date) else 0
    if not isinstance(key, dt.datetime | dt.time):
        return _of_text(str(days))
    clock = dt.timedelta(days, key.second, key.microsecond, minutes=key.minute, hours=key.hour)
    return _of_time(clock - (key.utcoffset() or dt.timedelta()))


def _of_sequence(values: tuple[object, ...]) -> int:
    found = _TUPLE + len(values)
    for value in values:
        found = zlib.crc32(stable_hash(value).to_bytes(4, "big"), found)
    return found
