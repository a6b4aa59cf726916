"""The entries of the journal's log: frames with a checksum, so that one which is not whole ends the log."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from struct import Struct

import msgspec

#: The header of each entry: its length and CRC-32.
_FRAME = Struct(">II")
_MAX_ENTRY_BYTES = 1 << 28


class Entry(msgspec.Struct, array_like=True):
    """A change: ``value`` is the encoded record; None removes it. In the first entry of a log, ``room`` is empty and
    ``key`` is the number of entries that follow it as the log's beginning.
    """

    room: str
    key: str
    value: bytes | None = None


_DECODER = msgspec.msgpack.Decoder(Entry)


def framed(changes: Mapping[tuple[str, str], bytes | None]) -> bytes:
    """Return the entries, each with its header, of changes: room and key → encoded record, or None to remove it."""
    encoded = [msgspec.msgpack.encode(Entry(room, key, value)) for (room, key), value in changes.items()]
    return b"".join(_FRAME.pack(len(data), zlib.crc32(data)) + data for data in encoded)


def entries(data: bytes) -> Iterator[tuple[Entry, int]]:
    """Yield each whole entry, and the offset of its end."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        begin, at = at + _FRAME.size, at + _FRAME.size + length
        if length > _MAX_ENTRY_BYTES or at > len(data) or zlib.crc32(data[begin:at]) != checksum:
            return
        try:
            yield _DECODER.decode(data[begin:at]), at
        except msgspec.DecodeError:
            return
