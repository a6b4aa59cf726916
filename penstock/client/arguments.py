"""Checks of the numbers and names that callers pass: an error is one line with argument, expectation and remedy."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from numbers import Integral, Real
from threading import TIMEOUT_MAX
from typing import Any

from penstock.model.units import LIMIT, QuantityError, parse_bytes, parse_duration_s
from penstock.model.work import LONGEST_NAME

_SHOWN = 80


def size_bytes(name: str, value: Any) -> int:
    """Return a size as a whole number of bytes; a part of a byte is dropped.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, not finite, or 2⁶³ or more.
    """
    what = "a number of bytes"
    number = _number(name, value, what, "write for example 64 * 2**20, or 0 if it is unknown", parse_bytes)
    if not 0 <= number < LIMIT:
        raise ValueError(f"{name}: {what} expected, and {shown(value)} is not from 0 to 2⁶³ − 1; 0 if it is unknown")
    return int(number)


def duration_s(name: str, value: Any) -> float:
    """Return a duration in seconds; it may be infinite, and one of 2⁶³ or more is.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative or not a number (NaN).
    """
    what = "a number of seconds"
    number = _number(name, value, what, "write for example 0.5", parse_duration_s)
    if not number >= 0:
        raise ValueError(f"{name}: {what} from 0 on expected, not {shown(value)}")
    return float(number) if number < LIMIT else math.inf


def timeout_s(value: Any) -> float:
    """Return the ``timeout_s`` of a wait, as far as ``threading`` can wait; one that is over already is 0.

    Raises: TypeError: it is no number. ValueError: it is not a number (NaN).
    """
    left_s = _number("timeout_s", value, "a number of seconds", "write for example 0.5, or math.inf", parse_duration_s)
    return min(duration_s("timeout_s", 0.0 if left_s < 0 else left_s), TIMEOUT_MAX)


def priority(value: Any) -> float:
    """Return a job's ``priority``.

    Raises: TypeError: it is no number. ValueError: it is not from -10¹⁸ to 10¹⁸.
    """
    number = _number("priority", value, "a number", "write for example 1.0")
    if not -1e18 <= number <= 1e18:
        raise ValueError(f"priority: a number from -1e18 to 1e18 expected, not {shown(value)}")
    return float(number)


def whole(name: str, value: Any, least: int, remedy: str) -> int:
    """Return a whole number of at least ``least``.

    Raises: TypeError: it is no whole number. ValueError: it is less.
    """
    number = _number(name, value, "a whole number", remedy)
    if not isinstance(number, Integral):
        raise TypeError(f"{name}: a whole number expected, not {shown(value)}; {remedy}")
    if number < least:
        raise ValueError(f"{name}: a whole number from {least} on expected, not {shown(value)}; {remedy}")
    return int(number)


def name(argument: str, value: Any) -> str:
    """Return a name as the protocol requires it: valid UTF-8, at most 128 characters.

    Raises: TypeError: it is no text.
    """
    if not isinstance(value, str):
        remedy = f"write {str(value)!r}" if isinstance(value, Real) else "write for example 'map'"
        raise TypeError(f"{argument}: text expected, not {shown(value)}; {remedy}")
    text: str = value if value.isascii() else value.encode("utf-8", "replace").decode()
    return text[:LONGEST_NAME]


def _number(name: str, value: Any, what: str, remedy: str, parse: Callable[[str], float] | None = None) -> Any:
    """Return a number, also one of NumPy's. ``parse`` reads text that was meant, so that the error has its value."""
    if not isinstance(value, bool) and isinstance(value, Real):
        return value
    if isinstance(value, str) and parse is not None:
        with contextlib.suppress(QuantityError):
            remedy = f"write {parse(value)}"
    raise TypeError(f"{name}: {what} expected, not {shown(value)}; {remedy}")


def shown(value: Any) -> str:
    """Return a value for a message: one line, at most 80 characters."""
    return " ".join(repr(value).split())[:_SHOWN]
