"""The commands' parsers, caught: completion, man pages and docs/command.md are made of these alone."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from penstock.cli import ca, catalogue, main
from penstock.cli.catalogue import Argument, Command
from penstock.cli.errors import CommandError


@pytest.fixture(scope="module")
def found() -> dict[str, Command]:
    return {command.name: command for command in catalogue.commands()}


def test_every_command_is_there_with_its_parser(found: dict[str, Command]) -> None:
    assert list(found) == list(main.names())
    without = {name for name, command in found.items() if command.parser is None and not command.parts}
    assert without == set()


def test_a_command_of_commands_has_all_of_them(found: dict[str, Command]) -> None:
    assert {part.name for part in found["ca"].parts} == {f"ca {name}" for name in ca._COMMANDS}
    assert all(part.parser is not None and part.about for part in found["ca"].parts)


def test_every_argument_is_described(found: dict[str, Command]) -> None:
    commands = [one for command in found.values() for one in (command.parts or (command,))]
    rows = [
        (one.name, row) for one in commands if one.parser for _, rows in catalogue.arguments(one.parser) for row in rows
    ]
    assert [(name, row) for name, row in rows if not row.help] == []


def test_no_help_has_marks_of_a_docstring(found: dict[str, Command]) -> None:
    commands = [one for command in found.values() for one in (command, *command.parts)]
    assert [one.name for one in commands if "``" in one.help] == []


def test_asking_leaves_argparse_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue.commands()
    argparse.ArgumentParser(prog="other").print_help()
    assert "usage: other" in capsys.readouterr().out


def test_synopses(found: dict[str, Command]) -> None:
    def of(name: str) -> str:
        parser = found[name].parser
        assert parser is not None
        return catalogue.synopsis(name, parser)

    assert of("run") == "penstock run [OPTION…] -- CMD…"
    assert of("kill") == "penstock kill [OPTION…] CONTAINER…"
    assert of("follow") == "penstock follow [OPTION…] CONTAINER FILE.json"
    assert of("profile") == "penstock profile [OPTION…] list|show|plot|compare [APP]"


def test_the_arguments_of_a_parser() -> None:
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("file", metavar="FILE", help="what to read")
    parser.add_argument("more", nargs="*", metavar="MORE")
    parser.add_argument("-f", "--follow", action="store_true", help="go on")
    parser.add_argument("--kind", choices=["a", "b"])
    parser.add_argument("--days", type=int, default=7, required=True, help="how long; %(default)s")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    group = parser.add_argument_group("limits", "'none' removes one")
    group.add_argument("--cpu", metavar="CORES", action="append", default=[], help="100 %% of one, or more")
    assert catalogue.arguments(parser) == [
        ("", [Argument((), "FILE", "what to read", True), Argument((), "[MORE…]", "", False)]),
        (
            "",
            [
                Argument(("-f", "--follow"), "", "go on", False),
                Argument(("--kind",), "a|b", "", False),
                Argument(("--days",), "DAYS", "how long; 7", True),
            ],
        ),
        ("limits ('none' removes one)", [Argument(("--cpu",), "CORES", "100 % of one, or more", False)]),
    ]
    assert catalogue.synopsis("x", parser) == "penstock x --days DAYS [OPTION…] FILE [MORE…]"


def test_a_command_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    find = main.find

    def some(name: str) -> Any:
        if name == "simulate":
            raise CommandError("not installed")
        return find(name)

    monkeypatch.setattr(main, "find", some)
    assert {command.name for command in catalogue.commands()} == set(main.names()) - {"simulate"}
