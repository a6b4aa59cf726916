"""The keys of a JSON document, to tell whether a change of the code changed the document."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def plain(document: object) -> Any:
    """Return a document as a client reads it: from its JSON."""
    return json.loads(msgspec.json.encode(document))


def keys_of(document: object, *maps: str) -> str:
    """Return a line ``path: key key …`` for every object in a document; the keys of ``maps`` (paths) are ``*``."""
    found: dict[str, set[str]] = {}
    _collect(plain(document), "", frozenset(maps), found)
    return "\n".join(f"{path or '.'}: {' '.join(sorted(keys))}" for path, keys in sorted(found.items()))


def _collect(value: Any, path: str, maps: frozenset[str], found: dict[str, set[str]]) -> None:
    if isinstance(value, list):
        for each in value:
            _collect(each, f"{path}[]", maps, found)
    elif isinstance(value, dict):
        for key, each in value.items():
            name = "*" if path in maps else key
            found.setdefault(path, set()).add(name)
            _collect(each, f"{path}.{name}".lstrip("."), maps, found)
