"""What is wrong with a trace, and where."""

from __future__ import annotations

from pathlib import Path


class TraceError(ValueError):
    """One line: ``FILE:LINE: what`` or ``FILE: key: what``."""


def text_of(path: Path) -> str:
    """The text of a trace's file. Raises TraceError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not text (byte {error.start})") from None
