"""Executors on machines: long-lived, with a demand that varies; the model of Elasecutor §III.B and §V.

The policies are the master's own (:mod:`master.placement`). Time goes from one slot boundary of some machines to the
next; between two of them every executor progresses at one rate.
"""

from simulator.executors.model import run
from simulator.executors.spec import Spec

__all__ = ["Spec", "run"]
