"""Describe a configuration: every key with its value, the value's source, and its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.config import declaration
from penstock.config.settings import Loaded, Origin
from penstock.wire.config_api import KeyInForce

T = TypeVar("T", bound=msgspec.Struct)
#: The origin of a value that no source has.
DEFAULT = Origin("default", "default")


def document(loaded: Loaded[T], later: Mapping[str, str]) -> dict[str, KeyInForce]:
    """Return all keys in the order of their declaration; ``later`` are the values after a restart that differ."""
    found: dict[str, KeyInForce] = {}
    for key in declaration.keys(type(loaded.table)):
        origin, value = loaded.origins.get(key.name, DEFAULT), getattr(loaded.table, key.name)
        found[key.name] = KeyInForce(
            value=msgspec.to_builtins(value),
            written=declaration.written(key.name, value),
            source=origin.source,
            where=_in_utf8(origin.where),
            default=key.default,
            live=key.live,
            description=key.description,
            after_restart=later.get(key.name, ""),
        )
    return found


def _in_utf8(where: str) -> str:
    """Return the text for a message, which carries UTF-8 alone; a file's name may have other bytes (PEP 383)."""
    return where.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
