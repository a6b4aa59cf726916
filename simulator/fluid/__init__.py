"""Jobs with a size on one server that all of them share continuously: the model of LAS_MQ §5.4.

Exact: time jumps from event to event and no step is chosen. What is missing from it on purpose: hosts, tasks, stages.
"""

from simulator.fluid.engine import Job, serve
from simulator.fluid.model import run
from simulator.fluid.spec import Spec

__all__ = ["Job", "Spec", "run", "serve"]
