"""The data of TPC-H, as small as they come, which are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tpch.data import prepare

#: Of the benchmark's size.
TPCH_SCALE = 0.01


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for ``XDG_CACHE_HOME`` that has the data."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        prepare(TPCH_SCALE, 2)
    return directory


@pytest.fixture(scope="session")
def tpch(cache_home: Path) -> Path:
    return cache_home / "penstock" / "tpch" / f"sf{TPCH_SCALE:g}-2"
