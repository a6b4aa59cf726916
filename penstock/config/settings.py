"""Read configuration into one declared, frozen, typed table, with the origin of each value.

A daemon declares an ``msgspec.Struct`` whose fields carry their documentation in ``msgspec.Meta(description=…)``. Keys
are flat. Values may have units: ``"2GiB"`` for a field that ends in ``_bytes``, ``"10MB/s"`` or ``"1Gbit/s"`` for
``_bytes_per_s``, ``"250ms"`` for ``_s``. Later sources take precedence: the declaration's defaults, a TOML file, the
environment, ``--set``.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from penstock.model.decode_errors import choices, told, toml_key
from penstock.model.near_names import did_you_mean
from penstock.model.units import QuantityError, is_within_limit, parse_bytes, parse_duration_s, parse_rate
from penstock.toml_files import TomlFileError, read_toml

T = TypeVar("T", bound=msgspec.Struct)
#: The most known keys that an error lists.
_MOST_NAMED = 20
#: The daemons, each with a file of its own.
_DAEMONS = ("agent", "master")
#: Marks a key that a running daemon takes from its file on SIGHUP.
LIVE = msgspec.Meta(extra={"live": True})


class SettingsError(Exception):
    """Faults of a configuration, one line each for the operator: the place, the key, the remedy."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of settings. ``prefix`` and a key in capitals make the name of an environment variable."""

    file: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value. ``source`` is "file", "environment", "--set" or "set" (while the daemon runs).

    ``where`` is the file and line, the variable, the option, or the user and the time of setting.
    """

    source: str
    where: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A table, and the origin of each value that is not the default."""

    table: T
    origins: Mapping[str, Origin]


def load(of: type[T], path: Path | None = None, overrides: Mapping[str, str] | None = None) -> T:
    """Return the settings of a file with ``key=value`` overrides.

    Raises:
        SettingsError: as :func:`read`.
    """
    return read(of, Sources(path, overrides or {})).table


def read(of: type[T], sources: Sources, check: Callable[[T], None] = lambda table: None) -> Loaded[T]:
    """Return the settings of all sources. ``check`` raises SettingsError if keys contradict each other (``key: why``).

    Raises:
        SettingsError: all faults: unreadable file, unknown keys (with the nearest known key), values that do not fit.
    """
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    faults: list[str] = []
    options = ((key, _value(of, key, text), Origin("--set", "--set")) for key, text in sources.overrides.items())
    for key, value, origin in (*_of_file(sources.file), *_of_environment(of, sources), *options):
        try:
            values[key] = _converted(of, key, value, sources.prefix)
            origins[key] = origin
        except SettingsError as error:
            faults += [f"{origin.where}: {fault}" for fault in error.faults]
    if faults:
        raise SettingsError(*faults)
    table = of(**values)
    try:
        check(table)
    except SettingsError as error:
        raise SettingsError(*(_placed(fault, origins) for fault in error.faults)) from None
    return Loaded(table, origins)


def given(of: type[msgspec.Struct], key: str, text: str) -> Any:
    """Return the value of one ``KEY=VALUE``, such as that of ``--set``.

    Raises:
        SettingsError: there is no such key (the message has the nearest key), or the value does not fit it.
    """
    return _converted(of, key, _value(of, key, text))


