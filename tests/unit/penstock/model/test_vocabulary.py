"""Amounts per kind, capacities, ends."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import KINDS, Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, Limits

numbers = st.floats(0, 1e15)
amounts = st.builds(KindAmounts, numbers, numbers, numbers)


@given(amounts, amounts)
def test_amounts_never_turn_negative(one: KindAmounts, other: KindAmounts) -> None:
    for kind in KINDS:
        assert (one + other).of(kind) == one.of(kind) + other.of(kind)
        assert one.minus(other).of(kind) == max(0.0, one.of(kind) - other.of(kind))


@pytest.mark.parametrize(("cores", "slots"), [(0.5, 1), (1.0, 1), (2.9, 2), (64.0, 64)])
def test_one_cpu_slot_for_each_whole_core_and_at_least_one(cores: float, slots: int) -> None:
    capacity = Capacity(cores=cores, memory_bytes=1, disk_slots=3, network_slots=4)
    assert [capacity.slots(kind) for kind in KINDS] == [slots, 3, 4]


def test_only_exit_status_zero_is_success() -> None:
    assert Ended(by=EndedBy.EXIT, exit_status=0).ok
    assert not Ended(by=EndedBy.EXIT, exit_status=1).ok
    assert not Ended(by=EndedBy.PREEMPTED, exit_status=0).ok


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"argv": []}, "length >= 1"),
        ({"argv": ["x"], "user": "root"}, "unknown field `user`"),
        ({"argv": ["x"], "limits": {"cpu_cores": 0}}, "> 0"),
        ({"argv": ["x"], "limits": {"cpu_weight": 101}}, "<= 100"),
        ({"argv": ["x"], "memory_bytes": -1}, ">= 0"),
    ],
)
def test_specifications_are_checked(table: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(table, ContainerSpec)


def test_defaults_do_not_travel() -> None:
    spec = ContainerSpec(argv=("true",), limits=Limits(cpu_cores=1.0))
    assert msgspec.to_builtins(spec) == {"argv": ("true",), "limits": {"cpu_cores": 1.0}}
