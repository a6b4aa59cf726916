"""The data of TPC-H, as small as they come, which are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tpch.data import prepare

#: Of the benchmark's size.
TPCH_SCALE = 0.01


@pytest.fixture(scope="session")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(TPCH_SCALE, 2, tmp_path_factory.mktemp("tpch"))
