"""Every command with its parser: what completion, the man pages and docs/command.md are made from.

No command says twice what it takes. Each is asked for its help, for which it builds its parser, and that is caught.
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

#: In the help of a command that consists of others: "  issue   a key and a certificate for a node …".
_PART = re.compile(r"^  ([a-z][a-z-]*) {2,}(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """``name``: "run", "ca issue". ``parser`` is None where it takes its arguments apart itself; then ``help``, what it
    prints, is all that is known. ``parts``: the commands that it consists of."""

    name: str
    about: str
    parser: argparse.ArgumentParser | None
    help: str
    parts: tuple[Command, ...] = field(default=())


def commands() -> list[Command]:
    """All that are installed with what they need, in the order of ``penstock --help``."""
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
    """The parser that a command builds for this, and what it prints."""
    printed = io.StringIO()
    with _catching() as caught, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        run(argv)
    if caught:
        return caught[0], caught[0].format_help()
    return None, printed.getvalue().rstrip()


@contextlib.contextmanager
def _catching() -> Iterator[list[argparse.ArgumentParser]]:
    """Whoever prints its help meanwhile is in the list instead."""
    caught: list[argparse.ArgumentParser] = []
    genuine = argparse.ArgumentParser.print_help

    def catch(self: argparse.ArgumentParser, file: object = None) -> None:
        caught.append(self)

    argparse.ArgumentParser.print_help = catch  # type: ignore[method-assign] # for the length of one call
    try:
        yield caught
    finally:
        argparse.ArgumentParser.print_help = genuine  # type: ignore[method-assign]


# ---------------------------------------------------------------- what a parser takes


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or operand as people write it. ``flags`` is empty for an operand; ``value`` is empty for a switch."""

    flags: tuple[str, ...]
    value: str
    help: str
    repeatable: bool
    required: bool


def arguments(parser: argparse.ArgumentParser) -> list[tuple[str, list[Argument]]]:
    """Operands, then options, by group; ``--help`` is the same everywhere and left out."""
    found = []
    for group in parser._action_groups:  # noqa: SLF001 - argparse tells nobody what it was told
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
    shown = {**vars(action), "prog": parser.prog, "default": _shown(action.default)}
    return Argument(
        flags=tuple(action.option_strings),
        value=_value(action),
        help=" ".join(((action.help or "") % shown).split()),
        repeatable=isinstance(action.default, list) or "repeatable" in (action.help or ""),
        required=action.required if action.option_strings else action.nargs not in {"*", "?", argparse.REMAINDER},
    )


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    one = metavar or (_choices(action) if action.choices else action.dest.upper())
    if action.option_strings or (metavar and metavar.startswith("-- ")):
        return one
    return {"?": f"[{one}]", "*": f"[{one}…]", "+": f"{one}…", argparse.REMAINDER: f"[{one}…]"}.get(
        str(action.nargs), one
    )


def _choices(action: argparse.Action) -> str:
    return "|".join(str(each) for each in action.choices or ())


def _shown(default: object) -> str:
    return "none" if default in (None, "", []) else str(default)
