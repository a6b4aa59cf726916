"""docs/command.md and the man pages agree with the commands, and man can read them."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.cli import catalogue

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGES = sorted((DOCS / "man").glob("man[15]/*.[15]"))
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"]


@pytest.fixture(scope="module")
def make_command() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("make_command")
    sys.path.remove(str(DOCS))


def test_they_are_as_they_would_be_written_now(make_command: ModuleType) -> None:
    assert make_command.stale() == [], "run python docs/make_command.py"


def test_they_do_not_depend_on_the_environment_of_their_maker(
    make_command: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_command.files()
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("PENSTOCK_MASTER_HTTP", "https://elsewhere:1")
    monkeypatch.setenv("COLUMNS", "40")
    assert make_command.files() == first
    assert not [path for path, text in first.items() if "/home/" in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_its_sections_in_their_order(page: Path) -> None:
    found = re.findall(r"^\.SH (.*)$", page.read_text(encoding="ascii"), re.MULTILINE)
    # The overview has the commands where others have options; a command's own help may have no example.
    wanted = [name for name in SECTIONS if name in found]
    assert [name for name in found if name in SECTIONS] == wanted
    assert set(SECTIONS) - set(found) <= {"OPTIONS", "EXAMPLES"}
    assert page.name == "penstock.1" or "OPTIONS" in found


def test_every_command_has_a_page() -> None:
    names = {f"penstock-{command.name}.1" for command in catalogue.commands()}
    assert {page.name for page in PAGES} == names | {"penstock.1", "agent.toml.5", "master.toml.5"}


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="there is no groff here; the sections are looked at all the same"
)
def test_groff_has_nothing_to_complain_of() -> None:
    """All at once, which takes a tenth of the time."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", *map(str, PAGES)], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stderr == ""
    plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    for text in (
        "penstock run [OPTION…] -- CMD…",
        "--memory-policy kill|throttle",
        "opportunistic_queue* = 0",
        "SIGHUP",
    ):
        assert text in plain
    assert "\\f" not in plain


class _Said(Exception):  # noqa: N818 - the parser's message, no fault of ours
    """The complaint of a parser."""


def examples(make_command: ModuleType) -> list[tuple[str, str]]:
    return [(name, typed) for name, rows in make_command.command_examples.EXAMPLES.items() for typed, _ in rows]


def test_every_example_is_understood_by_its_command(make_command: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(parser: argparse.ArgumentParser, message: str) -> Any:
        raise _Said(message)

    commands = {one.name: one for command in catalogue.commands() for one in (command, *command.parts)}
    monkeypatch.setattr(argparse.ArgumentParser, "error", complain)
    for name, typed in examples(make_command):
        words = shlex.split(typed)
        assert words[:2] == ["penstock", name]
        two = " ".join(words[1:3])
        command, rest = (commands[two], words[3:]) if two in commands else (commands[name], words[2:])
        assert command.parser is not None
        options = command.parser.parse_args(rest[: rest.index("--")] if "--" in rest else rest)
        assert options is not None


def test_an_example_that_is_none_is_found(make_command: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(make_command.command_examples.EXAMPLES, "kill", [("penstock kill --gently c-1", "")])
    with pytest.raises(Exception, match="gently"):
        test_every_example_is_understood_by_its_command(make_command, monkeypatch)


def test_every_command_has_an_example(make_command: ModuleType) -> None:
    assert set(make_command.command_examples.EXAMPLES) == {one.name for one in catalogue.commands()}
