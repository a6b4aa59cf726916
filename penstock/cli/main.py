"""``penstock COMMAND …``: finds the command, runs it, and turns every expected failure into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from penstock import __version__
from penstock.cli.errors import CommandError

#: The commands of the light client: name → what it does. Each is a module of this package with main(argv) -> int.
OWN = {
    "up": "start master and agent on this host, without any configuration",
    "run": "run one command in a container with limits",
    "adopt": "take a running process into a container with limits",
    "resize": "change a container's limits while it runs",
    "follow": "let a container's limits follow a profile",
    "kill": "end containers with everything in them",
    "logs": "what a container has written",
    "submit": "run a job: a graph of commands from a TOML file, or executors of an application",
    "profile": "what executors used, and what their next run is expected to use",
    "reserve": "have the cluster promise resources ahead of time",
    "reservations": "what is promised to you, and giving it back",
    "ca": "the operator's own certificate authority, for TLS between agents and master",
    "config": "what a daemon's configuration says, and what is wrong with it",
    "status": "what this host is doing now",
    "top": "the same, live",
}
#: What the daemons' commands do, where they are installed (entry points of the group penstock.commands).
_INSTALLED = {
    "check": "what this host can enforce, and the remedy for what it cannot",
    "agent": "the node daemon",
    "master": "the placement daemon",
    "uninstall": "remove what agents have set up on this host",
    "dask-worker": "run a gated Dask worker in a container",
    "spark-config": "have Spark's executors run in containers: prepare this host, print the configuration",
    "place": "one scheduling round over a recorded state, explained",
    "plan": "plan reservation requests off line: accepted, rejected, why",
    "simulate": "what a cluster would do: run a scenario of the simulator",
    "paper": "try what the papers claim, their figures beside ours",
}
_EXTRAS = {"check": "agent", "agent": "agent", "master": "master", "uninstall": "agent", "dask-worker": "dask"}
_EXTRAS |= {"ca": "ca", "place": "master", "plan": "master", "simulate": "simulate", "paper": "simulate"}


def main(argv: list[str] | None = None) -> int:
    """The whole command; returns its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0] if arguments else "--help"
    try:
        if name in {"-h", "--help", "help"}:
            print(_help(), flush=True)
            return 0
        if name == "--version":
            print(f"penstock {__version__}", flush=True)
            return 0
        status = _command(name)(arguments[1:])
        sys.stdout.flush()
    except CommandError as error:
        prefix = f"penstock {name}" if error.of_command else "penstock"
        print(f"{prefix}: {error}", file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        print(f"penstock {name}: {_not_installed(name, str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _command(name: str) -> Callable[[list[str]], int]:
    if name in OWN:
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
    raise CommandError(_unknown(name), status=2, of_command=False)


def _not_installed(name: str, why: str) -> str:
    extra = _EXTRAS.get(name)
    return f"{why}; install it with `pip install 'penstock[{extra}]'`" if extra else why


def _unknown(name: str) -> str:
    import difflib

    known = [*OWN, *_installed()]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
    what = "option" if name.startswith("-") else "command"
    return f"unknown {what} {name!r}; {hint}"


def _installed() -> list[str]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group="penstock.commands").names)


def _help() -> str:
    commands = OWN | {name: _INSTALLED.get(name, "") for name in _installed()}
    lines = [f"  {name:<14}{what}" for name, what in commands.items()]
    return "\n".join(
        [
            "usage: penstock COMMAND [ARGUMENT…]",
            "",
            "Opens and closes the gates of CPU, memory, disk and network of this host.",
            "",
            *lines,
            "",
            "  --version prints the version; penstock COMMAND --help says more about a command.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
