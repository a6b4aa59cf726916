"""Penstock: the vocabulary that every part shares, and all that a framework imports.

Rooms: :mod:`penstock.model` (the vocabulary), :mod:`penstock.wire` (how they travel), :mod:`penstock.client`
(how a framework speaks to its host's agent), :mod:`penstock.opgraph` (jobs as graphs of monotasks),
:mod:`penstock.cli` (the command).
"""

__version__ = "0.1.0"
