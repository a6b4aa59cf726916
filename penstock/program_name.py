"""The name of the program that a command runs, by which its runs are known where nobody names them."""

import re
from collections.abc import Iterator, Sequence

#: A script is looked for in the first words only, behind options of so many characters: users choose both numbers.
_MOST_WORDS = 32
_LONGEST_OPTION = 256
_PYTHON = re.compile(r"python[\d.]*")


_SHELL = re.compile(r"(ba|da|z|fi|k|a)?sh")
#: Options of shells before a script; one that ends with ``o`` or ``O`` takes the next word.
_OF_SCRIPT = re.compile(r"--?|[-+][abefhiklmnprtuvxE]*[oO]?")
#: Programs that run another one, which their name does not tell.
_WRAPPERS = frozenset([
    "chrt", "doas", "env", "flock", "ionice", "java", "julia", "mpirun", "nice", "node", "nohup", "numactl",
    "parallel", "perf", "perl", "php", "prlimit", "Rscript", "ruby", "setsid", "stdbuf", "strace", "sudo",
    "systemd-run", "taskset", "time", "timeout", "unshare", "watch", "xargs",
])  # fmt: skip


def name_of(argv: Sequence[str]) -> str:
    """Return the file name of the script, or the name of the module, that this command runs.

    Empty: Python or a shell runs a command (``-c``), or what is typed or piped into it, or its options are unknown, too
    long or too many; or the program is a wrapper. Any other command is the program itself.
    """
    command, *arguments = argv[:_MOST_WORDS] or ("",)
    program, rest = _file_name(command), iter(arguments)
    if _PYTHON.fullmatch(program):
        return _of_python(rest)
    if _SHELL.fullmatch(program):
        return _of_shell(rest)
    return "" if program in _WRAPPERS else program


def _of_python(rest: Iterator[str]) -> str:
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


def _of_shell(rest: Iterator[str]) -> str:
    for argument in rest:
        if not argument.startswith(("-", "+")):
            return _file_name(argument)
        if len(argument) > _LONGEST_OPTION or not _OF_SCRIPT.fullmatch(argument):
            return ""
        if argument.endswith(("o", "O")):
            next(rest, "")
    return ""


def _file_name(path: str) -> str:
    """Return the last part of a path; empty: the present directory, or none."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name == "." else name
