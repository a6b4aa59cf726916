"""Write keys into a daemon's configuration file; the rest of the file, with its comments, stays unchanged."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
import tomlkit.items

from penstock.config.settings import scalar
from penstock.durable import replace_file
from penstock.model.decode_errors import told_toml


class NotWritten(Exception):  # noqa: N818 - the name describes the result
    """The file was not changed: one line that names the file and the reason."""


def write(file: Path, values: Mapping[str, str]) -> None:
    """Write the keys atomically and keep the file's owner and mode. ``values`` have the form of ``--set``.

    Raises:
        NotWritten: the file is no TOML, or we cannot write it.
    """
    file = file.resolve()  # write a link's target, do not replace the link
    try:
        before = file.read_text(encoding="utf-8")
        text = changed(before, {key: scalar(value) for key, value in values.items()})
        replace_file(file, text.encode(), like=file.stat())
    except OSError as error:
        raise NotWritten(f"{file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise NotWritten(told_toml(file, before, error)) from None
    except (UnicodeDecodeError, tomlkit.exceptions.ParseError) as error:
        raise NotWritten(f"{file}: {error}") from None


def changed(text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a TOML file with the top-level keys of ``values`` set.

    Existing keys stay in their places; new keys go before the first table.

    Raises:
        tomllib.TOMLDecodeError, tomlkit.exceptions.ParseError: the text is no TOML.
    """
    before = tomllib.loads(text)
    document = tomlkit.parse(text)
    for key, value in values.items():
        table = isinstance(document.get(key), tomlkit.items.Table)
        document[key] = _inline(value) if isinstance(value, dict) and not table else value
    written = tomlkit.dumps(document)
    assert tomllib.loads(written) == {**before, **values}
    return written


def _inline(value: dict[str, Any]) -> tomlkit.items.InlineTable:
    made = tomlkit.inline_table()
    made.update(value)
    return made


def lines(values: Mapping[str, str]) -> str:
    """Return the values as a configuration file has them, in one line."""
    return "; ".join(changed("", {key: scalar(value)}).strip() for key, value in values.items())
