"""``penstock completion``: shell completion scripts, generated from the commands' own parsers."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error

if TYPE_CHECKING:
    from penstock.cli.catalogue import Command
    from penstock.client.blocking_requests import BlockingRequests

_SHELLS = ("bash", "zsh", "fish")
_INSTALL = """to install it for yourself, from the next shell on:
  bash  penstock completion bash >~/.local/share/bash-completion/completions/penstock
  zsh   penstock completion zsh >~/.zfunc/_penstock        (a directory of $fpath, before compinit)
  fish  penstock completion fish >~/.config/fish/completions/penstock.fish
Names of containers, jobs, nodes and reservations are requested from the agent at completion."""
#: Placeholder in the help of an option or operand → the kind of names that complete it.
_NAMES = {
    "CONTAINER": "containers",
    "JOB": "jobs",
    "NODE": "nodes",
    "ID": "reservations",
}


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser("completion", "Print a shell's completion script for `penstock`.", _INSTALL)
    parser.add_argument("shell", choices=_SHELLS, nargs="?", metavar="bash|zsh|fish", help="the shell")
    parser.add_argument(
        "--names", choices=list(_KNOWN), metavar="KIND", help=f"print names instead, one per line: {', '.join(_KNOWN)}"
    )
    options = parser.parse_args(argv)
    if options.names is not None:
        # A message would disturb the command line: without an agent nothing is offered.
        with contextlib.suppress(CommandError):
            for name in _names(options.names):
                print(name)
        return 0
    if options.shell is None:
        raise usage_error(f"name a shell: one of {', '.join(_SHELLS)}")
    print(script(options.shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the completion script for bash, zsh or fish, with all installed commands."""
    import shtab

    from penstock.cli import catalogue

    root = argparse.ArgumentParser(prog="penstock", add_help=False)
    root.add_argument("--help", action="store_true", help="list the commands")
    root.add_argument("--version", action="store_true", help="print the version")
    _graft(root, catalogue.commands())
    return str(shtab.complete(root, shell=shell))


def _graft(onto: argparse.ArgumentParser, commands: Iterable[Command]) -> None:
    """Add commands as subparsers, as if one parser declared them all."""
    ready: list[argparse.ArgumentParser] = []

    def made(**_: object) -> argparse.ArgumentParser:
        return ready.pop()

    below = onto.add_subparsers(parser_class=made)  # type: ignore[call-overload] # it is only called
    for command in commands:
        name = command.name.rpartition(" ")[2]
        parser = command.parser or argparse.ArgumentParser(prog=f"penstock {command.name}")
        if command.parts:
            _graft(parser, command.parts)
        for action in parser._actions:  # noqa: SLF001 - argparse has no public access to them
            _teach(action)
        ready.append(parser)
        below.add_parser(name, help=command.about)


def _teach(action: argparse.Action) -> None:
    """Set the completion of an argument's value, chosen by its placeholder."""
    import shtab

    called = action.metavar if isinstance(action.metavar, str) else ""
    complete: Any = None
    if called in _NAMES:
        complete = shtab.cmd(f"penstock completion --names {_NAMES[called]}")
    elif called == "DIR":
        complete = shtab.DIRECTORY
    elif called.startswith("FILE") or called.endswith((".toml", ".json")) or called in {"P", "SCENARIO", "-- CMD…"}:
        complete = shtab.FILE
    if complete is not None and action.choices is None:
        action.complete = complete  # type: ignore[attr-defined] # read by shtab


# ---------------------------------------------------------------- names


def _names(what: str) -> list[str]:
    from penstock.cli.session import asked

    return sorted(name for name in asked("completion", _KNOWN[what]) if name.isprintable() and " " not in name)


async def _containers(agent: BlockingRequests) -> list[str]:
    rows = (await agent.status()).get("containers", [])
    return [str(row["container"]) for row in rows if not row.get("ended")]


async def _jobs(agent: BlockingRequests) -> list[str]:
    if agent.welcome.master:
        return list((await agent.cluster_status()).get("jobs", {}))
    return [str(row["job"]) for row in (await agent.status()).get("jobs", [])]


async def _nodes(agent: BlockingRequests) -> list[str]:
    if agent.welcome.master:
        return list((await agent.cluster_status()).get("nodes", {}))
    return [str(agent.welcome.node)]


async def _reservations(agent: BlockingRequests) -> list[str]:
    return [one.reservation for one in await agent.reservations()]


_KNOWN: dict[str, Callable[[BlockingRequests], Coroutine[Any, Any, list[str]]]] = {
    "containers": _containers,
    "jobs": _jobs,
    "nodes": _nodes,
    "reservations": _reservations,
}
