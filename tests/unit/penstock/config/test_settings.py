"""One declared table of configuration: the values that it reads, and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from penstock.config.settings import (
    LIVE,
    Origin,
    SettingsError,
    Sources,
    entry,
    given,
    host_port,
    live_keys,
    load,
    read,
)


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.toml"


def test_quantities_are_read_by_their_unit(path: Path) -> None:
    path.write_text('memory_bytes = "2GiB"\nrate_bytes_per_s = "10MB/s"\ninterval_s = "250ms"\ncores = 2\n')
    table = load(Table, path, {"on": "true", "node": "alpha"})
    assert table == Table(
        node="alpha", cores=2.0, memory_bytes=2 * 1024**3, rate_bytes_per_s=10**7, interval_s=0.25, on=True
    )


def test_overrides_win_and_need_no_quotes(path: Path) -> None:
    path.write_text('node = "file"\n')
    assert load(Table, path, {"node": "127.0.0.1:7420", "memory_bytes": "64M"}) == Table(
        node="127.0.0.1:7420", memory_bytes=64 * 1024**2
    )


@pytest.mark.parametrize("text", ["7", "1.5", "true", "2026-11-30"])
def test_an_override_of_a_text_is_text_whatever_it_looks_like(text: str) -> None:
    assert load(Table, None, {"node": text}).node == text
    assert given(Table, "node", text) == text
    sources = Sources(None, {}, "P_", {"P_NODE": text})
    assert read(Table, sources).table.node == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nod = 1", "unknown key 'nod'; did you mean 'node'?"),
        ("[agent]\ncores = 1", "unknown table 'agent'; write its keys without this header"),
        ("zzzzzz = 1", "unknown key 'zzzzzz'; known keys: cores, interval_s"),
        ('cores = "many"', "cores: a number expected, and text found"),
        ('memory_bytes = "12Q"', "memory_bytes: '12Q': unknown unit"),
        ("on = 1", "on: true or false expected, and a whole number found"),
        ("node = \n", ":1: Invalid value (column 8)"),
        ('node = "x', ":1: Unterminated string (column 10)"),
        ("on = 'yes'", "on: true or false expected, and text found"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_key(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(Table, path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:1: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("[agent]\ncores = 1", "keys of the agent belong in its own file, agent.toml, without this header"),
        ("[agent]\nslots = 1", "keys of the agent belong in its own file, agent.toml, without this header"),
        ("[master]\nslots = 1", "write its keys without this header"),
    ],
)
def test_a_header_with_a_daemons_name_is_answered_with_the_place_of_its_keys(
    path: Path, text: str, remedy: str
) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read(Table, Sources(path, {}, "PENSTOCK_MASTER_", {}))
    header = text[1 : text.index("]")]
    assert str(caught.value) == f"{path}:1: unknown table {header!r}; {remedy}"


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000])
def test_toml_nested_too_deeply_to_read_is_one_line(path: Path, value: str) -> None:
    path.write_text(f"cores = {value}\n")
    with pytest.raises(SettingsError, match="a number of thousands of digits, or brackets within brackets"):
        load(Table, path)
    with pytest.raises(SettingsError, match="cores: a number expected, and text found"):
        load(Table, None, {"cores": value})


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


class Live(msgspec.Struct, frozen=True):
    share: Annotated[float, msgspec.Meta(ge=0, le=1), msgspec.Meta(description="a share"), LIVE] = 0.5
    path: Annotated[str, msgspec.Meta(description="where")] = ""
    plain: int = 0
    weights: dict[str, float] = {}


def _sources(file: Path | None = None, overrides: dict[str, str] | None = None, **environment: str) -> Sources:
    return Sources(file, overrides or {}, "PENSTOCK_X_", {"PATH": "/bin", **environment})


def test_the_later_source_wins_and_each_value_knows_its_own(path: Path) -> None:
    path.write_text('# about us\nnode = "file"\ncores = 2.0\n\ninterval_s = "2s"\n')
    sources = _sources(path, {"cores": "4"}, PENSTOCK_X_CORES="3", PENSTOCK_X_INTERVAL_S="250ms", PENSTOCK_Y="1")
    loaded = read(Table, sources)
    assert loaded.table == Table(node="file", cores=4.0, interval_s=0.25)
    assert loaded.origins == {
        "node": Origin("file", f"{path}:2"),
        "interval_s": Origin("environment", "$PENSTOCK_X_INTERVAL_S"),
        "cores": Origin("--set", "--set"),
    }


def test_for_a_variable_that_names_no_key_the_nearest_is_suggested() -> None:
    with pytest.raises(SettingsError) as caught:
        read(Table, _sources(PENSTOCK_X_CORE="3", PENSTOCK_X_NODE="n"))
    assert str(caught.value) == "$PENSTOCK_X_CORE: there is no such key; did you mean 'PENSTOCK_X_CORES'?"
    with pytest.raises(SettingsError, match=r"^\$PENSTOCK_X_CORES: cores: a number expected"):
        read(Table, _sources(PENSTOCK_X_CORES="many"))


def test_all_faults_of_a_file_are_reported_each_with_its_line(path: Path) -> None:
    path.write_text('share = 7\n\n"plain" = "x"\nnothing = 1\n[weights]\na = "heavy"\nb = 1\n"c d" = nan\n')
    with pytest.raises(SettingsError) as caught:
        read(Live, _sources(path))
    assert caught.value.faults == (
        f"{path}:1: share: a number of at most 1 expected",
        f"{path}:3: plain: a whole number expected, and text found",
        f"{path}:4: unknown key 'nothing'; known keys: path, plain, share, weights",
        f"{path}:5: weights.a: a number expected, and text found",
        f'{path}:5: weights."c d": a finite number below 2^63 expected',
    )


def test_a_contradiction_of_keys_is_placed_where_the_key_was_written(path: Path) -> None:
    path.write_text('\nnode = "n"\n')

    def check(table: Table) -> None:
        raise SettingsError("node: not with these cores", "cores: too few")

    with pytest.raises(SettingsError) as caught:
        read(Table, _sources(path), check)
    assert caught.value.faults == (f"{path}:2: node: not with these cores", "cores: too few")


def test_an_entry_of_a_table_is_placed_where_the_table_was_written(path: Path) -> None:
    path.write_text('share = 0.5\n\n[weights]\n"a:b" = 0\n')

    def check(table: Live) -> None:
        raise SettingsError(*(f"{entry('weights', name)}: too light" for name in table.weights))

    with pytest.raises(SettingsError, match=f'^{path}:3: weights."a:b": too light$'):
        read(Live, _sources(path), check)


def test_a_table_where_none_is_expected_is_one_fault(path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--set: plain: a whole number expected, and a table found$"):
        load(Live, None, {"plain": "{a = 1, b = 2}"})


def test_live_keys_are_those_that_are_marked() -> None:
    assert live_keys(Live) == {"share"}


def test_links_are_written_in_bits() -> None:
    assert load(Table, None, {"rate_bytes_per_s": "1Gbit/s"}).rate_bytes_per_s == 125_000_000


def test_addresses() -> None:
    assert host_port("127.0.0.1:0", "listen") == ("127.0.0.1", 0)
    assert host_port("[::1]:7420", "listen") == ("::1", 7420)
    for wrong in ("", ":1", "host", "host:", "host:x", "host:65536", "host:-1"):
        with pytest.raises(SettingsError, match="ADDRESS:PORT"):
            host_port(wrong, "listen")
