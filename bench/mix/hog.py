"""A program of users with a mistake: ``hog.py RESULT`` takes one and a half times the memory that the machine has.

It is run as a file and imports nothing of the project.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_PIECE_BYTES = 16 << 20
_PAUSE_S = 0.02


def main(result: str, most_bytes: int) -> None:
    """Take it piece by piece, each page written to; leave a result if that was possible."""
    pieces: list[bytearray] = []
    while len(pieces) * _PIECE_BYTES < most_bytes:
        piece = bytearray(_PIECE_BYTES)
        piece[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * (_PIECE_BYTES // os.sysconf("SC_PAGE_SIZE"))
        pieces.append(piece)
        time.sleep(_PAUSE_S)
    Path(result).write_text(f"{len(pieces)} pieces\n", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], 3 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
