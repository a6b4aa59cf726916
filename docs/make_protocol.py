"""Writes the generated parts of docs/protocol.md (between the markers) from the declarations in penstock.wire.

python docs/make_protocol.py            # rewrite
python docs/make_protocol.py --check    # exit status 1 if it is out of date
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgpack
import msgspec

from penstock.wire import agent_methods, master_api, relayed_methods
from penstock.wire.connection import RpcConnection, to_wire
from penstock.wire.errors import ErrorBody
from penstock.wire.method import Method
from penstock.wire.reservation_api import OnBehalf

PAGE = Path(__file__).with_name("protocol.md")
WIDTH = 120
#: Fields whose types say less than the page can.
_OPEN_FIELDS = {
    "status": "map: [the status document](#the-status-document), of `cluster_status` [the master's](master-status.md)",
    "rdl": "string, or map: a request in [RDL](reservations.md), as text or as JSON",
    "explained": "map: see [jobs](jobs.md)",
    "value": "boolean, number, string or array: as the key's type in [configuration](configuration.md)",
}
#: What the bounds of an array and of a map count.
_COUNTED = {"array": "elements", "map": "entries"}
#: Words of docstrings that mean something else on the page.
_WORDS = (
    (r"`?\bNone\b`?|\bnull\b", "nil"),
    (r"\bdocs/protocol\.md\b", "this page"),
    (r"\bdocs/([a-z-]+)\.md\b", r"[\1](\1.md)"),
    (r"^Agent → framework: (.)", lambda found: found[1].upper()),
)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

#: The calls of frameworks.
REQUESTS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}


# ---------------------------------------------------------------- types and fields


def type_name(kind: Any) -> str:
    """How the page calls a type.

    Raises:
        TypeError: a type that no page names yet.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        of, meta = type_name(arguments[0]), kind.__metadata__[0]
        container, found, inside = of.partition(" of ")
        if container in _COUNTED and found:  # beside its word: those of what is inside come behind that
            return f"{container}{_bounds(meta, _COUNTED[container])} of {inside}"
        return f"{of}{_bounds(meta, 'characters')}"
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(type_name(one) for one in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"[{', '.join(map(type_name, arguments))}]"
    if origin in {list, tuple, Sequence}:
        return f"array of {_inside(arguments[0])}"
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(one)}`" for one in arguments)
    if origin in {dict, Mapping}:
        return f"map of {_inside(arguments[0])} to {_inside(arguments[1])}"
    plain = {int: "integer", float: "number", str: "string", bool: "boolean", bytes: "binary", type(None): "nil"}
    plain[msgspec.UnsetType] = "absent"
    if kind in plain:
        return plain[kind]
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum | msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if kind is Any:
        return "any value"
    raise TypeError(f"no name for {kind!r}")


def _inside(kind: Any) -> str:
    """The type of what an array or a map has: in brackets where it is one of several."""
    name = type_name(kind)
    return f"({name})" if " or " in name else name


def _number(value: float) -> str:
    """A bound, with powers of two as such."""
    for exponent, less in ((63, 1), (31, 0), (22, 0)):
        if value == 2**exponent - less:
            return f"2{str(exponent).translate(_SUPERSCRIPTS)}{' − 1' if less else ''}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(meta: msgspec.Meta, counted: str) -> str:
    parts = []
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if (value := getattr(meta, name)) is not None:
            parts.append(f"{sign} {_number(value)}")
    if meta.max_length is not None:
        parts.append(f"{meta.min_length or 0}–{meta.max_length} {counted}")
    elif meta.min_length:
        parts.append("not empty")
    if meta.pattern is not None:
        parts.append(f"`{meta.pattern}`".replace("|", "\\|"))
    return f" ({', '.join(parts)})" if parts else ""


def fields_table(of: type[msgspec.Struct]) -> list[str]:
    """One row per field; nothing for a structure without fields."""
    fields = msgspec.structs.fields(of)
    if not fields:
        return []
    rows = [f"| `{field.encode_name}` | {_type(field)} | {_default(field)} |" for field in fields]
    return ["", "| field | type | default |", "|---|---|---|", *rows]


def _type(field: msgspec.structs.FieldInfo) -> str:
    name = type_name(field.type)
    return _OPEN_FIELDS[field.encode_name] if "any value" in name else name


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if isinstance(field.default, msgspec.Struct):
        return "none set"
    if field.default in ("", ()):
        return "empty"
    return f"`{'nil' if field.default is None else str(field.default).lower()}`"


def prose(of: type) -> str:
    """A docstring as Markdown."""
    text = inspect.getdoc(of) or ""
    text = re.sub(r"``([^`]*)``", r"`\1`", re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text))
    for word, instead in _WORDS:
        text = re.sub(word, instead, text)
    return text


def _head(name: str, about: str, params: type[msgspec.Struct]) -> list[str]:
    """The heading of a method or notification, what it does, and its parameters."""
    return ["", f"### `{name}`", "", about, *fields_table(params)]


def _bytes_block(*messages: tuple[str, bytes]) -> list[str]:
    lines = [
        f"{' ' if start else mark} {data[start : start + 32].hex(' ')}"
        for mark, data in messages
        for start in range(0, len(data), 32)
    ]
    return ["```hex", *lines, "```"]


def _plain(params: object) -> Any:
    """As it travels: maps, arrays, strings, numbers, bytes."""
    return msgpack.unpackb(msgpack.packb(to_wire(params)))


