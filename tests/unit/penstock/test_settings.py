"""One declared table of configuration: what it reads, and how it says no."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from penstock.settings import SettingsError, load


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: str = "here"
    cores: float = 1.0
    memory_bytes: int = 1
    rate_bytes_per_s: int = 1
    interval_s: float = 1.0
    on: bool = False


class Chosen(msgspec.Struct):
    order: Annotated[Literal["first", "last"], msgspec.Meta(description="who goes first")] = "first"


def test_defaults() -> None:
    assert load(Table) == Table()


def test_quantities_are_read_by_their_unit(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('memory_bytes = "2GiB"\nrate_bytes_per_s = "10MB/s"\ninterval_s = "250ms"\ncores = 2\n')
    table = load(Table, path, {"on": "true", "node": "alpha"})
    assert table == Table(
        node="alpha", cores=2.0, memory_bytes=2 * 1024**3, rate_bytes_per_s=10**7, interval_s=0.25, on=True
    )


def test_overrides_win_and_need_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('node = "file"\n')
    assert load(Table, path, {"node": "127.0.0.1:7420", "memory_bytes": "64M"}) == Table(
        node="127.0.0.1:7420", memory_bytes=64 * 1024**2
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nod = 1", "unknown key 'nod'; did you mean 'node'?"),
        ("zzzzzz = 1", "unknown key 'zzzzzz'; known keys: cores, interval_s"),
        ('cores = "many"', "cores: Expected `float`, got `str`"),
        ('memory_bytes = "12Q"', "memory_bytes: '12Q': unknown unit"),
        ("on = 1", "on: Expected `bool`, got `int`"),
        ("node = ", "Invalid value"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(Table, path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_bad_override_names_its_option() -> None:
    with pytest.raises(SettingsError, match=r"^--set: unknown key 'nodes'"):
        load(Table, None, {"nodes": "x"})


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(Table, tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"node = '\xff'")
    with pytest.raises(SettingsError, match=r"bytes\.toml"):
        load(Table, tmp_path / "bytes.toml")


def test_a_value_that_is_none_of_a_few_words_is_answered_with_them() -> None:
    with pytest.raises(SettingsError, match=r"--set: order: .*; one of first, last$"):
        load(Chosen, None, {"order": "frist"})
