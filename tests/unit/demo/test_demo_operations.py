"""The three jobs against their definitions, and that cutting the input differently changes nothing."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from demo.corpus import Document, range_ends
from demo.operations import OPERATIONS, Cut

TEXTS = [b"The cat\nand the hat\n", b"a cat sat\n\nthe end\n", b"zebra\nand the cat\n"]


def execute(name: str, parts: list[tuple[bytes, list[Document]]], reducers: int) -> bytes:
    operation = OPERATIONS[name]
    lines = [line for text, _ in parts for line in text.splitlines()]
    cut = Cut(reducers, range_ends(lines, reducers))
    mapped = [operation.map(text, documents, cut) for text, documents in parts]
    assert all(len(blobs) == reducers for blobs in mapped)
    return b"".join(operation.merge([blobs[reducer] for blobs in mapped]) for reducer in range(reducers))


def one_each() -> list[tuple[bytes, list[Document]]]:
    return [(text, [Document(n, 0, len(text))]) for n, text in enumerate(TEXTS)]


@pytest.mark.parametrize("reducers", [1, 2, 5])
def test_word_count(reducers: int) -> None:
    expected = Counter(re.findall(r"[a-z]+", b"".join(TEXTS).decode().lower()))
    got = execute("word-count", one_each(), reducers).decode().splitlines()
    assert dict(line.split("\t") for line in got) == {word: str(count) for word, count in expected.items()}
    assert len(got) == len(expected)


@pytest.mark.parametrize("reducers", [1, 3])
def test_inverted_index(reducers: int) -> None:
    got = dict(line.split(b"\t") for line in execute("inverted-index", one_each(), reducers).splitlines())
    assert got[b"cat"] == b"0:1 1:1 2:1"
    assert got[b"the"] == b"0:2 1:1 2:1"
    assert got[b"zebra"] == b"2:1"


def test_a_document_cut_between_partitions_counts_as_one() -> None:
    whole = [(b"".join(TEXTS), [Document(7, 0, len(b"".join(TEXTS)))])]
    cut = [(text, [Document(7, 0, len(text))]) for text in TEXTS]
    assert execute("inverted-index", cut, 2) == execute("inverted-index", whole, 2)


@pytest.mark.parametrize("reducers", [1, 2, 4])
def test_sort(reducers: int) -> None:
    expected = sorted(line for text in TEXTS for line in text.splitlines())
    assert execute("sort", one_each(), reducers) == b"\n".join(expected) + b"\n"


def test_sort_of_a_range_that_nothing_falls_into() -> None:
    operation = OPERATIONS["sort"]
    blobs = operation.map(b"m\n", [Document(0, 0, 2)], Cut(3, [b"a", b"b"]))
    assert blobs == [b"", b"", b"m\n"]
    assert operation.merge([b"", b""]) == b""
    assert operation.merge([b"\n", b""]) == b"\n"  # one empty line, and no line
