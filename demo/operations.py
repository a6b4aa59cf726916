"""The computation of the three jobs: a map over a partition of the text and a merge of the maps' output for one
reducer.

Bytes in, bytes out, and nothing that depends on the order in which tasks ran: two executors must agree on every byte.
The maps go document by document: inside one long call the interpreter lets no other thread (a read, a pull) run.
"""

from __future__ import annotations

import marshal
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from demo.corpus import Document

_WORD = re.compile(rb"[a-z]+")
#: The version of marshal: the reader is a process forked from the same interpreter.
_MARSHAL = 2


class Cut(NamedTuple):
    """How intermediate results are divided among reducers: by hash, or by range for the sort."""

    reducers: int
    ends: list[bytes]

    def by_hash(self, word: bytes) -> int:
        """The reducer of a word, the same in every process (``hash()`` is not)."""
        return zlib.crc32(word) % self.reducers


class Operation(NamedTuple):
    """``map(text, documents, cut)`` makes a blob per reducer; ``merge(blobs)`` (in order) the output."""

    map: Callable[[bytes, list[Document], Cut], list[bytes]]
    merge: Callable[[list[bytes]], bytes]


def count_words(text: bytes, documents: list[Document], cut: Cut) -> list[bytes]:
    """How often each word is in the text."""
    total: Counter[bytes] = Counter()
    for _, offset, length in documents:
        total.update(_WORD.findall(text[offset : offset + length].lower()))
    parts: list[dict[bytes, int]] = [{} for _ in range(cut.reducers)]
    for word, count in total.items():
        parts[cut.by_hash(word)][word] = count
    return [marshal.dumps(part, _MARSHAL) for part in parts]


def add_counts(blobs: list[bytes]) -> bytes:
    """``word TAB count``, sorted by word."""
    total: dict[bytes, int] = {}
    for blob in blobs:
        for word, count in marshal.loads(blob).items():  # made by a worker of ours: it knows the token
            total[word] = total.get(word, 0) + count
    return b"".join(b"%s\t%d\n" % entry for entry in sorted(total.items()))


def index_words(text: bytes, documents: list[Document], cut: Cut) -> list[bytes]:
    """Which documents have each word, and how often."""
    parts: list[dict[bytes, list[tuple[int, int]]]] = [{} for _ in range(cut.reducers)]
    for document, offset, length in documents:
        for word, count in Counter(_WORD.findall(text[offset : offset + length].lower())).items():
            parts[cut.by_hash(word)].setdefault(word, []).append((document, count))
    return [marshal.dumps(part, _MARSHAL) for part in parts]


def merge_indexes(blobs: list[bytes]) -> bytes:
    """``word TAB document:count …``, sorted by word, then by document."""
    index: dict[bytes, list[tuple[int, int]]] = {}
    for blob in blobs:
        for word, postings in marshal.loads(blob).items():
            index.setdefault(word, []).extend(postings)
    return b"".join(b"%s\t%s\n" % (word, _postings(index[word])) for word in sorted(index))


def _postings(found: Iterable[tuple[int, int]]) -> bytes:
    counts: dict[int, int] = {}
    for document, count in found:  # a document cut between partitions comes more than once
        counts[document] = counts.get(document, 0) + count
    return b" ".join(b"%d:%d" % entry for entry in sorted(counts.items()))


def sort_lines(text: bytes, documents: list[Document], cut: Cut) -> list[bytes]:
    """The lines in order, cut where the reducers' ranges end."""
    lines: list[bytes] = []
    for _, offset, length in documents:
        lines += text[offset : offset + length - 1].split(b"\n")  # without the last newline: no line follows it
    lines.sort()
    at = [0, *(bisect_right(lines, end) for end in cut.ends), len(lines)]
    return [_joined(lines[begin:end]) for begin, end in pairwise(at)]


def merge_lines(blobs: list[bytes]) -> bytes:
    """All lines in order. Timsort finds the sorted runs and merges them."""
    lines: list[bytes] = []
    for blob in blobs:
        if blob:
            lines += blob[:-1].split(b"\n")
    lines.sort()
    return _joined(lines)


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n" if lines else b""


OPERATIONS = {
    "word-count": Operation(count_words, add_counts),
    "inverted-index": Operation(index_words, merge_indexes),
    "sort": Operation(sort_lines, merge_lines),
}
