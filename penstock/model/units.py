"""Quantities in people's notation: ``64M``, ``2GiB``, ``10MB/s``, ``100Mbit/s``, ``250ms``.

Single letters and the ``i`` forms are powers of 1024, as usual for memory, cgroups and systemd; ``kB``, ``MB``, ``GB``
and all rates in bits are powers of 1000, as usual for disks and links. ``Gb`` may mean bits or bytes, a factor of
eight: it is refused everywhere.
"""

from __future__ import annotations

import re

#: Quantities are below this: messages carry integers of 64 bits.
LIMIT = 2**63
_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ/]*)\s*\Z"
_BINARY = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_DECIMAL = {"k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_DURATIONS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class QuantityError(ValueError):
    """An invalid quantity; the message shows valid ones."""


def is_within_limit(value: object) -> bool:
    """Return whether every number in a TOML value is finite and below :data:`LIMIT`, negative ones above -LIMIT."""
    if isinstance(value, dict):
        return all(map(is_within_limit, value.values()))
    if isinstance(value, list):
        return all(map(is_within_limit, value))
    return not isinstance(value, int | float) or abs(value) < LIMIT


def counted(count: float, noun: str, verb: str = "", *, digits: int = 6) -> str:
    """Return a count with its noun, and optionally a verb: ``1 task waits``, ``2 tasks wait``.

    ``digits`` is the number of significant digits of a float; integers are written in full.
    """
    number = f"{count}" if isinstance(count, int) else f"{count:.{digits}g}"
    one = number == "1"  # as it is read: 1.004 cores are shown as 1 core with two digits
    said = f"{number} {noun}" if one else f"{number} {noun}s"
    return f"{said} {verb}{'s' if one else ''}" if verb else said


def ordinal(rank: int) -> str:
    """Return ``third`` for 3; digits from the eleventh on."""
    if rank <= len(_ORDINALS):
        return _ORDINALS[rank - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th") if rank % 100 not in {11, 12, 13} else "th"
    return f"{rank}{ending}"


def _split(text: str, example: str) -> tuple[float, str]:
    match = re.match(_NUMBER, text)  # compiled once, on first use: most commands read no quantity
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; write for example {example}")
    value = float(match[1])
    if value >= LIMIT:
        raise QuantityError(f"{text!r} is too large; write for example {example}")
    return value, match[2]


def _whole_bytes(amount: float, text: str, per: str = "") -> int:
    if amount < 1:
        raise QuantityError(f"{text!r} is less than one byte{per}")
    if amount >= LIMIT:
        raise QuantityError(f"{text!r} is too large; write less than 2^63 bytes{per}")
    return int(amount)


def _as_bytes(number: str, prefix: str) -> str:
    """Return the probable meaning of a quantity with a ``b``."""
    decimal = f"{number}{prefix if prefix == 'k' else prefix.upper()}B"
    return f"{decimal} or {number}{prefix.upper()}iB" if prefix else decimal


def parse_bytes(text: str) -> int:
    """Return bytes from ``4096``, ``64M``, ``64MiB`` (both 64·1024²) or ``64MB`` (64·1000²).

    Raises:
        QuantityError: not a quantity, possibly one of bits (``2Gb``), less than one byte, or 2^63 or more.
    """
    value, unit = _split(text, "64M, 2GiB or 500MB")
    lower = unit.lower()
    if unit.endswith("b") and lower[:-1] in {"", *_DECIMAL}:
        raise QuantityError(
            f"{text!r}: {unit} is bits; write {_as_bytes(text.strip()[: -len(unit)].strip(), lower[:-1])}"
        )
    if lower in {"", "b"}:
        factor = 1
    elif lower in _BINARY or (lower.endswith("ib") and lower[:-2] in _BINARY):
        factor = _BINARY[lower[0]]
    elif lower.endswith("b") and lower[:-1] in _DECIMAL:
        factor = _DECIMAL[lower[0]]
    else:
        raise QuantityError(f"{text!r}: unknown unit {unit!r}; write for example 64M, 2GiB or 500MB")
    return _whole_bytes(value * factor, text)


def parse_rate(text: str) -> int:
    """Return bytes per second from ``10MB/s``, ``10M``, ``100Mbit/s``, ``1Gbit``.

    Raises:
        QuantityError: not a rate, less than one byte per second, or 2^63 or more.
    """
    value, unit = _split(text, "10MB/s or 100Mbit/s")
    amount = text.rstrip().removesuffix("/s").removesuffix("ps")
    if not unit.removesuffix("/s"):
        return parse_bytes(amount)
    unit = unit.removesuffix("/s").removesuffix("ps")
    if unit.endswith("b"):
        raise QuantityError(f"{text!r}: bits or bytes? write for example 10MB/s or 80Mbit/s")
    lower = unit.lower()
    if lower.endswith("bit"):
        prefix = lower[:-3]
        if prefix and prefix not in _DECIMAL:
            raise QuantityError(f"{text!r}: unknown unit {unit!r}; write for example 100Mbit/s")
        return _whole_bytes(value * (_DECIMAL[prefix] if prefix else 1) / 8, text, " a second")
    return parse_bytes(amount)


def parse_duration_s(text: str) -> float:
    """Return seconds from ``250ms``, ``3s``, ``1.5``, ``10min``, ``2h``.

    Raises:
        QuantityError: not a duration.
    """
    value, unit = _split(text, "250ms, 3s or 10min")
    if unit not in _DURATIONS:
        raise QuantityError(f"{text!r}: unknown unit {unit!r}; write for example 250ms, 3s or 10min")
    return value * _DURATIONS[unit]


def format_duration(seconds: float) -> str:
    """Format ``93.4`` as ``1 min 33 s``: the two largest units, one decimal below ten seconds."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    for unit, length_s, smaller, smaller_s in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length_s:
            whole, rest = divmod(round(seconds / smaller_s), length_s // smaller_s)
            return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
    return f"{seconds:.0f} s"


def format_bytes(amount: float) -> str:
    """Format ``67108864`` as ``64 MiB``: three significant digits, powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.3g} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
