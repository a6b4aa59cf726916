"""The characters of a node's name: it is printed in tables, messages and logs, one line each."""

from __future__ import annotations


def unprintable(name: str) -> str:
    """Return the fault of a node's name that has a line break or a control character, with the remedy; or ""."""
    if name.isprintable():
        return ""
    return f"{name[:128]!r} has a character that cannot be printed; name the node with printable characters only"
