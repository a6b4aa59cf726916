"""Describe the keys of a declared configuration table, and write values with units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.config.settings import declared_keys, live_keys
from penstock.model.units import parse_bytes, parse_duration_s, parse_rate

_BINARY, _DECIMAL = ("TiB", "GiB", "MiB", "KiB"), ("TB", "GB", "MB", "kB")
_POWERS = (4, 3, 2, 1)
_DURATIONS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True, slots=True)
class Key:
    """One key. ``default`` is in the form of a file; ``live``: SIGHUP changes it."""

    name: str
    description: str
    default: str
    live: bool


def keys(of: type[msgspec.Struct]) -> list[Key]:
    """Return every key of a declared table in its order, the keys of its base class last."""
    live = live_keys(of)
    shared = getattr(of.__base__, "__struct_fields__", ())
    return [
        Key(
            each.name,
            str(msgspec.json.schema(each.type).get("description", "")),
            written(each.name, each.default_factory() if each.default is msgspec.NODEFAULT else each.default),
            each.name in live,
        )
        for each in sorted(declared_keys(of).values(), key=lambda each: each.name in shared)
    ]


def written(key: str, value: Any) -> str:
    """Return a value as TOML with its unit; reading this text gives exactly the same value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key.endswith("_bytes_per_s"):
            return _exact(value, _sizes(_DECIMAL, 1000, "/s") | _sizes(_BINARY, 1024, "/s"), parse_rate)
        if key.endswith("_bytes"):
            return _exact(value, _sizes(_BINARY, 1024, "") | _sizes(_DECIMAL, 1000, ""), parse_bytes)
        if key.endswith("_s") and not key.endswith("_container_s"):
            return _exact(value, _DURATIONS, parse_duration_s)
    return _toml(msgspec.to_builtins(value))


def _sizes(units: tuple[str, ...], base: int, suffix: str) -> dict[str, float]:
    return {f"{unit}{suffix}": float(base**power) for unit, power in zip(units, _POWERS, strict=True)}


def _exact(value: float, units: Mapping[str, float], parse: Callable[[str], float]) -> str:
    """Return the value in the largest unit that makes it a whole number (seconds may be fractions), or unit-less."""
    if not value:
        return '"0s"' if units is _DURATIONS else _toml(value)
    for unit, size in units.items():
        count: float = round(value / size)
        if unit == "s" and value > 1 and value != count:
            count = value
        if count >= 1 and parse(f"{count}{unit}") == value:
            return f'"{count}{unit}"'
    return _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_quoted(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.1f}"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    """Return a TOML string, with escapes for all characters that could control a terminal. A byte that is not UTF-8,
    which TOML cannot have, becomes U+FFFD.
    """
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(c: str) -> str:
    if "\ud800" <= c <= "\udfff":
        return "\ufffd"
    return c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else f"\\U{ord(c):08x}"
