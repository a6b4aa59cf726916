"""Text that compresses and sorts as prose does: words by Zipf's law, the same on every host."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

_WORDS = 20_000
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_PIECE_BYTES = 1 << 20


def write(path: Path, size_bytes: int, seed: int = 1) -> None:
    """Write a file of about ``size_bytes`` in lines of twelve words."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_LETTERS, k=draw.randint(2, 11))) for _ in range(_WORDS)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(_WORDS)))
    with path.open("w", encoding="ascii") as file:
        written = 0
        while written < size_bytes:
            drawn = draw.choices(words, cum_weights=weights, k=_PIECE_BYTES // 6 // 12 * 12)
            piece = "".join(" ".join(drawn[at : at + 12]) + "\n" for at in range(0, len(drawn), 12))
            written += file.write(piece)
