"""The hint in an error about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a question with the nearest known name; ``otherwise`` if none is near."""
    import difflib  # only errors need it

    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else otherwise
