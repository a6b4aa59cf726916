"""``python -m bench.tpch check`` and ``python -m bench.tpch compare``."""

from __future__ import annotations

import signal
import sys

from bench.tpch.command import main

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception: jobs and Penstock end on the way
sys.exit(main(sys.argv[1:]))
