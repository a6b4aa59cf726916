"""Writes docs/command.md (between the markers) and the man pages in docs/man from the commands' own parsers, the exit
statuses in penstock/cli/exit_statuses.py and the declarations of both daemons' configuration.

python docs/make_command.py                     # rewrite
python docs/make_command.py --check             # exit status 1 if something is out of date
python docs/make_command.py --man DIRECTORY     # only the man pages, to another place
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import command_examples
import command_manual

from penstock.cli import catalogue, exit_statuses
from penstock.cli.catalogue import Argument, Command

PAGE = Path(__file__).with_name("command.md")
MAN = Path(__file__).with_name("man")
#: Defaults that depend on the user are written for a user with this home directory.
_HOME = "/home/you"


@contextlib.contextmanager
def as_anybody() -> Iterator[None]:
    """Make the defaults independent of the user, the directory and the environment that make the pages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "XDG_", "JAVA_"))}
    with mock.patch.dict(os.environ, kept | {"HOME": _HOME}, clear=True), mock.patch("os.geteuid", lambda: 1000):
        yield


def commands() -> list[Command]:
    """Return all commands. Making the pages needs the dependencies of all of them."""
    from penstock.cli import main

    with as_anybody():
        found = catalogue.commands()
    if missing := set(main.names()) - {command.name for command in found}:
        raise SystemExit(f"not installed here: {', '.join(sorted(missing))}; pip install -e '.[dev]'")
    return found


# ---------------------------------------------------------------- Markdown


def updated(page: str, found: list[Command]) -> str:
    """Return the page with its generated parts renewed."""
    parts = {
        "statuses": statuses_table(exit_statuses.ordered(exit_statuses.CONVENTION)),
        "list": listed(found),
        "commands": described(found),
    }
    for name, text in parts.items():
        begin, end = f"<!-- {name}: written by docs/make_command.py -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, there, after = rest.partition(end)
        if not there:
            raise SystemExit(f"{PAGE}: no markers for {name}")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def listed(found: list[Command]) -> str:
    """Return the list of all commands with their summaries."""
    rows = [f"| [`{one.name}`](#penstock-{one.name}) | {_md(one.about)} |" for one in found]
    return "\n".join(["| command | |", "|---|---|", *rows])


def described(found: list[Command]) -> str:
    """Return the full description of every command."""
    return "\n\n".join(_section(one, 3) for one in found)


def _section(command: Command, level: int) -> str:
    lines = [f"{'#' * level} penstock {command.name}", ""]
    if command.parser is None:
        lines += [f"{_md(command.about[0].upper() + command.about[1:])}.", ""]
        lines += [] if command.parts else _text(command.help)
    else:
        lines += [f"`{catalogue.synopsis(command.name, command.parser)}`", ""]
        lines += [_md(" ".join((command.parser.description or "").split())), ""]
        groups: dict[str, list[Argument]] = {}
        for title, rows in catalogue.arguments(command.parser):
            groups.setdefault(title, []).extend(rows)
        for title, rows in groups.items():
            lines += [f"*{_md(title)}*", ""] if title else []
            lines += ["| | |", "|---|---|", *map(_row, rows), ""]
        lines += _text(command_manual.epilog(command))
    for part in command.parts:
        lines += [_section(part, level + 1), ""]
    own = exit_statuses.OF_COMMAND.get(command.name, {})
    rows = {number: what for number, what in exit_statuses.of(command.name).items() if number in own}
    lines += ["Exit status:", "", statuses_table(rows), ""] if own else []
    lines += [f"- `{typed}`\\\n  {_md(what)}" for typed, what in command_examples.EXAMPLES.get(command.name, [])]
    return "\n".join(lines).rstrip()


def statuses_table(rows: dict[str, str]) -> str:
    """Return the table of exit statuses."""
    return "\n".join(["| exit status | |", "|---|---|", *(f"| {each} | {_md(what)} |" for each, what in rows.items())])


def _row(argument: Argument) -> str:
    flags = [f"`{flag}{f' {argument.value}' if argument.value else ''}`" for flag in argument.flags]
    called = ", ".join(flags) or f"`{argument.value}`"
    return f"| {called.replace('|', chr(92) + '|')} | {_md(_help(argument))} |"


def _help(argument: Argument) -> str:
    return command_manual.at_home(argument.help)


def _text(block: str) -> list[str]:
    return ["```text", block, "```", ""] if block else []


def _md(text: str) -> str:
    return command_manual.at_home(text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


# ---------------------------------------------------------------- all of it


def files() -> dict[Path, str]:
    """Return file → new content for all written files."""
    found = commands()
    pages = {MAN / name: text for name, text in command_manual.pages(found).items()}
    return {PAGE: updated(PAGE.read_text(encoding="utf-8"), found), **pages}


def stale() -> list[Path]:
    """Return files that are out of date, or that belong to no command any more."""
    wanted = files()
    differ = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return differ + [path for path in sorted(MAN.glob("*/*")) if path not in wanted]


def main() -> int:
    """Run the command; return exit status 1 if --check finds a difference."""
    if sys.argv[1:2] == ["--man"]:
        directory = Path(sys.argv[2])
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in command_manual.pages(commands()).items():
            (directory / Path(name).name).write_text(text, encoding="utf-8")
        return 0
    old = stale()
    if "--check" in sys.argv[1:]:
        for path in old:
            sys.stderr.write(f"{path} is out of date; run python docs/make_command.py\n")
        return int(bool(old))
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
