"""Four Spark applications in the virtual machine, their executors elastic and not (Elasecutor §V.B, §V.C): README.md.

``python -m bench.spark_vm`` measures for hours; as one of all benchmarks it only shows the recorded measurements.
"""

from __future__ import annotations


def main() -> int:
    """Print the tables of the recorded measurements; return the exit status."""
    from bench.spark_vm.command import main as command

    return command(["--report"])
