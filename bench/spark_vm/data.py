"""What the four applications read: generated, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

SEED = 6
#: What makes so many lines (of links: pages with some lines each).
Kind = Callable[[int], Iterator[str]]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORDS = 20_000
_WORDS_A_LINE = 12
_DIMENSIONS = 12
_BLOBS = 16
_LINKS_A_PAGE = 8
_SITE = "https://www.example.org/encyclopedia/articles/"


def records(count: int) -> Iterator[str]:
    """Lines of 1,000 bytes (with their end) to sort: a key of ten letters, then filling that cannot be compressed."""
    rng = random.Random(SEED)
    for number in range(count):
        key = "".join(rng.choices(_LETTERS, k=10))
        yield f"{key} {number:010d} {rng.getrandbits(3908):0977x}\n"


def text(lines: int) -> Iterator[str]:
    """Words by Zipf's law."""
    rng = random.Random(SEED)
    words = ["".join(rng.choices(_LETTERS, k=rng.randint(2, 10))).lower() for _ in range(_WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, _WORDS + 1)))
    for _ in range(lines):
        yield " ".join(rng.choices(words, cum_weights=weights, k=_WORDS_A_LINE)) + "\n"


def points(count: int) -> Iterator[str]:
    """Points with whole coordinates around some centres."""
    rng = random.Random(SEED)
    centres = [[rng.randint(0, 10_000) for _ in range(_DIMENSIONS)] for _ in range(_BLOBS)]
    for _ in range(count):
        yield " ".join(str(round(rng.gauss(each, 800))) for each in rng.choice(centres)) + "\n"


def links(pages: int) -> Iterator[str]:
    """Which page links to which: popular ones (small numbers) are linked to more often."""
    rng = random.Random(SEED)
    for page in range(pages):
        for _ in range(rng.randint(1, 2 * _LINKS_A_PAGE - 1)):
            yield f"{_SITE}{page} {_SITE}{int(pages * rng.random() ** 3)}\n"


def write(path: Path, lines: Iterator[str]) -> None:
    """Write them to a file."""
    with path.open("w", encoding="ascii") as file:
        file.writelines(lines)
