"""Where rounds run: the machine's directories, or those of a host."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bench.mix.layer import INPUT


class Place(NamedTuple):
    """``inputs`` has the input of the jobs, ``work`` their output; users can enter both."""

    inputs: Path
    work: Path


MACHINE = Place(INPUT, Path("/srv/mix"))
