"""The error of a faulty trace, with its place."""

from __future__ import annotations

from pathlib import Path


class TraceError(ValueError):
    """A fault of a trace, in one line: ``FILE:LINE: fault`` or ``FILE: key: fault``."""


def text_of(path: Path) -> str:
    """Return the text of a trace's file. Raises TraceError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not text (byte {error.start})") from None
