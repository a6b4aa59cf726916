"""Configuration from TOML into one declared, frozen, typed table.

A daemon declares an ``msgspec.Struct`` whose fields carry their documentation in ``msgspec.Meta(description=…)``. Keys
are flat. Values may be written as people write them: ``"2GiB"`` for a field that ends in ``_bytes``, ``"10MB/s"``
for ``_bytes_per_s``, ``"250ms"`` for ``_s``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import msgspec.inspect

from penstock.model.units import QuantityError, parse_bytes, parse_duration_s, parse_rate

T = TypeVar("T", bound=msgspec.Struct)


class SettingsError(Exception):
    """One line for the operator: where, which key, what to do."""


def load(of: type[T], path: Path | None = None, overrides: Mapping[str, str] | None = None) -> T:
    """The settings of a file, then of ``key=value`` overrides.

    Raises:
        SettingsError: unreadable file, unknown key (names the nearest known one), or a value of the wrong type.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: {error}") from None
    result = _convert(of, values, str(path) if path else "defaults")
    if not overrides:
        return result
    for key, text in overrides.items():
        values[key] = _scalar(text)
    return _convert(of, values, "--set")


def _scalar(text: str) -> Any:
    """A TOML value, or the bare text as a string: ``--set node=alpha`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(of: type[T], values: Mapping[str, Any], where: str) -> T:
    known = {field.encode_name for field in msgspec.structs.fields(of)}
    readable: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise SettingsError(f"{where}: unknown key {key!r}; {hint}")
        try:
            readable[key] = _quantity(key, value)
        except QuantityError as error:
            raise SettingsError(f"{where}: {key}: {error}") from None
    try:
        return msgspec.convert(readable, of)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        key = at.rstrip("`").lstrip(".")
        if choices := _choices(of, key):
            message += f"; one of {', '.join(choices)}"
        raise SettingsError(f"{where}: {key or 'settings'}: {message}") from None


def _choices(of: type[msgspec.Struct], key: str) -> list[str]:
    """The values that a key may have, where they are few words."""
    declared = msgspec.inspect.type_info(of)
    assert isinstance(declared, msgspec.inspect.StructType)
    kind = next((field.type for field in declared.fields if field.encode_name == key), None)
    if isinstance(kind, msgspec.inspect.Metadata):  # it is documented
        kind = kind.type
    if isinstance(kind, msgspec.inspect.LiteralType):
        return [str(value) for value in kind.values]
    return [str(each.value) for each in kind.cls] if isinstance(kind, msgspec.inspect.EnumType) else []


def _quantity(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if key.endswith("_bytes_per_s"):
        return parse_rate(value)
    if key.endswith("_bytes"):
        return parse_bytes(value)
    return parse_duration_s(value) if key.endswith("_s") else value
