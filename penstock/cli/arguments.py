"""Parsing of command-line arguments; invalid input gives one clear line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from penstock.cli import exit_statuses
from penstock.cli.errors import usage_error
from penstock.model.container import MOST_CORES, Notice
from penstock.model.floors import least_of, wrong_processors
from penstock.model.near_names import did_you_mean
from penstock.model.units import format_bytes, parse_bytes, parse_duration_s, parse_rate
from penstock.wire.utf8 import is_utf8, shown

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """A parser with one line and exit status 2 for bad input, without abbreviated options; help lists exit statuses."""

    def __init__(self, command: str, description: str, epilog: str | None = None) -> None:
        self.command = command
        super().__init__(
            prog=f"penstock {command}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            # argparse makes one for each option. Without a width it would ask shutil for the terminal's, and that
            # imports bz2, lzma and zlib: 3 % of the instructions of `penstock submit`.
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=80),
        )
        # By argparse's own rule, `-5` is a value and `-5s` an unknown option, so `--timeout` would lack its value.
        self._negative_number_matcher = re.compile("-[.0-9]")

    def format_help(self) -> str:
        """Called by argparse."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        return f"{super().format_help()}\n{exit_statuses.section(self.command)}\n"

    def error(self, message: str) -> NoReturn:
        """Called by argparse."""
        option = message.removeprefix("unrecognized arguments: ").split(" ", 1)[0].split("=", 1)[0]
        if option != message.split(" ", 1)[0]:
            known = [text for action in self._actions for text in action.option_strings]
            hint = did_you_mean(option, known, f"see `{self.prog} --help`")
            raise usage_error(f"unknown argument {option!r}; {hint}")
        about, has_value, value = message.removeprefix("argument ").partition(": ignored explicit argument ")
        if about.endswith(lacks := ": expected one argument"):  # or a value that the user wrote ends so
            about += self._with_value(about.removesuffix(lacks))
        raise usage_error(f"{about}: takes no value; leave {value} out" if has_value else about)

    def _with_value(self, named: str) -> str:
        """Return how to write an option with its value, or nothing for an unknown one; ``named``: as argparse names it
        (``-c/--config``).
        """
        action = next((each for each in self._actions if "/".join(each.option_strings) == named), None)
        if action is None:
            return ""
        value = action.metavar or "|".join(action.choices or [action.dest.upper()])
        return f"; write `{action.option_strings[-1]} {value}`"


def _reads(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make a ValueError's text the message of argparse, which would show the parser's name instead."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


@_reads
def cores(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise ValueError(f"{text!r} is not a number of cores; write for example 0.5 or 2")
    if value > MOST_CORES:
        raise ValueError(f"{text!r} is more than {MOST_CORES} cores; write for example 0.5 or 2")
    return value


def _at_least(name: str, read: Callable[[str], float], show: Callable[[float], str]) -> Callable[[str], float]:
    """Return a reader that refuses values below a limit's minimum."""

    @_reads
    def convert(text: str) -> float:
        value = read(text)
        if value < (least := least_of(name)):
            raise ValueError(f"{text!r} is too little to run with; ask for at least {show(least)}")
        return value

    return convert


@_reads
def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or "\0" in text:
        raise ValueError(f"{shown(text)} is not KEY=VALUE")
    if not is_utf8(text):
        raise ValueError(f"{shown(text)} is not UTF-8; convert the value, for example with `iconv -t UTF-8`")
    return key, value


@_reads
def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)


@_reads
def listed_id(text: str) -> str:
    if not text:
        raise ValueError("'' is no id; name one that this host or cluster lists")
    return text


@_reads
def cpu_list(text: str) -> str:
    for wrong, remedy in wrong_processors(text):
        raise ValueError(f"{wrong}; {remedy}")
    return text


@_reads
def burst(text: str) -> float:
    seconds = parse_duration_s(text)
    if not 0 < seconds <= 0.1:
        raise ValueError(f"{text!r} is not between 0 and 100ms")
    return seconds


@_reads
def notice(text: str) -> Notice:
    import signal  # most commands have none

    name, colon, grace = text.partition(":")
    number = signal.Signals.__members__.get(f"SIG{name.upper().removeprefix('SIG')}")
    if number is None and name.isdecimal():
        number = next((known for known in signal.Signals if known == int(name)), None)
    if number is None:
        raise ValueError(f"{name!r} is not a signal; write for example TERM or USR1:10s")
    seconds = parse_duration_s(grace) if colon else Notice().grace_s
    if not 0 < seconds <= 300:
        raise ValueError(f"{grace!r} is not between 0 and 300 seconds")
    return Notice(signal=number.value, grace_s=seconds)


def or_none(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a reader that also accepts ``none``."""
    return lambda text: None if text == "none" else read(text)


size = _reads(parse_bytes)
rate = _reads(parse_rate)
duration = _reads(parse_duration_s)
#: Limits of a container.
memory_limit = _at_least("memory_max_bytes", parse_bytes, format_bytes)
rate_limit = _at_least("disk_read_bytes_per_s", parse_rate, lambda least: f"{format_bytes(least)}/s")
cores_limit = _at_least("cpu_cores", cores, lambda least: f"{least:g}")
