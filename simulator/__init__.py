"""Discrete-event cluster that drives the very objects of :mod:`agent` and :mod:`master`."""
