"""Import libraries without modules and steps that take long and that no command needs.

While a library is imported, stand-ins are in place of such modules. Later imports get the real ones, and what a library
does seldom imports them, too.
"""

from __future__ import annotations

import re
import sys
import time
import typing
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

#: The modules of a library, where they are not the library itself: those that commands take tables and texts from.
_MODULES = {"rich": ("rich.console", "rich.table", "rich.text")}
#: The letters and digits of the module string, which compiles a regular expression.
_LETTERS, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"


class _StandIn(ModuleType):
    """A module with the attributes that a library takes from the real one; any other attribute is the real one's."""

    def __init__(self, name: str, **attributes: object) -> None:
        super().__init__(name)
        self.__dict__.update(attributes)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(_real(self.__name__), attribute)


def _real(module: str) -> ModuleType:
    if isinstance(sys.modules.get(module), _StandIn):
        del sys.modules[module]
    return import_module(module)


def _later(module: str, *functions: str) -> _StandIn:
    """Return a stand-in with functions that import the real ones when they are called."""

    def later(function: str) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            return getattr(_real(module), function)(*given, **named)

        return called

    return _StandIn(module, **{function: later(function) for function in functions})


def _names_only(*modules: str) -> dict[str, _StandIn]:
    """Return stand-ins for modules of which a library takes nothing while it is imported, or not in every version."""
    return {module: _StandIn(module) for module in modules}


class _Pattern:
    """A regular expression that is compiled when it is used."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, attribute: str) -> Any:
        return getattr(re.compile(self._pattern, self._flags), attribute)


class _Unused:
    """A type, or the reference to one, that is not used."""

    unknown = None  # of uuid.SafeUUID

    def __init__(self, *given: object, **named: object) -> None: ...


def _is_class(of: object) -> bool:
    return isinstance(of, type)


def _no_text(*given: object, **named: object) -> str:
    return ""


def _some_bits(count: int) -> int:
    return time.time_ns() % (1 << count)


def _one_or_more(one: str, more: str, count: int) -> str:
    return one if count == 1 else more


def _stand_ins(library: str) -> dict[str, ModuleType | None]:
    """Return the stand-ins by the names of the modules that they replace. None: the module is not installed."""
    match library:
        case "msgspec":
            return {
                "typing_extensions": None,  # it is preferred to typing, which has all of it from Python 3.11 on
                # Values of these types are then refused. No message has any.
                "uuid": _StandIn("uuid", UUID=_Unused, SafeUUID=_Unused),
                "decimal": _StandIn("decimal", Decimal=_Unused),
                **_names_only("msgspec.inspect", "msgspec.toml", "msgspec.yaml"),
                "msgspec._json_schema": _later("msgspec._json_schema", "schema", "schema_components"),
            }
        case "argparse":  # Python has no translations of its messages, and looks for some at each of them
            return {"gettext": _StandIn("gettext", gettext=str, ngettext=_one_or_more)}
        case "pathlib":
            urls = _later("urllib.parse", "quote_from_bytes")
            return {"urllib.parse": urls, **_names_only("fnmatch", "ntpath")}
        case "tomllib":  # the patterns are those of numbers and dates
            hexadecimal = f"{_DIGITS}abcdefABCDEF"
            letters = _LETTERS + _LETTERS.upper()
            return {
                "re": _StandIn("re", **{**vars(re), "compile": _Pattern}),
                "string": _StandIn("string", ascii_letters=letters, digits=_DIGITS, hexdigits=hexadecimal),
            }
        case "rich":  # dataclasses takes the text of a class without one from inspect, rich.style the ids of links
            return {
                "inspect": _StandIn("inspect", signature=_no_text, isclass=_is_class),
                "random": _StandIn("random", getrandbits=_some_bits),
                "ast": _later("ast", "literal_eval"),
                "copy": _later("copy", "copy", "deepcopy"),
                "fractions": _later("fractions", "Fraction"),
                "pickle": _later("pickle", "dumps", "loads"),
            }
    raise ValueError(library)


def load(*libraries: str) -> None:
    """Import libraries that are not imported yet."""
    # What datetime imports in the end; before, it defines all of it in Python (3.11).
    sys.modules.setdefault("datetime", import_module("_datetime"))
    for library in libraries:
        if library not in sys.modules:
            _load(library)


def _load(library: str) -> None:
    absent = {name: module for name, module in _stand_ins(library).items() if name == "re" or name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type] # None is documented under "The import system"
    # Nothing resolves the annotations of these libraries. To compile the first one takes a twentieth of `penstock
    # submit`, as compile() makes the types of the syntax tree.
    genuine, typing.ForwardRef = typing.ForwardRef, _Unused  # type: ignore[misc,assignment]
    try:
        for part in _MODULES.get(library, (library,)):
            import_module(part)
    finally:
        typing.ForwardRef = genuine  # type: ignore[misc]
        for name, module in absent.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        sys.modules["re"] = re
