"""Plain error messages about documents: the validator's own are about its types, not about the document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from penstock.model.near_names import did_you_mean

if TYPE_CHECKING:
    import tomllib

_NAMES = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a table", "null": "nothing", "None": "nothing", "bytes": "binary data",
}  # fmt: skip
_BOUNDS = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than", "==": "exactly"}
_COUNTED = {"array": "item", "str": "character", "object": "key", "bytes": "byte"}


def explained(error: msgspec.MsgspecError, read_as: Any, document: Any = None) -> tuple[str, str]:
    """Return the place of the error in a document of type ``read_as`` (``task[1].kind``, or ""), and the error.

    ``document`` is what was converted, so that the entry of a table has its key in the place (``tenants.eve``). Without
    it, the entry is ``tenants[...]``, as msgspec names it.
    """
    where, wrong = _explained(error, read_as)
    return (where if document is None or "[...]" not in where else _with_keys(where, document, read_as)), wrong


def _explained(error: msgspec.MsgspecError, read_as: Any) -> tuple[str, str]:
    text, _, at = str(error).partition(" - at `")
    where = at.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    if found := re.fullmatch(r"Object missing required field `(.+)`", text):
        return where, f"the key {found[1]!r} is missing"
    if found := re.fullmatch(r"Object contains unknown field `(.+)`", text):
        return where, f"there is no key {found[1]!r}{_hint(found[1], _keys(read_as, where))}"
    if found := re.fullmatch(r"Invalid enum value (.+)", text):
        return where, f"{found[1]} is unknown; one of {', '.join(choices(read_as, where)) or 'those documented'}"
    if found := re.fullmatch(r"Expected `([a-z]+)` of length (>=|<=|==|>|<) (\d+)", text):
        noun = _COUNTED.get(found[1], "item") + ("" if found[3] == "1" else "s")
        return where, f"{_BOUNDS[found[2]]} {found[3]} {noun} expected"
    if found := re.fullmatch(r"Expected `([a-z]+)` (>=|<=|>|<) (\S+)", text):
        return where, f"{_named(found[1])} of {_BOUNDS[found[2]]} {found[3].removesuffix('.0')} expected"
    if found := re.fullmatch(r"Expected `str` matching regex '(.+)'", text):
        return where, f"text that matches {found[1]} expected"
    if found := re.fullmatch(r"Expected `(.+)`, got `(.+)`", text):
        return where, f"{_named(found[1])} expected, and {_named(found[2])} found"
    if text == "Input data was truncated":
        return where, "it is empty, or its end is missing"
    if found := re.fullmatch(r"(JSON|MessagePack data) is malformed: (.+)", text):
        return where, f"it is not {found[1].removesuffix(' data')}: {found[2]}"
    return where, text[:1].lower() + text[1:]


def told(error: msgspec.MsgspecError, read_as: Any, *, key: str = "", document: Any = None) -> str:
    """Return the same as one line; ``key`` is the key of the part that was read, if it was only a part."""
    at, wrong = explained(error, read_as, document)
    where = f"{key}.{at}" if key and at and not at.startswith("[") else key + at
    return f"{where}: {wrong}" if where else wrong


def toml_key(name: str) -> str:
    """Return a key as TOML writes it: ``eve``, ``"research/eve"``."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else msgspec.json.encode(name).decode()


def told_toml(name: object, text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return a TOML syntax error as one line: the file's name, the line, the column and the error."""
    message, line, column = str(error), text.count("\n") + 1, len(text) - text.rfind("\n")
    if found := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL):
        message, line, column = found[1], int(found[2]), int(found[3])
    return f"{name}:{line}: {message.removesuffix(' (at end of document)')} (column {column})"


def _with_keys(where: str, document: Any, read_as: Any) -> str:
    """Return the place with the key of the faulty entry for each ``[...]``, as far as the document has one."""
    way: list[str | int] = []
    shown = ""
    for step in re.findall(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+", where):
        if step == "[...]":
            faulty = [key for key in _keys_at(document, way) if _fails_at(_only(document, way, key), read_as) == where]
            if not faulty:
                return where
            way.append(faulty[0])
            shown += f".{toml_key(faulty[0])}"
        else:
            way.append(int(step[1:-1]) if step.startswith("[") else step)
            shown += step if step.startswith("[") else f".{step}"
    return shown.removeprefix(".")


def _keys_at(document: Any, way: list[str | int]) -> list[str]:
    for step in way:
        document = document[step]
    return list(document) if isinstance(document, Mapping) else []


def _only(document: Any, way: list[str | int], key: str) -> Any:
    """Return the document whose table at the end of the way has this entry only."""
    if not way:
        return {key: document[key]}
    step, *rest = way
    inner = _only(document[step], rest, key)
    if isinstance(step, int):
        return [*document[:step], inner, *document[step + 1 :]]
    return {**document, step: inner}


def _fails_at(document: Any, read_as: Any) -> str | None:
    try:
        msgspec.convert(document, read_as)
    except msgspec.ValidationError as error:
        return _explained(error, read_as)[0]
    return None


def _named(types: str) -> str:
    """Convert ``int | str`` to ``a whole number or text``."""
    return " or ".join(dict.fromkeys(_NAMES.get(each.strip(), each.strip()) for each in types.split("|")))


def choices(read_as: Any, where: str = "") -> list[str]:
    """Return the values of a type, or at a place of it, if they are a fixed set."""
    alternatives = _alternatives(_at(read_as, where))
    flags = ["true", "false"] if any(isinstance(each, inspect.BoolType) for each in alternatives) else []
    for each in alternatives:
        if isinstance(each, inspect.EnumType):
            return flags + [str(member.value) for member in each.cls]
        if isinstance(each, inspect.LiteralType):
            return flags + [str(value) for value in each.values]
    return []


def _keys(read_as: Any, where: str = "") -> list[str]:
    """Return the keys of a table, or of that at a place of a type; none if they are not fixed."""
    kinds = _alternatives(_at(read_as, where))
    return [field.encode_name for each in kinds if isinstance(each, inspect.StructType) for field in each.fields]


def _hint(unknown: str, known: list[str]) -> str:
    return f"; {did_you_mean(unknown, known, 'known keys: ' + ', '.join(known))}" if known else ""


def _at(read_as: Any, where: str) -> inspect.Type:
    kind: inspect.Type = inspect.type_info(read_as)
    for step in re.findall(r"[A-Za-z_][A-Za-z_0-9]*|\[[^\]]*\]", where):
        kind = _into(kind, step)
    return kind


def _into(kind: inspect.Type, step: str) -> inspect.Type:
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            for field in each.fields:
                if field.encode_name == step:
                    return field.type
        if step.startswith("[") and isinstance(each, inspect.ListType | inspect.VarTupleType):
            return each.item_type
    return inspect.AnyType()


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]
