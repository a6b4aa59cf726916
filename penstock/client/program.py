"""The name of a Python program, which its jobs have unless they are given another."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.program_name import name_of


def program_name(pid: int = 0) -> str:
    """Return the name of the program that runs as this process (0: this one); empty: it has none, or it has ended."""
    try:
        argv = Path(f"/proc/{pid or os.getpid()}/cmdline").read_bytes()
    except OSError:
        return ""
    return name_of([each.decode("utf-8", "replace") for each in argv.split(b"\0")[:-1]])  # messages are UTF-8
