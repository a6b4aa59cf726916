"""The name of the program that a command runs, by which its runs are known where nobody names them."""

import re
from collections.abc import Sequence

#: A script is looked for in the first words only, behind options of so many characters: users choose both numbers.
_MOST_WORDS = 32
_LONGEST_OPTION = 256
_PYTHON = re.compile(r"python[\d.]*")


def name_of(argv: Sequence[str]) -> str:
    """Return the file name of the script, or the name of the module, that this command runs.

    Empty: Python runs a command (``-c``), or what is typed or piped into it, or its options are too long or too many.
    A command that is not Python is the program itself.
    """
    command, *arguments = argv[:_MOST_WORDS] or ("",)
    if not _PYTHON.fullmatch(_file_name(command)):
        return _file_name(command)
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            return _file_name(argument).removeprefix("-")
        if len(argument) > _LONGEST_OPTION:
            return ""
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
