"""What would a cluster have done? Models that share one form of report (:mod:`simulator.report`).

``tasks`` drives the very objects of :mod:`agent` and :mod:`master`; ``fluid`` and ``executors`` are what papers
simulate. No clock, no I/O, no chance but the seed's.
"""
