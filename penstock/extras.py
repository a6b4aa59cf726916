"""Libraries that only some features need: whether one is installed, and the command that installs it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

#: Daemon → a library that it cannot run without and that no other extra of Penstock's brings.
OF_A_DAEMON = {"agent": "pyroute2", "master": "sqlalchemy"}


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be found; it is not imported."""
    return find_spec(module) is not None


def install(extra: str) -> str:
    """Return the command that adds the libraries of an extra to the environment of this process.

    Penstock is installed there, so that pip asks no index for it.
    """
    return f"{shlex.quote(sys.executable)} -m pip install 'penstock[{extra}]'"
