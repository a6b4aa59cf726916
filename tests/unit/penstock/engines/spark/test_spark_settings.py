"""The settings that an application passes in its executors' environment."""

from __future__ import annotations

import pytest

from penstock.engines.spark.settings import Settings
from penstock.model import Sizing


def test_no_setting_is_required() -> None:
    settings = Settings.from_environment({"PATH": "/bin", "PENSTOCK_SOCKET": "/run/a", "PENSTOCK_OF_OTHERS": "1"})
    assert settings == Settings(application="", cores=0, input_bytes=0, memory_overhead_bytes=0, sizing=Sizing.SHARED)


def test_every_setting_may_be_given() -> None:
    said = {
        "PENSTOCK_APPLICATION": "sort", "PENSTOCK_INPUT_BYTES": "4G", "PENSTOCK_MEMORY_OVERHEAD": "1G",
        "PENSTOCK_SIZING": "hard", "PENSTOCK_CORES": "0.5",
    }  # fmt: skip
    wanted = Settings(
        application="sort", cores=0.5, input_bytes=4 << 30, memory_overhead_bytes=1 << 30, sizing=Sizing.HARD
    )  # fmt: skip
    assert Settings.from_environment(said) == wanted


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PENSTOCK_INPUT_BYTES", "much", "PENSTOCK_INPUT_BYTES: 'much' is not a quantity"),
        ("PENSTOCK_MEMORY_OVERHEAD", "-1", "PENSTOCK_MEMORY_OVERHEAD: '-1'"),
        ("PENSTOCK_CORES", "half", "PENSTOCK_CORES: 'half' is not a number of cores"),
        ("PENSTOCK_CORES", "-1", "PENSTOCK_CORES: '-1'"),
        ("PENSTOCK_CORES", "nan", "PENSTOCK_CORES: 'nan'"),
        ("PENSTOCK_CORE", "1", "did you mean PENSTOCK_CORES"),
        ("PENSTOCK_SIZING", "soft", "PENSTOCK_SIZING: 'soft' is neither hard nor shared"),
        ("PENSTOCK_INPUT_BYTE", "1", "did you mean PENSTOCK_INPUT_BYTES"),
    ],
)
def test_an_unreadable_value_is_named(name: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.from_environment({name: value})


@pytest.mark.parametrize(("heap_mib", "promise_mib"), [(600, 984), (10_000, 11_000)])
def test_the_promise_is_sparks_own_reckoning(heap_mib: int, promise_mib: int) -> None:
    assert Settings().promise_bytes(heap_mib << 20) == promise_mib << 20


def test_a_given_overhead_counts() -> None:
    assert Settings(memory_overhead_bytes=5).promise_bytes(100) == 105
