"""Reads a command as its own program would, without running it: an unknown command, option or value is an error."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from bench.enforcement.command import PARTS
from research.papers.command import main as research
from tests.docs_pages import ROOT

#: Programs of others, with plain arguments in the pages: the tests check their names and not that they exist as
#: programs.
# fmt: off
_PLAIN = frozenset((
    ".", "apt-get", "awk", "cat", "cc", "cd", "chmod", "cp", "curl", "date", "echo", "export", "false", "git",
    "grep", "groupadd", "head", "install", "ip", "journalctl", "kill", "less", "ls", "man", "mkdir", "mv", "nc",
    "openssl", "pgrep", "printf", "scp", "sed", "seq", "sleep", "sort", "source", "spark-class",
    "spark-submit", "ss", "ssh", "stat", "sudo", "systemctl", "tail", "tc", "tee", "test", "timedatectl", "touch",
    "true", "uname", "unset", "usermod", "watch", "wc",
))
# fmt: on
#: The checkout, or its wheel in dist/, and the extras.
_OF_OURS = re.compile(r"(\.|dist/penstock-(?P<version>[^-]+)-py3-none-any\.whl)(?P<extras>(\[.*)?)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_OPERATORS = {";", "&&", "||", "|", "&", "(", ")"}


#: The installed packages do not change during the tests, and to look them up takes longer than to read a command.
_installed = cache(metadata.entry_points)


class WrongError(Exception):
    """A fault of a command."""


class _Parsed(BaseException):
    """The arguments were understood; no ``except Exception`` on the way is meant."""


def check(text: str) -> None:
    """Read a shell command.

    Raises:
        WrongError: something in it does not exist.
    """
    for argv in simple_commands(text):
        name, arguments = argv[0], argv[1:]
        if name in _CHECKED:
            _CHECKED[name](arguments)
        elif name.startswith(("./", "/", "$")) or name in _PLAIN:
            continue
        elif shutil.which(name) is None:
            raise WrongError(f"{name!r} is not a program that this host or the test knows")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The commands between ``;``, ``&&``, ``|``…, without assignments, redirections and ``sudo``."""
    text = re.sub(r"<<-?\s*'?(\w+)'?.*?^\s*\1$", "", text, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
    lexer = shlex.shlex(text.replace("\n", ";"), posix=True, punctuation_chars=";&|()<>")
    lexer.commenters = "#"
    lexer.wordchars += "~-./*?={}[]$:,@+%^!…"
    try:
        words = list(lexer)
    except ValueError as error:
        raise WrongError(f"cannot be read: {error}") from None
    argv: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if skip:
            skip = False
        elif word and set(word) <= set("<>&|") and set(word) & set("<>"):
            skip = True
            if argv and argv[-1].isdigit():
                argv.pop()
        elif word in _OPERATORS or (word and set(word) <= set(";&|()")):
            if argv:
                yield argv
            argv = []
        elif argv or not (_ASSIGNMENT.match(word) or word in {"sudo", "exec", "if", "then", "fi", "do", "done"}):
            argv.append(word)


# ---------------------------------------------------------------- our own commands


def penstock(argv: list[str], *, complete: bool = True) -> None:
    """Read ``penstock`` and its arguments; where it is not ``complete``, missing arguments are no error.

    Raises:
        WrongError: it would not be understood.
    """
    from penstock.cli.main import main

    if argv[:1] == ["COMMAND"]:
        return
    argv = ["1" if word in {"PID", "$PID", "$!"} else word for word in argv]

    def run() -> None:
        complaints = io.StringIO()
        with contextlib.redirect_stderr(complaints), contextlib.redirect_stdout(io.StringIO()):
            if main(argv) != 0:
                raise _ComplaintError(complaints.getvalue())

    _understood(run, complete)


def _understood(run: Callable[[], object], complete: bool = True) -> None:
    try:
        with _only_parsing():
            run()
    except _Parsed:
        return
    except (SystemExit, _ComplaintError) as error:
        said = str(error)
        if isinstance(error, SystemExit) and error.code == 0:
            return
        if not complete and re.search(r"required|no command given|expected .*argument", said):
            return
        raise WrongError(said) from None


class _ComplaintError(Exception):
    """The message of a parser."""


@contextlib.contextmanager
def _only_parsing() -> Iterator[None]:
    """Stop after the arguments are parsed."""
    parse = argparse.ArgumentParser.parse_args
    parse_known = argparse.ArgumentParser.parse_known_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **named: Any) -> NoReturn:
        parse(self, *args, **named)
        raise _Parsed

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        raise _ComplaintError(f"{self.prog}: {message}")

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **named: Any) -> Any:
        return parse_known(self, *args, **named)

    with (
        mock.patch.object(metadata, "entry_points", _installed),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse_known_args),
        mock.patch.object(argparse.ArgumentParser, "error", error),
        mock.patch.object(argparse.ArgumentParser, "print_help", lambda *_: None),
    ):
        yield


