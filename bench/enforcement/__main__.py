"""``python -m bench.enforcement [PART…]``."""

from __future__ import annotations

import sys

from bench.enforcement.command import main

sys.exit(main(sys.argv[1:]))
