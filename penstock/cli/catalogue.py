"""Every command with its parser: the source of completion, the man pages and docs/command.md.

Commands do not declare their arguments a second time: each is run with ``--help``, and the parser that it builds is
captured.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.cli import main
from penstock.cli.errors import CommandError

#: A line of a group's help: "  issue   create a key and a certificate for a node …".
_PART = re.compile(r"^  ([a-z][a-z-]*) {2,}(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """``name``: "run", "ca issue". ``parser`` is None for a command that parses its arguments itself; then only its
    ``help`` text is known. ``parts`` are the subcommands of a group."""

    name: str
    about: str
    parser: argparse.ArgumentParser | None
    help: str
    parts: tuple[Command, ...] = field(default=())


def commands() -> list[Command]:
    """Return all commands that are installed with their requirements, in the order of ``penstock --help``."""
    found = []
    for name, about in main.names().items():
        with contextlib.suppress(CommandError, ModuleNotFoundError):
            found.append(_command(name, about, main.find(name)))
    return found


def _command(name: str, about: str, run: Callable[[list[str]], int]) -> Command:
    parser, printed = _asked(run, ["--help"])
    if parser is not None or "COMMAND" not in printed.partition("\n")[0]:
        return Command(name, about, parser, printed)
    parts = []
    for part, what in _PART.findall(printed):
        found, said = _asked(run, [part, "--help"])
        parts.append(Command(f"{name} {part}", what, found, said))
    return Command(name, about, None, printed, tuple(parts))


def _asked(run: Callable[[list[str]], int], argv: list[str]) -> tuple[argparse.ArgumentParser | None, str]:
    """Return the parser that a command builds for these arguments, and the printed help."""
    printed = io.StringIO()
    with _catching() as caught, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        run(argv)
    if caught:
        return caught[0], caught[0].format_help()
    return None, printed.getvalue().rstrip()


@contextlib.contextmanager
def _catching() -> Iterator[list[argparse.ArgumentParser]]:
    """Collect the parsers whose help is printed meanwhile, instead of printing it."""
    caught: list[argparse.ArgumentParser] = []
    genuine = argparse.ArgumentParser.print_help

    def catch(self: argparse.ArgumentParser, file: object = None) -> None:
        caught.append(self)

    argparse.ArgumentParser.print_help = catch  # type: ignore[method-assign] # restored below
    try:
        yield caught
    finally:
        argparse.ArgumentParser.print_help = genuine  # type: ignore[method-assign]


# ---------------------------------------------------------------- a parser's arguments


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or operand as shown to users. ``flags`` is empty for an operand; ``value`` is empty for a switch."""

    flags: tuple[str, ...]
    value: str
    help: str
    required: bool


def arguments(parser: argparse.ArgumentParser) -> list[tuple[str, list[Argument]]]:
    """Return operands, then options, by group; ``--help`` is omitted, as every command has it."""
    found = []
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no public access to them
        title = "" if group.title in {"positional arguments", "options"} else str(group.title)
        if title and group.description:
            title += f" ({group.description})"
        rows = [
            _argument(parser, action)
            for action in group._group_actions  # noqa: SLF001
            if action.help != argparse.SUPPRESS and action.dest != "help"
        ]
        if rows:
            found.append((title, rows))
    return found


def synopsis(name: str, parser: argparse.ArgumentParser) -> str:
    """``penstock NAME [OPTION…] OPERAND…``."""
    rows = [row for _, group in arguments(parser) for row in group]
    words = [f"penstock {name}"]
    words += [f"{row.flags[0]} {row.value}".rstrip() for row in rows if row.flags and row.required]
    words += ["[OPTION…]"] if any(row.flags and not row.required for row in rows) else []
    words += [row.value for row in rows if not row.flags]
    return " ".join(words)


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    default = "none" if action.default in (None, "", []) else str(action.default)
    shown = {**vars(action), "prog": parser.prog, "default": default}
    return Argument(
        flags=tuple(action.option_strings),
        value=_value(action),
        help=" ".join(((action.help or "") % shown).split()),
        required=action.required if action.option_strings else action.nargs not in {"*", "?", argparse.REMAINDER},
    )


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    one = metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if action.option_strings or (metavar and metavar.startswith("-- ")):
        return one
    return {"?": f"[{one}]", "*": f"[{one}…]", "+": f"{one}…", argparse.REMAINDER: f"[{one}…]"}.get(
        str(action.nargs), one
    )
