"""Discrete-event cluster that drives the very objects of :mod:`agent` and :mod:`master`; no clock, I/O or randomness.

The same workload gives the same result, whatever else the machine does.
"""

from simulator.cluster import NodeSpec, SimulatedCluster
from simulator.results import Results
from simulator.workload import SimulatedJob, SimulatedMonotask, SimulatedStage, SimulatedTask

__all__ = [
    "NodeSpec",
    "Results",
    "SimulatedCluster",
    "SimulatedJob",
    "SimulatedMonotask",
    "SimulatedStage",
    "SimulatedTask",
]
