"""Simulate long-lived executors with varying demand on machines: the model of Elasecutor §III.B and §V.

The policies are the master's own (:mod:`master.placement`). Time advances from one slot boundary of some machines to
the next; between two boundaries every executor progresses at a constant rate.
"""

from simulator.executors.model import run
from simulator.executors.spec import Spec

__all__ = ["Spec", "run"]
