"""TOML files that people write; an error is one line with the file and the place."""

from __future__ import annotations

import codecs
import io
import tomllib
from pathlib import Path
from typing import Any

#: The largest file that is read: 512 bytes for each of 131,072 tasks, the most in one message.
_MOST_BYTES = 64 << 20


class TomlFileError(ValueError):
    """A file that cannot be read, or is no TOML. The message is one line."""


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and its table.

    Raises:
        TomlFileError: the file cannot be read, is too large, or is no TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise TomlFileError(f"{path}: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise TomlFileError(f"{path}: more than {_MOST_BYTES >> 20} MiB; is it the right file? write a smaller one")
    try:
        # Editors of Windows begin with a mark, and end lines in other ways than TOML does. The encoding "utf-8-sig",
        # which is without the mark, is a module of its own.
        text = io.TextIOWrapper(io.BytesIO(content.removeprefix(codecs.BOM_UTF8)), "utf-8").read()
    except UnicodeDecodeError as error:
        raise TomlFileError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        from penstock.model.decode_errors import told_toml  # only errors need it

        raise TomlFileError(told_toml(path, text, error)) from None
    except (ValueError, RecursionError):
        raise TomlFileError(f"{path}: a number of thousands of digits, or brackets within brackets") from None
