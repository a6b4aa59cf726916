"""Which partition a key belongs to: the same in every process, and the same for keys that are equal.

Python's own hash of text differs from process to process; that of numbers does not, and equal numbers of different
types have the same.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import numbers
import uuid
import zlib

_MASK = 0xFFFFFFFF
#: Where the checksums begin, so that an empty text is not an empty tuple.
_TEXT, _BYTES, _NAME, _SET, _TUPLE = (number << 20 for number in (1, 2, 3, 4, 5))


def partition_of(key: object, partitions: int) -> int:
    """The partition of a key.

    Raises:
        TypeError: no number, text, bytes, date, UUID or Enum, nor tuple, frozenset or frozen dataclass of those.
    """
    # CRC-32 of keys that differ in their last digit differ in few bits: spread them (Fibonacci hashing).
    return ((stable_hash(key) * 0x9E3779B1 & _MASK) * partitions) >> 32


def stable_hash(key: object) -> int:
    """32 bits that are equal for equal keys, in every process.

    Raises:
        TypeError: as for :func:`partition_of`.
    """
    match key:
        case None:
            return _of_text("None")
        case str():
            return zlib.crc32(key.encode("utf-8", "surrogatepass"), _TEXT)
        case numbers.Number():
            # What is not equal to itself (NaN) is no key of anything; its hash would be that of its address.
            return hash(key) & _MASK if key == key else 0
        case bytes():
            return zlib.crc32(key, _BYTES)
        case enum.Enum():
            return _of_text(f"{type(key).__qualname__}.{key.name}")
        case tuple():
            return _of_sequence(key)
        case frozenset():
            return (sum(map(stable_hash, key)) + _SET) & _MASK
        case uuid.UUID():
            return hash(key.int) & _MASK
        case dt.datetime() if key.utcoffset() is not None:
            return _of_text(key.astimezone(dt.UTC).isoformat())
        case dt.date() | dt.time() | dt.timedelta():
            return _of_text(str(key))
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        values = [getattr(key, field.name) for field in dataclasses.fields(key) if field.compare]
        return _of_sequence((type(key).__qualname__, *values))
    raise TypeError(f"a {type(key).__name__} cannot be a key: use numbers, text, bytes, dates or tuples of those")


def _of_text(text: str) -> int:
    return zlib.crc32(text.encode(), _NAME)


def _of_sequence(values: tuple[object, ...]) -> int:
    found = _TUPLE + len(values)
    for value in values:
        found = zlib.crc32(stable_hash(value).to_bytes(4, "big"), found)
    return found
