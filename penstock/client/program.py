"""The name of a Python program, which its jobs have unless they are given another."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_PYTHON = re.compile(r"python[\d.]*")


def program_name(pid: int = 0) -> str:
    """Return the name of the program that runs as this process (0: this one); empty: it has none, or it has ended."""
    try:
        argv = Path(f"/proc/{pid or os.getpid()}/cmdline").read_bytes()
    except OSError:
        return ""
    return name_of([each.decode("utf-8", "replace") for each in argv.split(b"\0")[:-1]])  # messages are UTF-8


def name_of(argv: Sequence[str]) -> str:
    """Return the file name of the script, or the name of the module, that this command runs.

    Empty: Python runs a command (``-c``), or reads its program from a terminal or a pipe. A command that is not Python
    is the program itself.
    """
    command, *arguments = argv or ("",)
    if not _PYTHON.fullmatch(Path(command).name):
        return Path(command).name
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            return Path(argument).name.removeprefix("-")
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, "")
            continue
        for place, option in enumerate(argument[1:], start=2):
            if option in "cmWX":  # these take the rest of the argument, or the next one
                value = argument[place:] or next(rest, "")
                if option in "cm":
                    return value if option == "m" else ""
                break
    return ""
