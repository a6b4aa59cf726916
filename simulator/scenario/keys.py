"""Set dotted keys of nested tables, and report a faulty value with its key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from penstock.model.decode_errors import explained
from penstock.model.near_names import did_you_mean
from penstock.model.units import QuantityError, is_within_limit, parse_bytes, parse_duration_s, parse_rate
from simulator.scenario.errors import ScenarioError

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_INDEX = re.compile(r"\[\d+\]$")
_UNITS = {"_bytes_per_s": parse_rate, "_bytes": parse_bytes, "_s": parse_duration_s}


def assign(document: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.0.c`` in nested tables and lists; create missing tables. Raises ScenarioError."""
    *way, last = key.split(".")
    here: Any = document
    for done, part in enumerate(way, 1):
        here = here.setdefault(part, {}) if isinstance(here, dict) else _entry(here, part, key)
        if not isinstance(here, dict | list):
            raise ScenarioError(f"{key}: {'.'.join(way[:done])} is a value, not a table")
    if isinstance(here, dict):
        here[last] = value
    else:
        _entry(here, last, key)
        here[int(last)] = value


def _entry(values: list[Any], part: str, key: str) -> Any:
    if not part.isdecimal() or int(part) >= len(values):
        raise ScenarioError(f"{key}: {part!r} is none of the list's entries 0 to {len(values) - 1}")
    return values[int(part)]


def convert(tables: Mapping[str, Any], of: type[msgspec.Struct], *, beside: tuple[str, ...] = ()) -> Any:
    """Return the tables as the declared type. ``beside``: other known top-level keys, named in error messages.

    Values may have units: ``"2GiB"`` for a key in ``_bytes``, ``"10MB/s"`` for ``_bytes_per_s``, ``"5min"`` for ``_s``.

    Raises:
        ScenarioError: ``key: fault``; for an unknown key the message names the nearest known one.
    """
    readable = _quantities(tables, "")
    try:
        return msgspec.convert(readable, of)
    except msgspec.ValidationError as error:
        at, message = explained(error, of)
        declared, value = _at(inspect.type_info(of), at, readable)
        if (unknown := _UNKNOWN.fullmatch(str(error).partition(" - at `")[0])) is not None:
            struct = _struct(declared, value)
            known = [field.encode_name for field in struct.fields] if struct is not None else []
            known = known if at else [*beside, *known]
            hint = did_you_mean(unknown[1], known, f"known keys: {', '.join(known)}")
            message = f"unknown key {unknown[1]!r}; {hint}"
        elif isinstance(declared, inspect.LiteralType):
            choices = [str(each) for each in declared.values]
            hint = did_you_mean(str(value), choices, f"known values: {', '.join(choices)}")
            message = f"unknown value {value!r}; {hint}"
        place, _ = explained(error, of, readable)
        raise ScenarioError(f"{place}: {message}" if place else message) from None


def _quantities(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _quantities(each, f"{key}.{name}" if key else str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_quantities(each, f"{key}[{index}]") for index, each in enumerate(value)]
    suffix = next((suffix for suffix in _UNITS if _INDEX.sub("", key).endswith(suffix)), None)
    if not is_within_limit(value):
        raise ScenarioError(f"{key}: a finite number below 2^63 expected")
    if suffix is None or not isinstance(value, str):
        return value
    try:
        return _UNITS[suffix](value)
    except QuantityError as error:
        raise ScenarioError(f"{key}: {error}") from None


def _at(info: inspect.Type, at: str, value: Any) -> tuple[inspect.Type, Any]:
    """Return the declared type of ``a.b[2].c`` and the value given there."""
    for part in re.findall(r"[^.\[\]]+", at.replace("[...]", ".[...]")):
        info, value = _inner(info, part, value), _part(value, part)
    return info, value


def _part(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    return None


def _inner(info: inspect.Type, part: str, value: Any) -> inspect.Type:
    """Return the type of one part of a value of this type."""
    choices = info.types if isinstance(info, inspect.UnionType) else (info,)
    for choice in choices:
        if isinstance(choice, inspect.ListType | inspect.VarTupleType):
            return choice.item_type
        if isinstance(choice, inspect.DictType):
            return choice.value_type
    struct = _struct(info, value)
    return next((f.type for f in struct.fields if f.encode_name == part), info) if struct is not None else info


def _struct(info: inspect.Type, value: Any) -> inspect.StructType | None:
    """Return the struct type that the value is meant to be; of several, the one with the value's tag."""
    choices = info.types if isinstance(info, inspect.UnionType) else (info,)
    structs = [choice for choice in choices if isinstance(choice, inspect.StructType)]
    tagged = [s for s in structs if s.tag_field and isinstance(value, Mapping) and value.get(s.tag_field) == s.tag]
    return next(iter(tagged or structs), None)