# ---------------------------------------------------------------- others


def _python(argv: list[str]) -> None:
    if argv[:1] == ["-m"]:
        module = argv[1]
        if module in {"build", "pip"}:
            if module == "pip":
                _pip(argv[2:])
            return
        if find_spec(module) is None:
            raise WrongError(f"there is no module {module!r}")
        if module == "bench":
            unknown = [name for name in argv[2:] if not name.startswith("-") and find_spec(f"bench.{name}") is None]
            if unknown:
                raise WrongError(f"there is no benchmark {unknown[0]!r}")
        elif module == "research":
            _understood(lambda: research(argv[2:]))
        elif module == "bench.enforcement":  # reads its arguments by itself, and would measure
            unknown = sorted(set(argv[2:]) - set(PARTS))
            if unknown:
                raise WrongError(f"bench.enforcement has no part {unknown[0]!r}")
        elif module.startswith("bench.") and len(argv) > 2:
            named = import_module(module)
            command = named if hasattr(named, "main") else import_module(f"{module}.__main__")
            _understood(lambda: command.main(argv[2:]))
    elif argv and argv[0].startswith(("docs/", "examples/")) and not (ROOT / argv[0]).exists():
        raise WrongError(f"there is no {argv[0]}")


def _pip(argv: list[str]) -> None:
    from packaging.requirements import InvalidRequirement, Requirement

    if argv[:1] != ["install"]:
        raise WrongError(f"pip {' '.join(argv)}: only `pip install` is looked at")
    for word in argv[1:]:
        if word.startswith("-"):
            continue
        ours = _OF_OURS.fullmatch(word)
        try:
            wanted = Requirement(f"penstock{ours['extras']}" if ours else word)
        except InvalidRequirement as error:
            raise WrongError(f"pip install {word}: {error}") from None
        if not ours and wanted.name.lower() == "penstock":
            raise WrongError(f"pip install {word}: it is on no index; name the checkout ('.') or the wheel in dist/")
        if ours and ours["version"] not in {None, _PYPROJECT["project"]["version"]}:
            raise WrongError(f"pip install {word}: `make wheel` builds {_PYPROJECT['project']['version']}")
        unknown = wanted.extras - set(_PYPROJECT["project"]["optional-dependencies"]) if ours else set()
        if unknown:
            raise WrongError(f"pip install {word}: there is no extra {', '.join(sorted(unknown))}")


def _make(argv: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in argv:
        if "=" not in word and word not in targets:
            raise WrongError(f"make {word}: the Makefile has no such target")


def _of_systemd(argv: list[str]) -> None:
    for word in argv:
        unit = word.removesuffix(".service")
        if unit.startswith("penstock-") and not (ROOT / "systemd" / f"{unit}.service").exists():
            raise WrongError(f"there is no unit {unit}")


def _ansible_playbook(argv: list[str]) -> None:
    for word in argv:
        playbook = re.fullmatch(r"[\w./]*\w\.ya?ml", word) and "inventory" not in word
        if playbook and not (ROOT / "ansible" / Path(word).name).exists():
            raise WrongError(f"ansible/ has no {Path(word).name}")
    from ansible.cli.playbook import PlaybookCLI

    cli = PlaybookCLI(["ansible-playbook", *argv])
    try:
        cli.parse()
    except SystemExit as error:
        raise WrongError(f"ansible-playbook does not understand {' '.join(argv)}") from error
    for pair in re.findall(r"(?:-e|--extra-vars)[ =](\w+)=", " ".join(argv)):
        if not any(re.search(rf"\b{pair}\b", text) for text in _ansible_texts()):
            raise WrongError(f"no role or playbook knows the variable {pair}")


@cache
def _ansible_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (ROOT / "ansible").rglob("*.yml")]


def _penstock(argv: list[str]) -> None:
    penstock(argv)


_CHECKED: dict[str, Callable[[list[str]], None]] = {
    "penstock": _penstock,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "make": _make,
    "ansible-playbook": _ansible_playbook,
    "systemctl": _of_systemd,
    "journalctl": _of_systemd,
}