def literal(value: Any, indent: int = 0, taken: int = 0) -> str:
    """A value in Python, laid out as ``ruff format`` does; ``taken`` is what else stands on its first line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f"b{json.dumps(value.decode())}"
    if not isinstance(value, dict | list):
        return repr(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    keys = [f"{literal(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    inner = list(value.values()) if isinstance(value, dict) else value
    one_line = (
        opening
        + ", ".join(key + literal(one, taken=-10 * WIDTH) for key, one in zip(keys, inner, strict=True))
        + closing
    )
    if indent + taken + len(one_line) <= WIDTH:
        return one_line
    deeper = indent + 4
    rows = [f"{' ' * deeper}{key}{literal(one, deeper, len(key) + 1)},\n" for key, one in zip(keys, inner, strict=True)]
    return f"{opening}\n{''.join(rows)}{' ' * indent}{closing}"


def call_code(method: str, params: Any) -> str:
    """The call in Python; ``params`` None for a method without parameters."""
    name = literal(method)
    if params is None:
        return f"call({name})"
    one_line = literal(params, taken=-10 * WIDTH)
    for code in (f"call({name}, {one_line})", f"call(\n    {name}, {one_line}\n)"):
        if max(map(len, code.splitlines())) <= WIDTH:
            return code
    return f"call(\n    {name},\n    {literal(params, 4, 1)},\n)"


# ---------------------------------------------------------------- the parts


def requests() -> list[str]:
    """Every method of the agent."""
    lines = []
    for name, method in REQUESTS.items():
        asked = method.example if method.params.__struct_fields__ else None
        _, request = RpcConnection().send_request(name, asked)
        response = RpcConnection().send_response(0, method.answer)
        code = call_code(name, None if asked is None else _plain(asked))
        about = method.about or prose(method.params)
        lines += _head(name, f"{about}\n\nAccepted from {method.caller}.", method.params)
        if method.result.__struct_fields__:
            lines += ["", f"Result: {prose(method.result)}", *fields_table(method.result)]
        lines += ["", "```python", code, f"# → {_comment(method.answer)}", "```", ""]
        lines += _bytes_block(("→", request), ("←", response))
    return lines


def _comment(result: object) -> str:
    return literal(_plain(result), taken=4).replace("\n", "\n#   ")


def notifications() -> list[str]:
    """Every notification of the agent."""
    lines = []
    for example in agent_methods.NOTICES:
        name, params = example.METHOD, type(example)
        lines += [*_head(name, prose(params), params), "", "```python", "next_notification()"]
        lines += [f"# → {_comment([name, [_plain(example)]])}", "```", ""]
        lines += _bytes_block(("←", RpcConnection().send_notification(name, example)))
    return lines


def structures() -> list[str]:
    """What the methods' parameters and results are made of."""
    lines = []
    for of in parts():
        lines += ["", f"### {of.__name__}", "", prose(of)]
        if issubclass(of, enum.StrEnum):
            lines += ["", values(of)]
        else:
            lines += fields_table(of)
    return lines


def values(of: type[enum.StrEnum]) -> str:
    """The values of an enumeration."""
    return f"A string: {', '.join(f'`{kind.value}`' for kind in of)}"


def parts() -> list[type]:
    """The structures and enumerations in parameters and results of the agent's methods, each after its first user."""
    tops = [of for method in REQUESTS.values() for of in (method.params, method.result)]
    tops += agent_methods.NOTIFICATIONS.values()
    found: dict[type, None] = {}
    for top in (*tops, ErrorBody):
        for kind in msgspec.structs.fields(top):
            collect(kind.type, found)
    return list(found)


def collect(kind: Any, found: dict[type, None]) -> None:
    """Add the structures and enumerations of a type, and those that they are made of."""
    for inner in typing.get_args(kind):
        collect(inner, found)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum | msgspec.Struct) and kind not in found:
        found[kind] = None
        if issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                collect(field.type, found)


def master() -> list[str]:
    """The master's methods, shorter."""
    lines = ["", "### Agent → master", ""]
    lines += [_row(method) for method in master_api.REQUESTS.values()]
    lines += ["", f"{_short(OnBehalf)} The answer is that to the call.", ""]
    for relay in relayed_methods.RELAYS:
        lines.append(f"- **`{relay.name}`** Calls: {', '.join(f'`{call.name}`' for call in relay.calls)}.")
    lines += ["", "### Master → agent", "", _row(master_api.DECIDE), _row(master_api.NAME_TENANTS)]
    lines += ["", "### Decisions", "", "A map each; `do` says which.", ""]
    for decision in typing.get_args(master_api.AnyDecision):
        lines.append(f"- **`{decision.__struct_config__.tag}`** {_short(decision)}")
    return lines


def _row(method: Method[Any, Any]) -> str:
    answer = f" Answer: {_short(method.result)}" if method.result.__struct_fields__ else ""
    return f"- **`{method.name}`** {_short(method.params)}{answer}"


def _short(of: type[msgspec.Struct]) -> str:
    names = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(of))
    return f"{' '.join(prose(of).split())} Fields: {names}." if names else " ".join(prose(of).split())


def updated(page: str) -> str:
    """The page with its generated parts renewed."""
    for name, part in (
        ("requests", requests),
        ("notifications", notifications),
        ("structures", structures),
        ("master", master),
    ):
        begin, end = f"<!-- {name}: written by docs/make_protocol.py -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE}: the marks of {name} are missing")
        page = "\n".join([before + begin, *part(), "", end + after])
    return page


def main() -> int:
    """Exit status 1 if --check finds a difference."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = updated(page)
    if "--check" in sys.argv[1:]:
        if fresh != page:
            sys.stderr.write(f"{PAGE} is out of date; run python docs/make_protocol.py\n")
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