@functools.cache
def declared_keys(of: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return each key of a declared table with its declaration. Reading those of an agent takes 9 ms."""
    return {each.name: each for each in msgspec.structs.fields(of)}


def live_keys(of: type[msgspec.Struct]) -> frozenset[str]:
    """Return the keys that are marked with :data:`LIVE`."""
    return frozenset(
        each.name
        for each in declared_keys(of).values()
        if any((getattr(meta, "extra", None) or {}).get("live") for meta in getattr(each.type, "__metadata__", ()))
    )


def host_port(text: str, key: str) -> tuple[str, int]:
    """Split ``127.0.0.1:7420`` or ``[::1]:7420`` into host and port.

    Raises:
        SettingsError: the text has neither form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{key}: {text!r} is not ADDRESS:PORT; write for example 127.0.0.1:7420")
    return host.removeprefix("[").removesuffix("]"), int(port)


# ---------------------------------------------------------------- sources

_Entry = tuple[str, Any, Origin]


def _of_file(path: Path | None) -> Iterator[_Entry]:
    if path is None:
        return
    try:
        text, table = read_toml(path)
    except TomlFileError as error:
        raise SettingsError(str(error)) from None
    for key, value in table.items():
        yield key, value, Origin("file", f"{path}{_line(text, key)}")


def _line(text: str, key: str) -> str:
    """Return the key's line as ``:12``; empty if the key is written in an unusual form."""
    name = re.escape(key)
    begins = rf"^[ \t]*(?:(?:{name}|\"{name}\"|'{name}')[ \t]*[=.]|\[[ \t]*{name}[ \t]*[\].])"
    found = re.search(begins, text, re.MULTILINE)
    return f":{text.count(chr(10), 0, found.start()) + 1}" if found else ""


def _of_environment(of: type[msgspec.Struct], sources: Sources) -> Iterator[_Entry]:
    """Yield the environment's entries. A variable without a key is an error, as it would silently have no effect."""
    if not sources.prefix:
        return
    names = {f"{sources.prefix}{key.upper()}": key for key in of.__struct_fields__}
    faults = []
    for variable, text in sorted(sources.environment.items()):
        if not variable.startswith(sources.prefix):
            continue
        if variable in names:
            yield names[variable], _value(of, names[variable], text), Origin("environment", f"${variable}")
        else:
            faults.append(f"${variable}: there is no such key; {_nearest(variable, names)}")
    if faults:
        raise SettingsError(*faults)


def _value(of: type[msgspec.Struct], key: str, text: str) -> Any:
    """Return the value of ``KEY=VALUE``. Where the key is declared as text, a number is text: ``--set node=7``."""
    value = scalar(text)
    kind = declared_keys(of)[key].type if key in declared_keys(of) else None
    is_text = getattr(kind, "__origin__", kind) is str  # also of Annotated[str, …]
    return text if is_text and not isinstance(value, str) else value


def scalar(text: str) -> Any:
    """Return the text as a TOML value, or else as a string: ``--set node=alpha`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, or brackets within brackets
        return text


# ---------------------------------------------------------------- values


def entry(key: str, name: str) -> str:
    """Return the full name of a table's entry as TOML writes it: ``tenants.eve``, ``weights."research/eve"``."""
    return f"{key}.{toml_key(name)}"


def _converted(of: type[msgspec.Struct], key: str, value: Any, prefix: str = "") -> Any:
    declared = declared_keys(of)
    if key not in declared:
        if isinstance(value, dict) and (hint := _misplaced(key, value, declared, prefix)):
            raise SettingsError(f"unknown table {key!r}; {hint}")
        raise SettingsError(f"unknown key {key!r}; {_nearest(key, declared)}")
    kind = declared[key].type
    try:
        amount = _quantity(key, value)
    except QuantityError as error:
        raise SettingsError(f"{key}: {error}") from None
    if isinstance(amount, dict):
        _check_fit(key, {}, kind)  # whether a table is expected at all
        faults = [fault for name, each in amount.items() for fault in _entry_faults(key, name, each, kind)]
        if faults:
            raise SettingsError(*faults)
    return _check_fit(key, amount, kind)


def _entry_faults(key: str, name: str, value: Any, kind: Any) -> tuple[str, ...]:
    """Return the faults of one entry of a table, which the decoder of the whole does not name."""
    try:
        _check_fit(entry(key, name), {name: value}, kind)
    except SettingsError as error:
        return error.faults
    return ()


def _check_fit(where: str, value: Any, kind: Any) -> Any:
    """Return the value as the declared type; ``where`` names the key, or the only entry of a table.

    Raises: SettingsError: it does not fit.
    """
    if not is_within_limit(value):
        raise SettingsError(f"{where}: a finite number below 2^63 expected")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        fault, known = told(error, kind, key=where).replace(f"{where}[...]", where, 1), choices(kind)
        if known and "; one of " not in fault:
            fault += f"; one of {', '.join(known)}"
        raise SettingsError(fault) from None


def _misplaced(header: str, table: Mapping[str, Any], declared: Mapping[str, object], prefix: str) -> str:
    """Return where the keys of a table belong: a daemon's name is a header in files of other programs; "": unknown."""
    own = prefix == f"PENSTOCK_{header.upper()}_"
    if header in _DAEMONS and not own and prefix:
        return f"keys of the {header} belong in its own file, {header}.toml, without this header"
    return "write its keys without this header" if own or set(table) <= set(declared) else ""


def _nearest(name: str, known: Mapping[str, object]) -> str:
    few = len(known) <= _MOST_NAMED
    return did_you_mean(
        name, known, f"known keys: {', '.join(sorted(known))}" if few else "`penstock config show` lists all keys"
    )


def _quantity(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if key.endswith("_bytes_per_s"):
        return parse_rate(value)
    if key.endswith("_bytes"):
        return parse_bytes(value)
    return parse_duration_s(value) if key.endswith("_s") else value


def _placed(fault: str, origins: Mapping[str, Origin]) -> str:
    """Return a fault of :func:`read`'s ``check``, which begins with its key, preceded by the key's place."""
    origin = origins.get(re.split("[.:]", fault, maxsplit=1)[0])
    return f"{origin.where}: {fault}" if origin is not None else fault
