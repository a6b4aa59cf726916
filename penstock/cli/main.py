"""``penstock COMMAND …``: find the command, run it, and print every expected failure as one line."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from importlib import import_module

from penstock import __version__
from penstock.cli.errors import CommandError, note
from penstock.cli.exit_statuses import Status, output_lost

TYPE_CHECKING = False  # as typing's, which is imported after command() has put off the collections of garbage
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

#: The commands of the light client: name → summary. Each is a module of this package with main(argv) -> int.
OWN = {
    "up": "start master and agent on this host, without any configuration",
    "run": "run one command in a container with limits",
    "adopt": "move a running process into a container with limits",
    "resize": "change a container's limits while it runs",
    "follow": "make a container's limits follow a profile",
    "kill": "kill containers with all their processes",
    "logs": "print the output of a container or of a job's tasks",
    "submit": "run a job: a graph of commands from a TOML file, or executors of an application",
    "jobs": "list your jobs, including recently ended ones",
    "cancel": "stop jobs with all their running tasks",
    "explain": "explain why a job waits, and where its tasks were placed",
    "profile": "show the use of executors, and the predicted use of their next run",
    "reserve": "reserve resources of the cluster ahead of time",
    "reservations": "list and delete your reservations",
    "drain": "stop placing work on nodes, and wait until nothing runs there",
    "undrain": "allow work on drained nodes again",
    "ca": "run your own certificate authority, for TLS between agents and master",
    "config": "show, check and change the configuration of a daemon",
    "status": "show the present state of this host or of the cluster",
    "top": "show the same, live",
    "completion": "print a shell's completion script",
}
#: The daemons' commands, entry points of the group penstock.commands. Every installation has them; one whose libraries
#: are missing says what to install.
_INSTALLED = {
    "check": "show the host's enforceable limits, and the remedy for each other one",
    "agent": "the node daemon",
    "master": "the placement daemon",
    "uninstall": "remove everything that agents have set up on this host",
    "dask-worker": "run a gated Dask worker in a container",
    "spark-config": "prepare this host to run Spark's executors in containers, print the configuration",
    "place": "run one scheduling round on a recorded state, explained",
    "plan": "plan reservation requests offline, with the reasons for rejections",
    "simulate": "run a scenario in the simulator of a cluster",
}
#: Groups of commands, in the order of the help.
GROUPS = {
    "containers on this host": ("run", "adopt", "resize", "follow", "kill", "logs"),
    "the cluster": ("submit", "jobs", "cancel", "explain", "profile", "reserve", "reservations"),
    "looking": ("status", "top"),
    "operating": ("up", "agent", "master", "check", "config", "ca", "drain", "undrain", "uninstall", "completion"),
    "frameworks": ("dask-worker", "spark-config"),
    "trying": ("simulate", "plan", "place"),
}
#: Former commands and their successors.
_MOVED = {"paper": "the papers' claims are tried by `python -m research`, in a checkout of Penstock's repository"}
#: What other programs call their commands, and the commands here.
_MOVED |= dict.fromkeys(("version", "-V", "-v"), "write `penstock --version`")
_MOVED |= dict.fromkeys(("ps", "ls", "list"), "`penstock status` lists containers, `penstock jobs` jobs")
_MOVED |= dict.fromkeys(("stop", "rm", "delete"), "`penstock kill` ends containers, `penstock cancel` jobs")
_EXTRAS = {"check": "agent", "agent": "agent", "master": "master", "uninstall": "agent", "dask-worker": "dask"}
_EXTRAS |= {"ca": "ca", "place": "master", "plan": "master", "simulate": "simulate"}
#: The libraries of every command of the light client, and those of single ones.
_LIBRARIES = ("msgspec", "argparse", "pathlib")
_LIBRARIES_OF = {"submit": ("tomllib",)}
#: New objects between two collections of garbage, while a command of the light client imports its modules: none of
#: that is garbage. With Python's 700 collections are 4 % of the instructions of `penstock submit`.
_OBJECTS_BEFORE_COLLECTION = 20_000


def command() -> NoReturn:
    """Run the command line, and end the process.

    A command of the light client ends at once: everything it opened is closed, and the memory is the kernel's again
    without taking it apart. Python's own end (Py_FinalizeEx: it collects garbage and empties each module)
    is a fifth of the CPU time of `penstock submit`. Exit functions run, and printed text is flushed, as ever.
    """
    _open_closed_streams()
    if sys.stdout.encoding != "utf-8":  # of a locale without some of the characters in tables and names
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a TextIOWrapper, or its like
    status = main()
    if sys.argv[1:2] and sys.argv[1] in OWN and not _threads():
        atexit._run_exitfuncs()  # noqa: SLF001 # as multiprocessing ends its processes (Lib/multiprocessing/process.py)
        try:
            _flush()
        except OSError:  # of a command that had failed; else main() has said so
            output_lost()
        os._exit(status)
    sys.exit(status)


def _open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed: the next socket would get its number, and
    `penstock run` would pass that to the container.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open(2): the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _threads() -> bool:
    """Return whether other threads run: the interpreter waits for them at its end."""
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    name = arguments[0] if arguments else "--help"
    try:
        if name in {"-h", "--help"}:
            print(_help(), flush=True)
            return Status.DONE
        if name == "--version":
            print(f"penstock {__version__}", flush=True)
            return Status.DONE
        if argv is None and name in OWN:  # the process is this command's
            gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
        status = find(name)(arguments[1:])
        _flush()
    except CommandError as error:
        note(name if error.of_command else "", str(error))
        return error.status
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        note(name, _not_installed(name, str(error)))
        return Status.FAILED
    except BrokenPipeError:
        return output_lost()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        note(name, f"what it prints cannot be written: {error.strerror}")
        return output_lost()
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return status


def find(name: str) -> Callable[[list[str]], int]:
    """Return a command's main(argv) → exit status.

    Raises:
        CommandError: the command is not installed or does not exist.
    """
    if name in OWN:
        if "msgspec" not in sys.modules:  # else this process has imported for others, too
            from penstock.cli import lean_imports

            lean_imports.load(*_LIBRARIES, *_LIBRARIES_OF.get(name, ()))
        found: Callable[[list[str]], int] = import_module(f"penstock.cli.{name}").main
        return found
    from importlib.metadata import entry_points

    for entry in entry_points(group="penstock.commands", name=name):
        try:
            loaded: Callable[[list[str]], int] = entry.load()
        except ImportError as error:
            raise CommandError(_not_installed(name, str(error))) from None
        return loaded
    if name in _EXTRAS:
        raise CommandError(_not_installed(name, "not installed"))
    raise CommandError(_unknown(name), status=Status.USAGE, of_command=False)


def _not_installed(name: str, why: str) -> str:
    from penstock import extras

    extra = _EXTRAS.get(name)
    return f"{why}; install it with `{extras.install(extra)}`" if extra else why


def _unknown(name: str) -> str:
    from penstock.model.near_names import did_you_mean

    known = names()
    hint = _MOVED.get(name) or did_you_mean(name, known, f"one of {', '.join(known)}")
    kind = "option" if name.startswith("-") else "command"
    return f"unknown {kind} {name!r}; {hint}"


def names() -> dict[str, str]:
    """Return every installed command with its summary, also those of other distributions."""
    from importlib.metadata import entry_points

    return OWN | {name: _INSTALLED.get(name, "") for name in sorted(entry_points(group="penstock.commands").names)}


def _help() -> str:
    known = OWN | _INSTALLED  # not names(): importlib.metadata takes two thirds of this command's processor time
    lines = []
    for title, group in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<14}{known[name]}" for name in group), ""]
    return "\n".join(
        [
            "usage: penstock COMMAND [ARGUMENT…]",
            "",
            "Opens and closes the gates of CPU, memory, disk and network of this host.",
            "",
            *lines,
            "--version prints the version; penstock COMMAND --help says more about a command.",
        ]
    )


if __name__ == "__main__":
    command()
