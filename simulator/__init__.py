"""Simulate a cluster. All models return the same form of report (:mod:`simulator.report`).

``tasks`` drives the very objects of :mod:`agent` and :mod:`master`; ``fluid`` and ``executors`` are models from papers.
They use no clock and no I/O, and no randomness but the seed's.
"""
