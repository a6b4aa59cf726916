"""The descriptions in a declared table; values as people write them are read as the very same values."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import AgentConfig
from master.config import MasterConfig
from penstock.config.declaration import keys, written
from penstock.config.settings import load

DAEMONS = pytest.mark.parametrize("of", [AgentConfig, MasterConfig])


class Table(msgspec.Struct, frozen=True):
    size_bytes: int = 0
    link_bytes_per_s: float = 0.0
    wait_s: float = 0.0
    share: float = 0.0
    name: str = ""
    weights: dict[str, float] = {}
    steps: tuple[float, ...] = ()


@pytest.mark.parametrize(
    ("key", "value", "as_written"),
    [
        ("size_bytes", 2 * 1024**3, '"2GiB"'),
        ("size_bytes", 16 * 1024, '"16KiB"'),
        ("size_bytes", 500_000_000, '"500MB"'),
        ("size_bytes", 1025, "1025"),
        ("size_bytes", 0, "0"),
        ("link_bytes_per_s", 125e6, '"125MB/s"'),
        ("wait_s", 0.005, '"5ms"'),
        ("wait_s", 600.0, '"10min"'),
        ("wait_s", 604_800.0, '"7d"'),
        ("wait_s", 1.1, '"1.1s"'),
        ("first_container_s", 100.0, "100.0"),
        ("share", 0.95, "0.95"),
        ("name", "", '""'),
        ("weights", {"research/eve": 2.0}, '{ "research/eve" = 2.0 }'),
        ("steps", (1.0, 2.5), "[1.0, 2.5]"),
        ("on", True, "true"),
        ("name", "é\n\x1b\x7f\x9b\u202e\U000e0001", r'"é\n\u001b\u007f\u009b\u202e\U000e0001"'),
        ("name", "a\udcff", '"a\ufffd"'),
        ("weights", {"\ud800": 1.0}, '{ "\ufffd" = 1.0 }'),
        ("weights", {"a\x9b2J": 1.0}, r'{ "a\u009b2J" = 1.0 }'),
    ],
)
def test_values_as_people_write_them(key: str, value: object, as_written: str) -> None:
    assert written(key, value) == as_written


@given(
    st.builds(
        Table,
        size_bytes=st.integers(0, 2**50),
        link_bytes_per_s=st.integers(0, 10**12).map(float),
        wait_s=st.floats(0, 1e7) | st.integers(0, 10**6).map(lambda ms: ms / 1000),
        share=st.floats(-1e9, 1e9),
        name=st.text(st.characters(exclude_categories=["Cs"])),
        weights=st.dictionaries(st.text("ab/ ü\x7f", min_size=1), st.floats(0, 10), max_size=3),
        steps=st.lists(st.floats(0, 10), max_size=3).map(tuple),
    )
)
def test_a_written_value_is_read_as_the_same(tmp_path_factory: pytest.TempPathFactory, table: Table) -> None:
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(
        "".join(f"{key} = {written(key, getattr(table, key))}\n" for key in table.__struct_fields__), encoding="utf-8"
    )
    assert load(Table, path) == table


@DAEMONS
def test_the_defaults_of_both_daemons_can_be_written_down(of: type[msgspec.Struct], tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text("".join(f"{key.name} = {key.default}\n" for key in keys(of)), encoding="utf-8")
    assert load(of, path) == of()


@DAEMONS
def test_every_key_is_described(of: type[msgspec.Struct]) -> None:
    assert not [key.name for key in keys(of) if not key.description]
