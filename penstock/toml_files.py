"""TOML files that people write; an error is one line with the file and the place."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from penstock.model.decode_errors import told_toml


class TomlFileError(ValueError):
    """A file that cannot be read, or is no TOML. The message is one line."""


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and its table.

    Raises:
        TomlFileError: the file cannot be read, or is no TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise TomlFileError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise TomlFileError(told_toml(path, text, error)) from None
    except UnicodeDecodeError as error:
        raise TomlFileError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError):
        raise TomlFileError(f"{path}: a number of thousands of digits, or brackets within brackets") from None
