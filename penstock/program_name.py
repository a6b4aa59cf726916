"""The name of the program that a command runs, by which its runs are known where nobody names them."""

import re
from collections.abc import Sequence

_PYTHON = re.compile(r"python[\d.]*")


def name_of(argv: Sequence[str]) -> str:
    """Return the file name of the script, or the name of the module, that this command runs.

    Empty: Python runs a command (``-c``), or what is typed or piped into it. A command that is not Python is the
    program itself.
    """
    command, *arguments = argv or ("",)
    if not _PYTHON.fullmatch(_file_name(command)):
        return _file_name(command)
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            return _file_name(argument).removeprefix("-")
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


def _file_name(path: str) -> str:
    """Return the last part of a path; empty: the present directory, or none."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name == "." else name
