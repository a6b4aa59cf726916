"""``python -m research [OPTION…] [NAME…]``: try the papers' claims."""

from __future__ import annotations

import sys

from research.papers.command import main

if __name__ == "__main__":
    sys.exit(main())
