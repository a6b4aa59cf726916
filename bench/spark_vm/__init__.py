"""Four Spark applications in the virtual machine, their executors elastic and not (Elasecutor §V.B, §V.C): README.md.

``python -m bench.spark_vm`` measures for hours; as one of all benchmarks it only shows what was measured.
"""

from __future__ import annotations


def main() -> int:
    """The tables of what was measured; the exit status."""
    from bench.spark_vm.command import main as command

    return command(["--report"])
