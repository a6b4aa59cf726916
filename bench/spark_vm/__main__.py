"""``python -m bench.spark_vm``."""

from __future__ import annotations

import sys

from bench.spark_vm.command import main

sys.exit(main(sys.argv[1:]))
