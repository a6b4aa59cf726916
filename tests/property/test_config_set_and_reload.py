"""Setting keys and reading the file again, in any order: the last value set is in force, and a change is made whole or
not at all.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import structlog
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.live_config import LiveConfig
from penstock.config.settings import LIVE, Loaded, Origin, SettingsError


class Table(msgspec.Struct, frozen=True, kw_only=True):
    low: Annotated[int, msgspec.Meta(ge=0, le=9), LIVE] = 0
    high: Annotated[int, msgspec.Meta(ge=0, le=9), LIVE] = 9
    listen: str = "a"


LIVE_KEYS = ("low", "high")
READS = st.builds(Table, low=st.integers(0, 9), high=st.integers(0, 9), listen=st.sampled_from("ab"))
SETS = st.dictionaries(
    st.sampled_from(["low", "high", "listen", "loww"]), st.sampled_from(["0", "3", "9", "10", "x"]), min_size=1
)


def check(table: Table) -> None:
    if table.low > table.high:
        raise SettingsError(f"low: {table.low} is above high ({table.high})")


class Model:
    """The expected values, and the origin of each key."""

    def __init__(self) -> None:
        self.table = Table()
        self.by_hand: set[str] = set()

    def read(self, found: Table) -> bool:
        if found.low > found.high:
            return False
        before, self.table = self.table, msgspec.structs.replace(self.table, low=found.low, high=found.high)
        self.by_hand = set()
        return before != self.table

    def set(self, values: dict[str, str]) -> bool:
        good = all(key in LIVE_KEYS and value in {"0", "3", "9"} for key, value in values.items())
        fresh = msgspec.structs.replace(
            self.table, **{key: int(value) for key, value in values.items()} if good else {}
        )
        if not good or fresh.low > fresh.high:
            return False
        self.table = fresh
        self.by_hand |= values.keys()
        return True


@given(st.lists(st.one_of(READS, SETS), max_size=12))
def test_the_last_value_set_is_in_force(steps: list[Table | dict[str, str]]) -> None:
    applied: list[Table] = []
    file = [Table()]

    def read() -> Loaded[Table]:
        check(file[0])
        return Loaded(file[0], dict.fromkeys(Table.__struct_fields__, Origin("file", "x.toml")))

    live_config = LiveConfig(Loaded(Table(), {}), read, check, apply=applied.append)
    model = Model()
    with structlog.testing.capture_logs() as lines:
        for step in steps:
            before = len(applied), live_config.loaded
            if isinstance(step, Table):
                file[0] = step
                live_config.reload()
                taken = model.read(step)
            else:
                try:
                    live_config.set(step, "eve", "now")
                    done = True
                except SettingsError:
                    done = False
                    assert live_config.loaded is before[1], "nothing of it"
                taken = model.set(step)
                assert done == taken
            assert live_config.current == model.table
            assert live_config.by_hand().keys() == model.by_hand
            assert len(applied) == before[0] + taken
            assert not applied or applied[-1] == model.table
            check(live_config.current)
    assert len(lines) >= sum(isinstance(step, Table) for step in steps), "each reading is said in the log"
